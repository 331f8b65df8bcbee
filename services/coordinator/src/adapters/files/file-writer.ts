/**
 * Writes files for `writeWholeFile`, on a thread of its own, where calls that block are the cheapest. Many files
 * cost one flush of their folder.
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
  /** The system's, such as `ENOSPC`. */
  readonly code: string
  readonly message: string
}

/** A file on its way: open until it is flushed. */
interface Underway {
  readonly file: FileToWrite
  descriptor: number | null
  failure: WriteFailure | null
}

/** A disk that takes its time takes it for several flushes at once; in memory one after the other is cheaper. */
const SLOW_FLUSH_MS = 0.2

/** Writes each file whole or not at all, its folder made when it is missing; a result for each, null when it is written. */
export async function writeFiles(files: readonly FileToWrite[]): Promise<(WriteFailure | null)[]> {
  const all = files.map((file): Underway => ({ file, descriptor: null, failure: null }))
  for (const one of all) attempt(one, open)
  const [first, ...others] = all
  const startedAt = performance.now()
  if (first !== undefined) attempt(first, flush)
  if (performance.now() - startedAt < SLOW_FLUSH_MS) for (const one of others) attempt(one, flush)
  else await Promise.all(others.map(flushBeside))
  for (const one of all) attempt(one, close)
  for (const one of all) attempt(one, ({ file }) => fs.renameSync(file.temporary, file.path))
  const folders = Map.groupBy(all, ({ file }) => dirname(file.path))
  for (const [folder, inIt] of folders) flushFolder(folder, inIt)
  return all.map(({ failure }) => failure)
}

/** Does its part for a file that nothing has gone wrong with; one that fails leaves nothing behind. */
function attempt(one: Underway, part: (one: Underway) => void): void {
  if (one.failure !== null) return
  try {
    part(one)
  } catch (error) {
    give(one, error)
  }
}

function give(one: Underway, error: unknown): void {
  const { code, message } = error as NodeJS.ErrnoException
  one.failure = { code: code ?? 'UNKNOWN', message }
  try {
    close(one)
    fs.rmSync(one.file.temporary, { force: true })
  } catch {
    // What went wrong first is what counts.
  }
}

function open(one: Underway): void {
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

/** Makes a folder and those that lead to it; after a power cut they are there as the files in them are. */
function makeFolder(folder: string): void {
  const last = resolve(folder)
  const first = resolve(fs.mkdirSync(last, { recursive: true }) ?? last)
  try {
    for (let made = last; made.length >= first.length; made = dirname(made))
      syncFolder(dirname(made))
  } catch (error) {
    // Or the next attempt would find it, and say that all is well.
    try {
      for (let made = last; made.length >= first.length; made = dirname(made)) fs.rmdirSync(made)
    } catch {
      // Somebody has written there meanwhile. What went wrong first is what counts.
    }
    throw error
  }
}

function flush({ descriptor }: Underway): void {
  if (descriptor !== null) fs.fsyncSync(descriptor)
}

async function flushBeside(one: Underway): Promise<void> {
  if (one.failure !== null || one.descriptor === null) return
  try {
    await promisify(fs.fsync)(one.descriptor)
  } catch (error) {
    give(one, error)
  }
}

function close(one: Underway): void {
  const { descriptor } = one
  one.descriptor = null
  if (descriptor !== null) fs.closeSync(descriptor)
}

/** Makes the renames in a folder durable; when that fails, nobody knows whether they are. */
function flushFolder(folder: string, files: readonly Underway[]): void {
  if (files.every(({ failure }) => failure !== null)) return
  try {
    syncFolder(folder)
  } catch (error) {
    // Linux tells of a failed write once: the next flush would say that all is well.
    for (const one of files) if (one.failure === null) give(one, error)
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
