import { mkdir, writeFile } from 'node:fs/promises'
import { DatabaseSync } from 'node:sqlite'
import { StartRefused } from './lifecycle.ts'

const SQLITE_BUSY = 5

/**
 * Makes this process the only writer of a store, until it lets go or ends: the lock is the kernel's own, which SQLite
 * takes for an exclusive transaction. However a process ends, its lock ends with it; one that sleeps keeps it.
 *
 * @param file the store's main file, which need not exist yet. Beside it `<file>.lock.sqlite` stays, empty: were it removed,
 *   two processes could each hold the lock of a file of that name.
 * @returns how to let go; the second time it does nothing.
 * @throws {StartRefused} naming the folder, when another process has it or nothing can be written there.
 */
export async function lockFolder(folder: string, file: string): Promise<() => void> {
  const path = `${file}.lock.sqlite`
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    // SQLite would make it as well, but tell no reason why it cannot.
    await writeFile(path, '', { flag: 'wx', mode: 0o600 })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  let database: DatabaseSync | undefined
  try {
    database = new DatabaseSync(path)
    database.exec('pragma journal_mode = memory; begin exclusive')
  } catch (error) {
    database?.close()
    const { errcode, message } = error as { readonly errcode?: number; readonly message: string }
    throw new StartRefused(
      errcode === SQLITE_BUSY
        ? `the data folder ${folder} is in use by another process: stop it, or set DATA_DIR to another folder`
        : `the data folder ${folder} cannot be locked: ${path}: ${message}`,
    )
  }
  const held = database
  return () => {
    if (held.isOpen) held.close()
  }
}
