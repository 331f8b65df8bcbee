import { readdir, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { Files } from '../../step/files.ts'
import type { FileToWrite, WriteFailure } from './file-writer.ts'

type Result = WriteFailure | null

interface PendingWrite {
  readonly file: FileToWrite
  readonly resolve: (result: Result) => void
}

interface WriterThread {
  readonly worker: Worker
  /** The batch that was sent to the thread and has no result yet. */
  inFlight: readonly PendingWrite[]
}

const MAX_THREADS = 4
/** Another thread starts only if the batch in flight takes longer than this many milliseconds. */
const SLOW_BATCH_MS = 250
const MAX_BATCH = 200

/**
 * Writes the files of steps atomically on writer threads. The first thread starts when the first file is written;
 * disposal terminates idle threads.
 *
 * All pending files are sent to one thread as one message, and the thread makes its blocking calls one after the
 * other. With Node's own thread pool, the five calls for each file took a sixth of the main thread's time under
 * load. If a batch is slow, another thread starts, so that a folder that hangs does not block other files.
 */
export function createThreadedFiles(): Files & AsyncDisposable {
  const threads = new Set<WriterThread>()
  const pending: PendingWrite[] = []
  let lastDispatchAt = 0
  let slowBatchTimer: NodeJS.Timeout | undefined

  function write(file: FileToWrite): Promise<Result> {
    return new Promise((resolve) => {
      pending.push({ file, resolve })
      if (pending.length === 1) setImmediate(dispatch)
    })
  }

  function dispatch(): void {
    clearTimeout(slowBatchTimer)
    if (pending.length === 0) return
    const all = [...threads]
    const isBusy = all.some(({ inFlight }) => inFlight.length > 0)
    const waitMs = isBusy ? lastDispatchAt + SLOW_BATCH_MS - performance.now() : 0
    if (waitMs > 0) {
      slowBatchTimer = setTimeout(dispatch, waitMs)
      return
    }
    const idle = all.find(({ inFlight }) => inFlight.length === 0)
    if (idle === undefined && all.length >= MAX_THREADS) return
    const thread = idle ?? startThread()
    thread.inFlight = pending.splice(0, MAX_BATCH)
    lastDispatchAt = performance.now()
    thread.worker.postMessage(thread.inFlight.map(({ file }) => file))
    thread.worker.ref()
    dispatch()
  }

  function startThread(): WriterThread {
    // The thread only writes files, so it inherits neither the environment variables nor the Node options of the
    // coordinator.
    const worker = new Worker(new URL('file-writer.worker.ts', import.meta.url), {
      name: 'files',
      env: {},
      execArgv: [],
    })
    const thread: WriterThread = { worker, inFlight: [] }
    threads.add(thread)
    const settle = (resultOf: (index: number) => Result): void => {
      const settled = thread.inFlight
      thread.inFlight = []
      settled.forEach(({ resolve }, index) => resolve(resultOf(index)))
      dispatch()
    }
    worker.on('message', (results: Result[]) => {
      worker.unref() // an idle thread must not keep the coordinator from exiting
      settle((index) => results[index] ?? null)
    })
    const end = (error: Error): void => {
      threads.delete(thread)
      settle(() => ({ code: 'EIO', message: `the file writer thread was lost: ${error.message}` }))
    }
    worker.on('error', (error: Error) => end(error))
    worker.on('exit', () => end(new Error('it has exited')))
    return thread
  }

  return {
    async writeAtomic(path, content) {
      // Process files are not necessarily type-checked, so a step may pass content of any type. A value that
      // cannot be sent to the thread must fail here, without failing the other files of its batch.
      if (typeof content !== 'string') throw new TypeError('the content of a file must be a string')
      const failure = await write({ path, temporary: temporaryPath(path), content })
      if (failure !== null) throw Object.assign(new Error(failure.message), { code: failure.code })
    },
    removeTemporaryFiles,
    async [Symbol.asyncDispose]() {
      // A thread that is still writing is not terminated, because it would leave a temporary file behind.
      const idle = [...threads].filter(({ inFlight }) => inFlight.length === 0)
      await Promise.all(idle.map(({ worker }) => worker.terminate()))
    },
  }
}

/**
 * Returns a unique temporary path in the folder of the file, because a rename is atomic only within one file system.
 */
const temporaryPath = (path: string): string => `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`

const TEMPORARY = /^\.[0-9a-f]{8}\.tmp$/

/** Implements `Files.removeTemporaryFiles`. */
async function removeTemporaryFiles(path: string): Promise<void> {
  const name = basename(path)
  const entries = await readdir(dirname(path)).catch((error: unknown) => {
    // The folder may not exist, because the writers may have been killed before they created it.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  })
  for (const entry of entries)
    if (entry.startsWith(name) && TEMPORARY.test(entry.slice(name.length)))
      await rm(join(dirname(path), entry), { force: true })
}
