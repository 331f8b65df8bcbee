import { closeSync, openSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { DatabaseSync } from 'node:sqlite'
import { StartupError } from '../process/lifecycle.ts'

const SQLITE_BUSY = 5
/** Two that come at the same moment each see the other on its way to the lock. */
const BUSY_MS = 200

/**
 * Makes this process the only writer of a store, until it lets go or ends: the lock is the kernel's own, which SQLite
 * takes for an exclusive transaction. However a process ends, its lock ends with it; one that sleeps keeps it.
 *
 * @param file the store's main file, which need not exist yet. Beside it `<file>.lock.sqlite` stays, empty: were it removed,
 *   two processes could each hold the lock of a file of that name. Nothing else in the process may open it: the lock
 *   ends with any descriptor of it that is closed (fcntl(2)).
 * @returns how to let go, which has to be kept as long as the lock; the second time it does nothing.
 * @throws {StartupError} naming the folder, when another process has it or nothing can be written there.
 */
export async function lockFolder(folder: string, file: string): Promise<() => void> {
  const path = `${file}.lock.sqlite`
  const cannot = (error: unknown): StartupError =>
    new StartupError(`the data folder ${folder} cannot be used: ${(error as Error).message}`)
  await mkdir(folder, { recursive: true, mode: 0o700 }).catch((error: unknown) =>
    Promise.reject(cannot(error)),
  )
  try {
    // SQLite would make it as well, but tell no reason why it cannot. Without a pause: see above.
    closeSync(openSync(path, 'wx', 0o600))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw cannot(error)
  }
  let database: DatabaseSync | undefined
  try {
    database = new DatabaseSync(path, { timeout: BUSY_MS })
    // A write, because of a file that may only be read SQLite takes a shared lock, and says nothing.
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
