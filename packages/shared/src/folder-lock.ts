import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { lock } from 'proper-lockfile'
import { StartRefused } from './lifecycle.ts'

/**
 * Makes this process the only writer of a store. The lock file is kept fresh while the process lives; a
 * lock whose process is known to be gone is taken at once, any other one once it is stale.
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
  const acquire = () =>
    lock(file, {
      realpath: false,
      stale: 10_000,
      update: 2_000,
      onCompromised: onLost,
    })
  let release: () => Promise<void>
  try {
    release = await acquire()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ELOCKED') throw error
    if (!(await isHolderGone(holder))) throw refusal(folder)
    await rm(`${file}.lock`, { recursive: true, force: true })
    release = await acquire().catch(() => {
      throw refusal(folder)
    })
  }
  await writeFile(holder, JSON.stringify({ pid: process.pid, host: hostname() }))
  return async () => {
    await rm(holder, { force: true })
    await release()
  }
}

const refusal = (folder: string): StartRefused =>
  new StartRefused(
    `the data folder ${folder} is in use by another process: stop it, or set DATA_DIR to another folder`,
  )

/** Whether the process that wrote the holder file ran on this machine and runs no more. */
async function isHolderGone(path: string): Promise<boolean> {
  try {
    const holder = JSON.parse(await readFile(path, 'utf8')) as { pid?: unknown; host?: unknown }
    if (holder.host !== hostname() || typeof holder.pid !== 'number') return false
    if (holder.pid === process.pid) return false
    process.kill(holder.pid, 0)
    return false
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH'
  }
}
