/**
 * Loads the processes of folders and packages.
 *
 * In a folder, each TypeScript or JavaScript file whose default export is a process is a process file. Subfolders and
 * test files are ignored. Any other file is a helper file. If a helper file calls `defineProcess`, an error is
 * reported, because its author has forgotten the default export. From a package, each export that is a process is
 * loaded.
 *
 * A file that cannot be loaded is reported with its line, and all other processes are loaded. If two files define
 * processes of the same name in the first load, nothing is loaded, because a run could belong to either process. In a
 * later load, the file that was loaded first keeps the name, even while this file cannot be loaded. The other file is
 * reported.
 */
import { readdir, readFile, realpath } from 'node:fs/promises'
import { findPackageJSON } from 'node:module'
import { dirname, join, resolve, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { isDeepStrictEqual } from 'node:util'
import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'
import type { Environment } from '@integration-host/shared/process/config'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { CHANGE_FEED } from '../../change-feed/sweep.ts'
import type { TargetLimits } from '../../run/target-calls.ts'
import { isDefinition, type ProcessDefinition } from '../../step/definition.ts'
import {
  exitPlace,
  failureOf,
  importFailure,
  type LoadFailure,
  settingsFailure,
} from './load-failure.ts'
import { installModuleHook, ofGeneration } from './module-hook.ts'
import { createSettingsReader } from './process-settings.ts'
import type { ProcessSource } from './process-sources.ts'

export interface LoadedProcesses {
  readonly definitions: ReadonlyMap<string, ProcessDefinition>
  readonly failures: readonly LoadFailure[]
}

/**
 * Returns the loaded processes. A list of definitions is converted to a load result without failures, because no file
 * was loaded.
 */
export const loadedOf = (given: readonly ProcessDefinition[] | LoadedProcesses): LoadedProcesses =>
  'definitions' in given
    ? given
    : {
        definitions: new Map(given.map((definition) => [definition.name, definition])),
        failures: [],
      }

/** The processes of this installation. They are loaded if the setting `PROCESSES` is unset. */
export const BUILT_IN: readonly ProcessSource[] = [
  { kind: 'folder', path: fileURLToPath(new URL('../../processes/', import.meta.url)) },
]

export interface ProcessLoader {
  /**
   * Loads all processes. Each later call reads the changed files again.
   *
   * @throws {StartupError} in the first call, if two files define processes of the same name. The message contains both
   * paths.
   */
  load(): Promise<LoadedProcesses>
  /** The URLs of the user's files that were imported so far, and the URLs at which an import has found no file. */
  readonly files: ReadonlySet<string>
}

export interface LoaderOptions {
  /** The environment variables, which contain the values of the processes' settings. */
  readonly env?: Environment
  /** The variables of the coordinator itself, which processes may not declare. */
  readonly reserved?: readonly string[]
  /** The time limit for loading a file. It is needed because an `await` at the top level of a file may never end. */
  readonly deadlineMs?: number
}

/** Loads the processes of all sources once. @throws {StartupError} as {@link ProcessLoader.load} does. */
export const loadProcesses = async (
  sources: readonly ProcessSource[] = BUILT_IN,
  options?: LoaderOptions,
): Promise<LoadedProcesses> => (await createProcessLoader(sources, options)).load()

export async function createProcessLoader(
  sources: readonly ProcessSource[],
  { env = {}, reserved = [], deadlineMs = DEADLINE_MS }: LoaderOptions = {},
): Promise<ProcessLoader> {
  const packages = new Map<string, string | null>()
  for (const source of sources)
    if (source.kind === 'package') packages.set(source.name, await packageRoot(source.name))
  const roots = [...packages.values()].filter((root) => root !== null)
  const hook = installModuleHook(roots.map((root) => pathToFileURL(root + sep)))
  let generation = -1
  /** For each process name, the file that owns the name: the file from which the process was last loaded. */
  const ownerOf = new Map<string, string>(
    [WEBHOOK_PROCESS, CHANGE_FEED].map((name) => [name, BUILT_IN_FILE]),
  )
  /**
   * For each process name, the file of the running definition. A definition keeps running until it is replaced by
   * another definition of the process.
   */
  const runningFileOf = new Map<string, string>()

  /**
   * Resolves with the exports of a module, or with the failure.
   *
   * @param path the path of the process file as it appears in stacks; differs from `file` if `file` is a symbolic link
   */
  async function importModule(
    file: string,
    path: string,
    specifier: string,
  ): Promise<LoadFailure | { readonly exports: Readonly<Record<string, unknown>> }> {
    const timeout = Promise.withResolvers<never>()
    const late = new Error(`it was not loaded within ${deadlineMs / 1_000} seconds`)
    const timer = setTimeout(() => timeout.reject(late), deadlineMs)
    const isOfUser = (place: string): boolean =>
      place === path || hook.files.has(pathToFileURL(place).href)
    // A call of process.exit() in a file is reported. Otherwise the call would end the coordinator without any message,
    // as if the coordinator had ended normally.
    const onExit = (): void => {
      const place = exitPlace(isOfUser)
      const at = place === null ? '' : ` (at ${place})`
      process.stderr.write(`${file}: process.exit() was called while this was imported${at}\n`)
      process.exitCode ||= 1
    }
    process.once('exit', onExit)
    try {
      const imported = import(specifier) as Promise<Readonly<Record<string, unknown>>>
      return { exports: await Promise.race([imported, timeout.promise]) }
    } catch (error) {
      return importFailure({ file, path }, error, isOfUser)
    } finally {
      clearTimeout(timer)
      process.off('exit', onExit)
    }
  }

  async function loadFile(file: string): Promise<readonly Found[]> {
    let path
    let text
    try {
      path = await realpath(file)
      text = await readFile(path, 'utf8')
    } catch (error) {
      return [failureOf(file, codeOf(error), `the file cannot be read (${codeOf(error)})`)]
    }
    const mustDefine = CALLS_DEFINE.test(text)
    if (!mustDefine && !DEFAULT_EXPORT.test(text)) return []
    const url = ofGeneration(pathToFileURL(path).href, generation)
    const loaded = await importModule(file, path, url)
    if (!('exports' in loaded)) return [loaded]
    const definition = defaultOf(loaded.exports)
    if (isDefinition(definition)) return [{ file, definition }]
    if (hasNoSteps(definition))
      return [failureOf(file, 'no steps', `process ${definition.name} has no steps`)]
    return mustDefine ? [failureOf(file, 'no process', NO_DEFAULT)] : []
  }

  async function loadFolder(path: string): Promise<readonly Found[]> {
    const folder = resolve(path)
    let files
    try {
      files = (await readdir(folder)).filter(isProcessFile).toSorted()
    } catch (error) {
      const code = codeOf(error)
      return [failureOf(folder, code, reasons[code] ?? `the folder cannot be read (${code})`)]
    }
    const found: Found[] = []
    for (const file of files) found.push(...(await loadFile(join(folder, file))))
    return found.length > 0 ? found : [failureOf(folder, EMPTY, 'the folder has no process file')]
  }

  async function loadPackage(name: string): Promise<readonly Found[]> {
    if (packages.get(name) === null)
      return [failureOf(name, 'not found', 'no package of this name is installed')]
    const loaded = await importModule(name, name, hook.packageSpecifier(name, generation))
    if (!('exports' in loaded)) return [loaded]
    const definitions = new Set(Object.values(loaded.exports).filter(isDefinition))
    return definitions.size > 0
      ? [...definitions].map((definition) => ({ file: name, definition }))
      : [failureOf(name, 'no process', 'the package exports no process')]
  }

  return {
    files: hook.files,
    async load() {
      generation += 1
      const found: Found[] = []
      for (const source of sources)
        found.push(
          ...(source.kind === 'folder'
            ? await loadFolder(source.path)
            : await loadPackage(source.name)),
        )
      const running = new Set(runningFileOf.values())
      const reported = (failure: LoadFailure): LoadFailure[] => [
        { ...failure, hasLoadedBefore: running.has(failure.file) },
      ]
      // A process name becomes free when the file that owns it is removed or defines another process.
      for (const [name, file] of ownerOf)
        if (file !== BUILT_IN_FILE && !keepsName(found, file, name)) ownerOf.delete(name)
      const withSettings = createSettingsReader(env, reserved)
      const sharedTargets: SharedTargets = new Map()
      const definitions = new Map<string, ProcessDefinition>()
      const failures = found.flatMap((one) => {
        if (!('definition' in one)) return reported(one)
        const { name } = one.definition
        const owner = ownerOf.get(name)
        if (owner !== undefined && (owner !== one.file || definitions.has(name))) {
          const reason = `two processes have the name ${name}: ${owner} and ${one.file}`
          if (generation === 0) throw new StartupError(reason)
          return reported(failureOf(one.file, 'same name', reason))
        }
        ownerOf.set(name, one.file)
        const bound = withSettings(one.definition)
        if ('faults' in bound) return reported(settingsFailure(one.file, bound.faults))
        const conflict = conflictOf(sharedTargets, bound, one.file)
        if (conflict !== null) return reported(failureOf(one.file, 'target differs', conflict))
        definitions.set(name, bound)
        runningFileOf.set(name, one.file)
        return []
      })
      return { definitions, failures }
    },
  }
}

/** The limits of the shared targets, with the file of the first process that uses each of them. */
type SharedTargets = Map<string, { readonly limits: TargetLimits | null; readonly file: string }>

/**
 * Adds the shared targets of a process. If another process uses a target of the same name with other limits, returns the
 * reason for which the process is not loaded: the calls of both would be counted together.
 */
function conflictOf(
  known: SharedTargets,
  { bound }: ProcessDefinition,
  file: string,
): string | null {
  const shared = [...(bound?.targets.values() ?? [])].flatMap(({ shared: name, limits }) =>
    name === null ? [] : [{ name, limits }],
  )
  for (const { name, limits } of shared) {
    const first = known.get(name)
    if (first !== undefined && !isDeepStrictEqual(first.limits, limits))
      return `the shared target ${name} has other limits here than in ${first.file}: define it once, and import it`
    known.set(name, first ?? { limits, file })
  }
  return null
}

type Found = LoadFailure | { readonly file: string; readonly definition: ProcessDefinition }

const DEADLINE_MS = 10_000
const BUILT_IN_FILE = 'the coordinator itself'

/**
 * Whether the file keeps the name of its process. A file keeps the name if it still defines the process, or if the file
 * or its folder cannot be read: the last version then keeps running. If a folder can be read but contains no process
 * files, the files were removed, so no name is kept.
 */
const keepsName = (found: readonly Found[], file: string, name: string): boolean =>
  found.some((one) =>
    'definition' in one
      ? one.file === file && one.definition.name === name
      : one.file === file || (one.file === dirname(file) && one.kind !== EMPTY),
  )
/** Returns the default export of a module, also of a CommonJS module that a compiler has made of an ES module. */
function defaultOf(exported: Readonly<Record<string, unknown>>): unknown {
  const given = exported['default'] as Readonly<Record<string, unknown>> | null | undefined
  return given?.['__esModule'] === true ? given['default'] : given
}

const EMPTY = 'empty'
const NO_DEFAULT = 'it must export what defineProcess returns as its default'
const CALLS_DEFINE = /\bdefineProcess\s*[(<]/
const DEFAULT_EXPORT =
  /\bexport\s+default\b|\bexport\s*\{[^{}]*\bdefault\b|\bas\s+default\b|\bmodule\.exports\s*=|\bexports\.default\s*=/

/** Matches hidden files such as `.#a.ts` and `._a.ts`, which editors and macOS create beside a file. */
export const isProcessFile = (file: string): boolean =>
  !file.startsWith('.') &&
  /\.[cm]?[jt]s$/.test(file) &&
  !/\.(?:test|test-d|d)\.[cm]?[jt]s$/.test(file)

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'the folder does not exist',
  ENOTDIR: 'it is not a folder',
}

export const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? 'unknown'

async function packageRoot(name: string): Promise<string | null> {
  try {
    const manifest = findPackageJSON(name, pathToFileURL(`${process.cwd()}${sep}`))
    return manifest === undefined ? null : await realpath(dirname(manifest))
  } catch {
    return null
  }
}

/** Whether a value is a process definition that has no step yet, as `defineProcess` returns it. */
const hasNoSteps = (value: unknown): value is { readonly name: string } =>
  typeof value === 'object' &&
  value !== null &&
  'step' in value &&
  typeof value.step === 'function' &&
  'name' in value &&
  typeof value.name === 'string'
