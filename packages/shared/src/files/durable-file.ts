import { open, rename, rm, mkdir } from 'node:fs/promises'
import { dirname } from 'node:path'
import { closeSync, openSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { StartupError } from '../process/lifecycle.ts'

export interface WriteOptions {
  /** Permissions of the file; 0600 by default, because most files written this way hold credentials. */
  readonly mode?: number
  /**
   * User and group that own the file; by default the user and group of this process. Only root can set other owners.
   */
  readonly owner?: { readonly uid: number; readonly gid: number }
}

/**
 * Replaces the content of a file atomically. Every reader sees either the whole old content or the whole new content,
 * even after a crash or a power failure.
 *
 * The content is written to `<path>.tmp`. This temporary file is flushed before it is renamed, because otherwise a
 * power failure could leave an empty file under the final name. The folder is flushed last, which makes the rename
 * durable. Two writes of the same path must not overlap, because both would use the same temporary file.
 *
 * @throws the file system's error if an operation fails. The previous content is then still in place, unless only the
 * flush of the folder failed.
 */
export async function writeFileAtomic(
  path: string,
  content: string | Uint8Array,
  { mode = 0o600, owner }: WriteOptions = {},
): Promise<void> {
  const temporary = `${path}.tmp`
  try {
    const file = await open(temporary, 'w', mode)
    try {
      // If a crash has left the temporary file behind, opening the file does not change its permissions. Therefore the
      // permissions are set here.
      await file.chmod(mode)
      if (owner !== undefined) await file.chown(owner.uid, owner.gid)
      await file.writeFile(content)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  await syncFolder(dirname(path))
}

/**
 * Flushes a folder. After that, a power failure cannot undo the creation, renaming or removal of a file in the folder.
 */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path)
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

const SQLITE_BUSY = 5
/**
 * How long to wait for the lock. Two OS processes that start at the same moment can briefly block each other while
 * acquiring the lock.
 */
const BUSY_MS = 200

/** The error if the lock of a file is held by another process, or by other code of this process. */
export class FileLocked extends Error {
  override readonly name = 'FileLocked'
}

/**
 * Makes this OS process the only writer of a file or store until the process releases the lock or ends. Node has no API
 * for kernel file locks. Therefore the function begins an exclusive SQLite transaction, for which SQLite acquires a
 * kernel lock. The kernel keeps the lock until the process releases it or ends, so the lock needs no timeout.
 *
 * @param file the file to lock, which need not exist yet. The lock is held on an empty file `<file>.lock.sqlite` beside
 * it. This lock file is never removed, because two processes could otherwise lock two different files of this name. No
 * other code of this process may open the lock file, because closing any descriptor of a file releases the locks on it
 * (fcntl(2)).
 * @returns the function that releases the lock. Keep a reference to this function as long as the lock is needed. A
 * second call does nothing.
 * @throws {FileLocked} if the lock is held.
 * @throws {Error} if the lock file cannot be written; the message gives the reason.
 */
export function lockFile(file: string): () => void {
  const path = `${file}.lock.sqlite`
  try {
    // The lock file is created here and not by SQLite, whose error would not say why the file cannot be created. The
    // calls are synchronous, so that no other code of this process can open and close the file between two calls.
    closeSync(openSync(path, 'wx', 0o600))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  let database: DatabaseSync | undefined
  try {
    database = new DatabaseSync(path, { timeout: BUSY_MS })
    // On a read-only file SQLite would silently acquire only a shared lock. The write by `pragma user_version` fails on
    // such a file, so that the lock is not acquired.
    database.exec('pragma journal_mode = memory; begin exclusive; pragma user_version = 1')
  } catch (error) {
    database?.close()
    const { errcode, message } = error as { readonly errcode?: number; readonly message: string }
    if (errcode === SQLITE_BUSY) throw new FileLocked(`${file} is in use by another process`)
    throw new Error(`${path}: ${message}`, { cause: error })
  }
  const held = database
  return () => {
    if (held.isOpen) held.close()
  }
}

/**
 * Makes this OS process the only writer of the store in a data folder, which is created if it does not exist.
 *
 * @param file the main file of the store, see {@link lockFile}
 * @returns the function that releases the lock
 * @throws {StartupError} if another process has the lock or the folder cannot be written; the message names the folder.
 */
export async function lockFolder(folder: string, file: string): Promise<() => void> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    return lockFile(file)
  } catch (error) {
    throw new StartupError(
      error instanceof FileLocked
        ? `the data folder ${folder} is in use by another process: stop it, or set DATA_DIR to another folder`
        : `the data folder ${folder} cannot be used: ${(error as Error).message}`,
    )
  }
}
