/**
 * Writes batches of files on the threads that `createThreadedFiles` starts. The threads use blocking calls, because
 * these cost less than asynchronous ones. The files of a batch that are in the same folder share one flush of that
 * folder.
 */
import fs from 'node:fs'
import { dirname, resolve } from 'node:path'
import { promisify } from 'node:util'

export interface FileToWrite {
  readonly path: string
  readonly temporary: string
  readonly content: string
}

export interface WriteFailure {
  /** The error code of the operating system, such as `ENOSPC`. */
  readonly code: string
  readonly message: string
}

/** A file that is being written. `descriptor` is `null` before the file is opened and after it is closed. */
interface OpenFile {
  readonly file: FileToWrite
  descriptor: number | null
  failure: WriteFailure | null
}

/**
 * If one fsync takes longer than this many milliseconds, the remaining fsyncs of the batch run concurrently. Otherwise
 * they run one after the other, because that costs less on fast storage.
 */
const SLOW_FLUSH_MS = 0.2

/**
 * Writes each file atomically and creates its folder if it is missing. Returns one result per file; `null`
 * means success.
 */
export async function writeFiles(files: readonly FileToWrite[]): Promise<(WriteFailure | null)[]> {
  const all = files.map((file): OpenFile => ({ file, descriptor: null, failure: null }))
  for (const one of all) attempt(one, open)
  const [first, ...others] = all
  const startedAt = performance.now()
  if (first !== undefined) attempt(first, flush)
  if (performance.now() - startedAt < SLOW_FLUSH_MS) for (const one of others) attempt(one, flush)
  else await Promise.all(others.map(flushConcurrently))
  for (const one of all) attempt(one, close)
  for (const one of all) attempt(one, ({ file }) => fs.renameSync(file.temporary, file.path))
  const folders = Map.groupBy(all, ({ file }) => dirname(file.path))
  for (const [folder, inIt] of folders) flushFolder(folder, inIt)
  return all.map(({ failure }) => failure)
}

/**
 * Runs one operation (open, flush, close or rename) on a file, unless an earlier operation on that file has
 * failed.
 */
function attempt(one: OpenFile, part: (one: OpenFile) => void): void {
  if (one.failure !== null) return
  try {
    part(one)
  } catch (error) {
    fail(one, error)
  }
}

function fail(one: OpenFile, error: unknown): void {
  const { code, message } = error as NodeJS.ErrnoException
  one.failure = { code: code ?? 'UNKNOWN', message }
  try {
    close(one)
    fs.rmSync(one.file.temporary, { force: true })
  } catch {
    // Closing or removing the temporary file has failed too. This second error is ignored, because the caller gets the
    // first error.
  }
}

function open(one: OpenFile): void {
  const { temporary, content } = one.file
  one.descriptor = openNew(temporary)
  fs.writeFileSync(one.descriptor, content)
}

function openNew(path: string): number {
  try {
    return fs.openSync(path, 'wx', 0o600)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    makeFolder(dirname(path))
    return fs.openSync(path, 'wx', 0o600)
  }
}

/**
 * Creates a folder and its missing parents, and flushes each parent. Without the flush, the new folder could disappear
 * in a power failure together with its files.
 */
function makeFolder(folder: string): void {
  const last = resolve(folder)
  const first = resolve(fs.mkdirSync(last, { recursive: true }) ?? last)
  try {
    for (let made = last; made.length >= first.length; made = dirname(made))
      syncFolder(dirname(made))
  } catch (error) {
    // The new folders are removed again. If they remained, the next attempt would find them and report success without
    // flushing their parents. A power failure could then still remove the folders.
    try {
      for (let made = last; made.length >= first.length; made = dirname(made)) fs.rmdirSync(made)
    } catch {
      // This error is ignored: the folder remains, because another writer has already put a file into it. The caller
      // gets the error of the failed flush.
    }
    throw error
  }
}

function flush({ descriptor }: OpenFile): void {
  if (descriptor !== null) fs.fsyncSync(descriptor)
}

async function flushConcurrently(one: OpenFile): Promise<void> {
  if (one.failure !== null || one.descriptor === null) return
  try {
    await promisify(fs.fsync)(one.descriptor)
  } catch (error) {
    fail(one, error)
  }
}

function close(one: OpenFile): void {
  const { descriptor } = one
  one.descriptor = null
  if (descriptor !== null) fs.closeSync(descriptor)
}

/**
 * Makes the renames in a folder durable by flushing the folder. If the flush fails, the files of the folder are
 * reported as failed, because they may not be durable.
 */
function flushFolder(folder: string, files: readonly OpenFile[]): void {
  if (files.every(({ failure }) => failure !== null)) return
  try {
    syncFolder(folder)
  } catch (error) {
    // Linux reports a write error to only one fsync. If the fsync were repeated, it would succeed although data was
    // lost. Therefore one failed fsync is enough to report the files as failed.
    for (const one of files) if (one.failure === null) fail(one, error)
  }
}

function syncFolder(folder: string): void {
  const descriptor = fs.openSync(folder, 'r')
  try {
    fs.fsyncSync(descriptor)
  } finally {
    fs.closeSync(descriptor)
  }
}
