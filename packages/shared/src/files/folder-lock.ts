import { closeSync, openSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { DatabaseSync } from 'node:sqlite'
import { StartupError } from '../process/lifecycle.ts'

const SQLITE_BUSY = 5
/** How long to wait for the lock: two processes that start at the same moment can see each other acquiring it. */
const BUSY_MS = 200

/**
 * Makes this process the only writer of a store, until it releases the lock or ends. The lock is a kernel file lock,
 * which SQLite acquires for an exclusive transaction: Node has no API for one. The kernel releases it however the
 * process ends, and keeps it while the process is suspended, so no timeout has to be guessed.
 *
 * @param file the store's main file, which need not exist yet. The empty lock file `<file>.lock.sqlite` beside it is never
 *   removed: otherwise two processes could lock two different files of that name. Nothing else in this process may
 *   open it: closing any of its descriptors releases the lock (fcntl(2)).
 * @returns the function that releases the lock. Keep a reference to it as long as the lock is needed; calling it twice
 *   does nothing.
 * @throws {StartupError} naming the folder, if another process has the lock or the folder cannot be written.
 */
export async function lockFolder(folder: string, file: string): Promise<() => void> {
  const path = `${file}.lock.sqlite`
  const cannot = (error: unknown): StartupError =>
    new StartupError(`the data folder ${folder} cannot be used: ${(error as Error).message}`)
  await mkdir(folder, { recursive: true, mode: 0o700 }).catch((error: unknown) =>
    Promise.reject(cannot(error)),
  )
  try {
    // SQLite could create the file too, but its error would not say why that failed. The calls are synchronous, so that
    // no other code of this process opens and closes the file between them.
    closeSync(openSync(path, 'wx', 0o600))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw cannot(error)
  }
  let database: DatabaseSync | undefined
  try {
    database = new DatabaseSync(path, { timeout: BUSY_MS })
    // The transaction writes, because for a read-only file SQLite silently takes a shared lock only.
    database.exec('pragma journal_mode = memory; begin exclusive; pragma user_version = 1')
  } catch (error) {
    database?.close()
    const { errcode, message } = error as { readonly errcode?: number; readonly message: string }
    if (errcode !== SQLITE_BUSY) throw cannot(new Error(`${path}: ${message}`))
    throw new StartupError(
      `the data folder ${folder} is in use by another process: stop it, or set DATA_DIR to another folder`,
    )
  }
  const held = database
  return () => {
    if (held.isOpen) held.close()
  }
}
