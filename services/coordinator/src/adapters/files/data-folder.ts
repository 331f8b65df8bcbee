/** Watches the free space of the data folder. */
import { statfs } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import {
  type CheckResult,
  ok,
  warning,
} from '@integration-host/shared/observability/checks/check-result'

const INTERVAL_MS = 30_000
const MEGABYTE = 1_000_000

/** The space of a file system, in bytes. */
export interface Space {
  /** The space that this process may use, which is less than what is unused if the system reserves space. */
  readonly free: number
  readonly total: number
}

/**
 * Checks the free space of a disk. Less than 100 MB, or on a small disk a hundredth, is a shortage at which files can no
 * longer be written soon. Ten times as much is worth a warning.
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

/** Reports to `dependency` whether the disk of the folder has enough free space. Disposing ends the checks. */
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
    // The folder is created with the first file, so until then its disk is that of the nearest folder above it.
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || parent === resolve(folder))
      throw error
    return spaceOf(parent)
  }
}
