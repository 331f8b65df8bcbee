import { mkdirSync, readdirSync, renameSync, rmSync, rmdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'

/**
 * A lock between OS processes. The lock is a folder that contains one empty folder, whose name is the process id of the
 * lock's holder.
 *
 * I1  A process acquires the lock by renaming a prepared folder onto the lock folder. The operating system rejects the
 *     rename unless the lock folder is absent or empty.
 * I2  The inner folder is removed by its name: by the holder, or by another process after the holder has died. A
 *     process that cleans up too late cannot remove the folder of a new holder, because this folder has another name.
 *
 * The lock does not exclude a process on another machine or in another container that shares the checkout, because such
 * a process cannot be recognized as alive.
 */

/**
 * Waits until no living process holds the lock, then acquires the lock.
 *
 * @param {string} lock path of the lock folder; its parent must exist
 * @param {{ onWait: () => void, waitMs: number }} options `onWait` is called once if another process holds the lock
 * @returns {Promise<() => void>} a function that releases the lock
 * @throws {Error} if another process still holds the lock after `waitMs`
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
      throw new Error(
        `process ${holders.join()} still holds the lock; if no installation is running, remove ${lock}`,
      )
    }
    if (holders.length > 0 && !isWaiting) onWait()
    isWaiting ||= holders.length > 0
    await delay(200)
  }
}

/** @param {string} lock */
function tryAcquire(lock) {
  for (const pid of entriesOf(lock)) if (!isAlive(Number(pid))) removeDir(join(lock, pid))
  removeDir(lock) // the folder is empty; even an empty folder prevents the rename on Windows
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

/**
 * Removes a folder if the folder is empty.
 *
 * @param {string} folder
 */
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
