import { mkdirSync, readdirSync, renameSync, rmSync, rmdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'

/*
 * The lock is a folder that holds an empty one, named by the process id of its holder.
 *
 * I1  It is acquired by renaming a prepared folder onto it, which the system rejects unless it is absent or empty.
 * I2  An entry is removed by its own name, by its holder or once its holder is dead. A process that comes too late to clean
 *     up after a dead holder therefore cannot remove the entry of the next one.
 *
 * Processes of other machines or containers that share the checkout are not seen.
 */

/**
 * Waits until no living process holds the lock, then acquires it.
 *
 * @param {string} lock path of the lock folder; its parent must exist
 * @param {{ onWait: () => void, waitMs: number }} options `onWait` is called once, if another process holds it
 * @returns {Promise<() => void>} releases the lock
 * @throws {Error} if it is still held after `waitMs`
 */
export async function acquireLock(lock, { onWait, waitMs }) {
  const deadline = Date.now() + waitMs
  for (let isWaiting = false; ;) {
    if (tryAcquire(lock)) {
      return () => {
        removeDir(join(lock, String(process.pid)))
        removeDir(lock)
      }
    }
    const holders = entriesOf(lock).filter((pid) => isAlive(Number(pid)))
    if (Date.now() > deadline) {
      throw new Error(`process ${holders.join()} still holds it; if that is wrong, remove ${lock}`)
    }
    if (holders.length > 0 && !isWaiting) onWait()
    isWaiting ||= holders.length > 0
    await delay(200)
  }
}

/** @param {string} lock */
function tryAcquire(lock) {
  for (const pid of entriesOf(lock)) if (!isAlive(Number(pid))) removeDir(join(lock, pid))
  removeDir(lock) // if it is empty: Windows does not rename onto such a folder either
  const prepared = `${lock}-${process.pid}`
  mkdirSync(join(prepared, String(process.pid)), { recursive: true })
  try {
    renameSync(prepared, lock)
    return true
  } catch (error) {
    rmSync(prepared, { recursive: true, force: true })
    if (['ENOTEMPTY', 'EEXIST', 'EPERM', 'EACCES'].includes(codeOf(error))) return false
    throw error
  }
}

/** @param {string} lock */
function entriesOf(lock) {
  try {
    return readdirSync(lock)
  } catch {
    return []
  }
}

/** @param {number} pid */
function isAlive(pid) {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return codeOf(error) !== 'ESRCH'
  }
}

/** @param {string} folder removed if it is empty */
function removeDir(folder) {
  try {
    rmdirSync(folder)
  } catch {
    // The folder is absent, or another process holds the lock.
  }
}

/** @param {unknown} error */
function codeOf(error) {
  return error instanceof Error && 'code' in error ? String(error.code) : ''
}
