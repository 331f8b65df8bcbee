import { readFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { fileURLToPath } from 'node:url'
import { shortText } from '../../step/judge-call.ts'
import { withoutGeneration } from './module-hook.ts'

/** The reason why a process file or a package could not be loaded. The processes of this file or package do not run. */
export interface LoadFailure {
  /** The path of the file or folder, or the name of the package. */
  readonly file: string
  /** The line of the file at which loading fails; `null` if the fault has no line. */
  readonly line: number | null
  /** The fault in one line. The text may contain the message of an error that the file throws. */
  readonly reason: string
  /** The kind of the fault, such as `SyntaxError`. It contains no text of the file. */
  readonly kind: string
  /**
   * True if an earlier version of the file was loaded: the processes of that version keep running. Set only when files
   * are loaded again.
   */
  readonly hasLoadedBefore?: boolean
  /** For faults of settings: one line per faulty variable, without the value of the variable. */
  readonly settings: readonly string[]
}

/** Returns a load failure that has no line number. */
export const failureOf = (file: string, kind: string, reason: string): LoadFailure => ({
  file,
  line: null,
  reason,
  kind,
  settings: [],
})

/** Returns the failure of a process with wrong or missing settings. `faults` has one line per variable. */
export const settingsFailure = (file: string, faults: readonly string[]): LoadFailure => ({
  file,
  line: null,
  reason: `its settings are not usable: ${faults.join('; ')}`,
  kind: 'settings',
  settings: faults,
})

interface Place {
  readonly path: string
  readonly line: number
}

/**
 * Returns why importing a process file failed. If the fault is in another file that the process file imports, the
 * reason contains the path and line of that other file.
 *
 * @param file the path to report. `path` is the path of the same file with symbolic links resolved, as in stack traces.
 * @param isOfUser returns true for the path of the process file, and for the path of a file that the process file
 * imports
 */
export function importFailure(
  { file, path }: { readonly file: string; readonly path: string },
  error: unknown,
  isOfUser: (path: string) => boolean,
): LoadFailure {
  const thrown = describe(error)
  const { kind, message } = thrown
  const text = `${kind}: ${withEndExplained(message.split('\n', 1)[0] ?? '')}`
  const place = placeOf(path, thrown, isOfUser)
  const isElsewhere = place !== null && place.path !== path
  return {
    file,
    line: isElsewhere ? null : (place?.line ?? null),
    reason: shortText(isElsewhere ? `${text} (at ${place.path}:${place.line})` : text),
    kind,
    settings: [],
  }
}

/**
 * Adds an explanation to an error message about the end of a file, because Node's parser reports a missing closing
 * bracket only there.
 */
const withEndExplained = (message: string): string =>
  message.endsWith("got '<eof>'")
    ? `${message}: the file ends before a bracket, parenthesis or brace is closed`
    : message

/**
 * Returns the path and line at which a file of the user has called `process.exit()`; `null` if no file of the user has
 * called it. Must be called by a listener of `exit`, because such a listener runs on the stack of the call of
 * `process.exit()`.
 */
export function exitPlace(isOfUser: (path: string) => boolean): string | null {
  const place = placeInStack(describe(new Error('exit')).stack, isOfUser)
  return place === null ? null : `${place.path}:${place.line}`
}

/**
 * An error that a process file has thrown, as texts. The query parameter `generation` is removed from the URLs in these
 * texts.
 */
interface Thrown {
  readonly kind: string
  readonly message: string
  readonly stack: string
  readonly isSyntaxError: boolean
}

/** Files can throw any value, even one that throws when it is converted to text. */
function describe(error: unknown): Thrown {
  try {
    const isError = error instanceof Error
    return {
      kind: isError && NAME.test(error.name) ? error.name : 'Error',
      message: withoutGeneration(String(isError ? error.message : error)),
      stack: withoutGeneration(String(isError ? error.stack : '')),
      isSyntaxError: error instanceof SyntaxError,
    }
  } catch {
    return {
      kind: 'Error',
      message: 'a value that has no text was thrown',
      stack: '',
      isSyntaxError: false,
    }
  }
}

function placeOf(
  processFile: string,
  { message, stack, isSyntaxError }: Thrown,
  isOfUser: (path: string) => boolean,
): Place | null {
  const { specifier, importer } = NOT_FOUND.exec(message)?.groups ?? {}
  if (specifier !== undefined && importer !== undefined) return importIn(importer, specifier)
  return placeInStack(stack, isOfUser) ?? (isSyntaxError ? syntaxError(processFile) : null)
}

function placeInStack(stack: string, isOfUser: (path: string) => boolean): Place | null {
  for (const text of stack.split('\n')) {
    const position = POSITION.exec(text)
    const url = URL_BEFORE.exec(text.slice(0, position?.index ?? 0))?.[1]
    const path = url === undefined ? null : pathOf(url)
    if (path !== null && isOfUser(path)) return { path, line: Number(position?.[1]) }
  }
  return null
}

/**
 * The kind of a fault is readable without a service key. Therefore it must not contain arbitrary text that a file
 * throws.
 */
const NAME = /^[A-Za-z]{1,40}$/
const NOT_FOUND =
  /^Cannot find (?:module|package) '(?<specifier>[^']+)' imported from (?<importer>.+)$/
/**
 * Match a location in a line of a stack, which is a frame, or the first line of a syntax error, where the location has
 * no column. One expression for both parts would take quadratic time.
 */
const POSITION = /:(\d+)(?::\d+)?\)?(?=,|$)/
const URL_BEFORE = /(?:^|\(|at )((?:file:\/\/)?\/.+)/

const pathOf = (url: string): string | null => {
  if (!url.startsWith('file:')) return url
  return URL.canParse(url) ? fileURLToPath(url) : null
}

/**
 * Returns the line of the file `path` that imports the module `specifier`, which was not found. For a relative import,
 * Node's error contains the full path of the module instead of the specifier in the import, so only the file name is
 * searched for.
 */
function importIn(path: string, specifier: string): Place | null {
  const name = specifier.split(/[/\\]/).at(-1) ?? specifier
  const wanted = specifier.startsWith('/') ? name : specifier
  const lines = textOf(path)?.split('\n') ?? []
  const index = lines.findIndex((line) => /['"]/.test(line) && line.includes(wanted))
  return index === -1 ? null : { path, line: index + 1 }
}

/**
 * Returns the place of a syntax error. A JavaScript file is parsed as TypeScript here, because only Node's TypeScript
 * parser reports a line.
 */
function syntaxError(path: string): Place | null {
  try {
    stripTypeScriptTypes(textOf(path) ?? '')
    return null
  } catch (error) {
    const line = /^[^\n]*:(\d+)\n/.exec((error as Error).stack ?? '')?.[1]
    return line === undefined ? null : { path, line: Number(line) }
  }
}

function textOf(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}
