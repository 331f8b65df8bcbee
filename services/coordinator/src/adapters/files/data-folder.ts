/** Watches the free space of the data folder. */
import { statfs } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import { type CheckResult, ok, warning } from '@integration-host/shared/observability/checks'

const INTERVAL_MS = 30_000
const MEGABYTE = 1_000_000

/** The space of a file system, in bytes. */
export interface Space {
  /**
   * The space that this process may use. It is less than the free space if the file system keeps some of the free space
   * in reserve.
   */
  readonly free: number
  readonly total: number
}

/**
 * Checks the free space of a disk. `isShort` is true if the free space is below a minimum. The minimum is 1 % of the
 * disk, but never more than 100 MB. The check result is a warning if the free space is below ten times this minimum.
 */
export function checkSpace({ free, total }: Space): {
  readonly isShort: boolean
  readonly result: CheckResult
} {
  const least = Math.min(100 * MEGABYTE, total / 100)
  const found = `${Math.floor(free / MEGABYTE)} MB of ${Math.floor(total / MEGABYTE)} MB are free`
  return {
    isShort: free < least,
    result:
      free < 10 * least
        ? warning('disk', found, 'Free space on the disk of DATA_DIR, or make the volume larger')
        : ok('disk', found),
  }
}

/** Reports to `dependency` whether the disk of the folder has enough free space. Disposal ends the checks. */
export function watchDataFolder(
  folder: string,
  dependency: Dependency,
  read: (folder: string) => Promise<Space> = spaceOf,
): Disposable {
  const check = async (): Promise<void> => {
    try {
      const { isShort, result } = checkSpace(await read(folder))
      dependency.logCheck(result)
      if (isShort) dependency.down(`the disk is full: ${result.found}`)
      else dependency.up()
    } catch (error) {
      dependency.down(`the folder cannot be used (${reasonOf(error)})`)
    }
  }
  const timer = setInterval(() => void check(), INTERVAL_MS)
  timer.unref()
  void check()
  return { [Symbol.dispose]: () => clearInterval(timer) }
}

async function spaceOf(folder: string): Promise<Space> {
  try {
    const { bavail, blocks, bsize } = await statfs(folder)
    return { free: bavail * bsize, total: blocks * bsize }
  } catch (error) {
    const parent = dirname(resolve(folder))
    // The data folder is created when its first file is written. Until then, the nearest existing folder above it is
    // checked.
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || parent === resolve(folder))
      throw error
    return spaceOf(parent)
  }
}
