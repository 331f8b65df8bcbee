import { readdir, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { FileToWrite, WriteFailure } from './file-writer.ts'

/**
 * Writes a file whole or not at all: a temporary file beside it, flushed, renamed over it, the folder
 * flushed. Whoever opens the path sees the old content or the new, also after a power cut. The folder is made
 * when it is missing.
 *
 * @throws an error with the system's `code`. The file is then as it was, unless the folder could not be flushed
 * or the writing thread was lost (`EIO`): then nobody knows.
 */
export async function writeWholeFile(path: string, content: string): Promise<void> {
  // A process need not be checked for types, and what no message can carry must fail here, and alone.
  if (typeof content !== 'string') throw new TypeError('a file is written from a string')
  const temporary = `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`
  const file = { path, temporary, content }
  const failure = await write(file)
  if (failure !== null) throw Object.assign(new Error(failure.message), { code: failure.code })
}

/**
 * Removes what writers of this path left when they were killed. It reads the whole folder: for a second
 * attempt, not for every write. A writer that still lives fails, and leaves the file as it is.
 */
export async function removeStrays(path: string): Promise<void> {
  const name = basename(path)
  const entries = await readdir(dirname(path)).catch((error: unknown) => {
    // They were killed before it was made.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  })
  for (const entry of entries)
    if (entry.startsWith(name) && STRAY.test(entry.slice(name.length)))
      await rm(join(dirname(path), entry), { force: true })
}
const STRAY = /^\.[0-9a-f]{8}\.tmp$/

type Result = WriteFailure | null

interface Waiting {
  readonly file: FileToWrite
  readonly resolve: (result: Result) => void
}

interface FileThread {
  readonly worker: Worker
  /** What it was given last and has not answered. */
  inHand: readonly Waiting[]
}

const MAX_THREADS = 4
/** As long as no folder hangs, one thread does. */
const PATIENCE_MS = 250
const MAX_BATCH = 200

const threads = new Set<FileThread>()
const waiting: Waiting[] = []
let handedOutAt = 0
let impatience: NodeJS.Timeout | undefined

function write(file: FileToWrite): Promise<Result> {
  return new Promise((resolve) => {
    waiting.push({ file, resolve })
    if (waiting.length === 1) setImmediate(handOut)
  })
}

/**
 * Gives all that waits to one thread, which makes the calls one after the other: a message for many files. A call each
 * over Node's own thread pool, five to a file, was a sixth of the main thread's time under load. Another thread helps
 * when that one takes long: a disk may be slow, and a folder that hangs must not hold up the others.
 */
function handOut(): void {
  clearTimeout(impatience)
  if (waiting.length === 0) return
  const all = [...threads]
  const isBusy = all.some(({ inHand }) => inHand.length > 0)
  const patienceMs = isBusy ? handedOutAt + PATIENCE_MS - performance.now() : 0
  if (patienceMs > 0) {
    impatience = setTimeout(handOut, patienceMs)
    return
  }
  const free = all.find(({ inHand }) => inHand.length === 0)
  if (free === undefined && all.length >= MAX_THREADS) return
  const thread = free ?? startThread()
  thread.inHand = waiting.splice(0, MAX_BATCH)
  handedOutAt = performance.now()
  thread.worker.postMessage(thread.inHand.map(({ file }) => file))
  thread.worker.ref()
  handOut()
}

function startThread(): FileThread {
  // Without the options of this process, which are not about a thread that only writes.
  const worker = new Worker(new URL('file-thread.ts', import.meta.url), {
    name: 'files',
    env: {},
    execArgv: [],
  })
  const thread: FileThread = { worker, inHand: [] }
  threads.add(thread)
  const settle = (resultOf: (index: number) => Result): void => {
    const done = thread.inHand
    thread.inHand = []
    done.forEach(({ resolve }, index) => resolve(resultOf(index)))
    handOut()
  }
  worker.on('message', (results: Result[]) => {
    worker.unref() // a thread without work keeps no process alive
    settle((index) => results[index] ?? null)
  })
  const end = (error: Error): void => {
    threads.delete(thread)
    settle(() => ({
      code: 'EIO',
      message: `the thread that writes files is gone: ${error.message}`,
    }))
  }
  worker.on('error', (error: Error) => end(error))
  worker.on('exit', () => end(new Error('it has ended')))
  return thread
}
