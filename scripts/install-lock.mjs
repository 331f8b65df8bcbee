import { execFileSync } from 'node:child_process'
import {
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  rmdirSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'

/*
 * The lock is a folder with one file in it, named for its holder.
 *
 * I1  It is taken by renaming a prepared folder onto it, which the system refuses while it has content.
 * I2  A file is removed only by its own name, by its holder or once its holder is dead. Whoever comes
 *     too late to clear up after a dead holder therefore cannot remove the next one's.
 */

const pollMs = 200

/**
 * Waits until no living process holds the lock, then holds it.
 *
 * @param {string} lock path of the lock folder; the folder above it must exist
 * @param {{ onWait: () => void, waitMs: number }} options `onWait` is called once, when somebody else holds it
 * @returns {Promise<() => void>} gives the lock back
 * @throws {Error} when it is still held after `waitMs`; a living holder is never robbed
 */
export async function takeLock(lock, { onWait, waitMs }) {
  const deadline = Date.now() + waitMs
  for (let told = false; ;) {
    if (tryToTake(lock)) return () => release(lock)
    const holders = livingHolders(lock)
    if (holders.length > 0) {
      if (Date.now() > deadline) {
        throw new Error(
          `it is still held by ${holders.join(', ')}; if that is wrong, remove ${lock}`,
        )
      }
      if (!told) onWait()
      told = true
      await delay(pollMs)
    }
  }
}

/** @param {string} lock */
function tryToTake(lock) {
  const prepared = `${lock}-${process.pid}`
  mkdirSync(prepared)
  try {
    writeFileSync(join(prepared, nameOf(process.pid)), '')
    try {
      rmdirSync(lock) // Windows does not rename onto an empty folder either
    } catch {
      // Absent or held: the next line tells which.
    }
    renameSync(prepared, lock)
    return true
  } catch (error) {
    rmSync(prepared, { recursive: true, force: true })
    if (['ENOTEMPTY', 'EEXIST', 'EPERM', 'EACCES'].includes(codeOf(error))) return false
    throw error
  }
}

/** @param {string} lock */
function release(lock) {
  rmSync(join(lock, nameOf(process.pid)), { force: true })
  try {
    rmdirSync(lock)
  } catch {
    // The next one has it already, or the whole folder above is gone.
  }
}

/**
 * Also clears up after the dead.
 *
 * @param {string} lock
 * @returns {string[]}
 */
function livingHolders(lock) {
  /** @type {string[]} */
  let names
  try {
    names = readdirSync(lock)
  } catch {
    return []
  }
  return names.filter((name) => {
    if (isAlive(name)) return true
    try {
      unlinkSync(join(lock, name))
    } catch {
      // Somebody else did.
    }
    return false
  })
}

/**
 * `process 4711 on build-1, started …`: a process id comes back after a restart of the machine, the start time does not.
 *
 * @param {number} pid
 */
function nameOf(pid) {
  const name = `process ${pid} on ${hostname()}, started ${startOf(pid)}`
  return name.replaceAll(/[^\w ,.-]/g, '-')
}

/** @param {string} name a holder, as `nameOf` gives it */
function isAlive(name) {
  const pid = Number(/^process (\d+) on /.exec(name)?.[1])
  // What another machine holds, on a shared disk, cannot be looked up here.
  if (!name.includes(` on ${hostname().replaceAll(/[^\w ,.-]/g, '-')}, `)) return true
  try {
    process.kill(pid, 0)
  } catch (error) {
    if (codeOf(error) === 'ESRCH') return false
  }
  return name === nameOf(pid)
}

/**
 * What differs between two processes that had the same id.
 *
 * @param {number} pid
 */
function startOf(pid) {
  try {
    // The program's name, in brackets, may itself hold spaces and brackets; the start is the 20th field after it.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    return `${boot} ${stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]}`
  } catch {
    // Not Linux.
  }
  try {
    return execFileSync('ps', ['-o', 'lstart=', '-p', String(pid)], { encoding: 'utf8' }).trim()
  } catch {
    return 'at an unknown time'
  }
}

/** @param {unknown} error */
function codeOf(error) {
  return error instanceof Error && 'code' in error ? String(error.code) : ''
}
