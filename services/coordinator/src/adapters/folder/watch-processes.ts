/**
 * Loads processes, and reloads them after each change of a process file or of a file that a process file imports.
 *
 * The files are compared at intervals instead of with file events, because the operating system loses such events on
 * network file systems and in mounted folders.
 */
import { readdirSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import {
  codeOf,
  createProcessLoader,
  isProcessFile,
  type LoadedProcesses,
  type LoaderOptions,
} from './processes.ts'
import type { ProcessSource } from './process-sources.ts'

/**
 * The interval between comparisons. A change is loaded when two comparisons in a row see the same state of the files.
 */
const CHECK_MS = 200

/**
 * Calls `onChange` after each change with the loaded processes and the failures. The next change is loaded only when
 * `onChange` has finished. `onError` gets the error if a change could not be loaded or `onChange` rejects; later
 * changes are loaded nevertheless.
 */
export type WatchProcesses = (
  onChange: (loaded: LoadedProcesses) => Promise<void>,
  onError: (error: unknown) => void,
) => AsyncDisposable

export interface WatchableProcesses {
  readonly loaded: LoadedProcesses
  readonly watch: WatchProcesses
}

/** Loads the processes of all sources. @throws {StartupError} if two processes have the same name. */
export async function loadWatchableProcesses(
  sources: readonly ProcessSource[],
  options: LoaderOptions,
): Promise<WatchableProcesses> {
  const loader = await createProcessLoader(sources, options)
  /** For each file, its state before it was loaded. */
  let known = stateOf(sources, [])

  async function load(found: FileStates): Promise<LoadedProcesses> {
    const loaded = await loader.load()
    // A file that was imported for the first time has no known state from before the load, so its state after the load
    // is used.
    known = new Map([...stateOf([], loader.files), ...found])
    return loaded
  }

  return {
    loaded: await load(known),
    watch(onChange, onError) {
      const shutdown = new AbortController()
      const { signal } = shutdown
      const watching = (async () => {
        let previous = known
        while (!signal.aborted) {
          await sleep(CHECK_MS, null, { signal }).catch(() => {})
          const found = stateOf(sources, loader.files)
          // The change is loaded only when the files have stopped changing, because an editor may write a file in
          // several steps.
          const isSettled = !differs(previous, found)
          previous = found
          if (signal.aborted || !isSettled || !differs(known, found)) continue
          try {
            await onChange(await load(found))
          } catch (error) {
            known = new Map([...known, ...found])
            onError(error)
          }
        }
      })()
      return {
        async [Symbol.asyncDispose]() {
          shutdown.abort()
          await watching
        },
      }
    },
  }
}

/**
 * Maps the path of each file to a text that changes whenever the file changes, and each folder to the names of its
 * process files.
 */
type FileStates = ReadonlyMap<string, string>

function stateOf(sources: readonly ProcessSource[], files: Iterable<string>): FileStates {
  const states = new Map<string, string>()
  for (const source of sources) {
    if (source.kind === 'package') continue
    const folder = resolve(source.path)
    const names = processFilesOf(folder)
    states.set(folder, names.join('/'))
    for (const name of names) states.set(join(folder, name), stampOf(join(folder, name)))
  }
  for (const url of files) states.set(fileURLToPath(url), stampOf(fileURLToPath(url)))
  return states
}

const differs = (before: FileStates, after: FileStates): boolean =>
  [...after].some(([path, state]) => before.get(path) !== state)

function processFilesOf(folder: string): readonly string[] {
  try {
    return readdirSync(folder).filter(isProcessFile).toSorted()
  } catch {
    return []
  }
}

/**
 * Returns a text that changes whenever the file changes. If the file cannot be read, the text is the error code: for
 * example `ENOENT`, or `ELOOP` for a link that refers to itself.
 */
function stampOf(path: string): string {
  try {
    const { ino, size, mtimeNs, ctimeNs } = statSync(path, { bigint: true })
    return `${ino} ${size} ${mtimeNs} ${ctimeNs}`
  } catch (error) {
    return codeOf(error)
  }
}
