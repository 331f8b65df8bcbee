import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { lock } from 'proper-lockfile'
import { StartRefused } from './lifecycle.ts'

const STALE_MS = 10_000
const LOOK_MS = 200

/**
 * Makes this process the only writer of a store. The lock file is kept fresh while the process lives; a
 * lock whose process is known to be gone is taken at once. One that nobody has signed is waited for: its
 * process is about to, or was killed before it could, and then the lock is stale ten seconds later.
 *
 * @param file the store's main file, which need not exist yet
 * @param onLost called when this process slept so long that another one may have taken the lock
 * @throws {StartRefused} naming the folder, when another process has it.
 */
export async function lockFolder(
  folder: string,
  file: string,
  onLost: () => void,
): Promise<() => Promise<void>> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const holder = `${file}.lock.json`
  const unlock = await takeLock(folder, file, holder, onLost)
  await writeFile(holder, JSON.stringify({ pid: process.pid, host: hostname() }))
  return async () => {
    await rm(holder, { force: true })
    await unlock()
  }
}

async function takeLock(
  folder: string,
  file: string,
  holder: string,
  onLost: () => void,
): Promise<() => Promise<void>> {
  for (let leftMs = STALE_MS + 2_000; ; leftMs -= LOOK_MS) {
    try {
      return await lock(file, {
        realpath: false,
        stale: STALE_MS,
        update: 2_000,
        onCompromised: onLost,
      })
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ELOCKED') throw error
    }
    const fate = await fateOfHolder(holder)
    if (fate === 'there' || leftMs <= 0) throw refusal(folder)
    if (fate === 'unknown') {
      await sleep(LOOK_MS)
      continue
    }
    // Its name goes first: whoever comes now must not take the lock that is taken here for the old one.
    await rm(holder, { force: true })
    await rm(`${file}.lock`, { recursive: true, force: true })
  }
}

const refusal = (folder: string): StartRefused =>
  new StartRefused(
    `the data folder ${folder} is in use by another process: stop it, or set DATA_DIR to another folder`,
  )

/** What became of the process that wrote the holder file: gone only if it ran on this machine and runs no more. */
async function fateOfHolder(path: string): Promise<'there' | 'gone' | 'unknown'> {
  let pid: unknown
  let host: unknown
  try {
    ;({ pid, host } = JSON.parse(await readFile(path, 'utf8')) as { pid?: unknown; host?: unknown })
  } catch {
    return 'unknown' // not there, or no JSON object
  }
  if (host !== hostname() || typeof pid !== 'number') return 'there'
  try {
    process.kill(pid, 0)
    return 'there'
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH' ? 'gone' : 'there'
  }
}
