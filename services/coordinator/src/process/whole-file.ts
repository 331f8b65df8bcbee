import { readdir, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { grouped } from '@integration-host/shared/grouped'
import type { FileToWrite, WriteFailure } from './file-writer.ts'

/**
 * Writes a file whole or not at all: a temporary file beside it, flushed, renamed over it, the folder
 * flushed. Whoever opens the path sees the old content or the new, also after a power cut. The folder is made
 * when it is missing.
 *
 * @throws the system's error; the file is then as it was.
 */
export async function writeWholeFile(path: string, content: string): Promise<void> {
  const temporary = `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`
  const failure = await write({ path, temporary, content })
  if (failure !== null) throw Object.assign(new Error(failure.message), { code: failure.code })
}

/**
 * Removes what writers of this path left when they were killed. It reads the whole folder: for a second
 * attempt, not for every write. A writer that still lives fails, and leaves the file as it is.
 */
export async function removeStrays(path: string): Promise<void> {
  const name = basename(path)
  for (const entry of await readdir(dirname(path)))
    if (entry.startsWith(name) && STRAY.test(entry.slice(name.length)))
      await rm(join(dirname(path), entry), { force: true })
}
const STRAY = /^\.[0-9a-f]{8}\.tmp$/

// Not tried again: of a file whose fate is not known, the step has to decide.
const write = grouped<FileToWrite, WriteFailure | null>((files) => writeAll(files), {
  retries: false,
})

/** A thread that writes, and what to do with its next answer. */
interface Writer {
  readonly thread: Worker
  settle: { resolve(results: (WriteFailure | null)[]): void; reject(error: Error): void } | null
}

let writer: Writer | null = null

function writeAll(files: readonly FileToWrite[]): Promise<(WriteFailure | null)[]> {
  const current = (writer ??= startWriter())
  return new Promise((resolve, reject) => {
    current.settle = { resolve, reject }
    current.thread.postMessage(files)
    current.thread.ref()
  })
}

/**
 * One message for many files, to a thread that makes the calls one after the other. A call each over Node's own
 * thread pool, five to a file, was a sixth of the main thread's time under load.
 */
function startWriter(): Writer {
  // Without the options of this process, which are not about a thread that only writes.
  const thread = new Worker(new URL('file-thread.ts', import.meta.url), {
    name: 'files',
    env: {},
    execArgv: [],
  })
  const started: Writer = { thread, settle: null }
  thread.on('message', (results: (WriteFailure | null)[]) => {
    thread.unref() // a thread without work keeps no process alive
    started.settle?.resolve(results)
  })
  const end = (error: Error): void => {
    if (writer === started) writer = null
    started.settle?.reject(error)
  }
  thread.on('error', (error: Error) => end(error))
  thread.on('exit', () => end(new Error('the thread that writes files is gone')))
  return started
}
