import { unlink } from 'node:fs/promises'
import { dirname, resolve, sep } from 'node:path'
import { syncFolder } from '@integration-host/shared/files/durable-file'

/**
 * Removes files durably. The results are in the order of the paths. Each result is either a boolean, which says whether
 * the file existed, or the error that prevented its removal. A failure does not affect the other files.
 */
export type RemoveFiles = (
  paths: readonly string[],
) => Promise<readonly PromiseSettledResult<boolean>[]>

/**
 * Returns a function that removes files in `dataDir`. The function rejects a path outside `dataDir`, because the paths
 * come from process files, which may contain mistakes.
 */
export function createFileRemover(dataDir: string): RemoveFiles {
  const root = resolve(dataDir) + sep

  async function remove(path: string): Promise<boolean> {
    if (!resolve(path).startsWith(root))
      throw new TypeError('a process may name only files in DATA_DIR as files of its runs')
    try {
      await unlink(path)
      return true
    } catch (error) {
      if (isMissing(error)) return false
      throw error
    }
  }

  return async (paths) => {
    const removed = await Promise.allSettled(paths.map(remove))
    const synced = new Map<string, Promise<void>>()
    /** Flushes the folder of a file. A folder is flushed only once for all its files. */
    const syncFolderOf = (path: string): Promise<void> => {
      const folder = dirname(path)
      const sync = synced.get(folder) ?? syncFolderIfExists(folder)
      synced.set(folder, sync)
      return sync
    }
    return Promise.allSettled(
      paths.map(async (path, index) => {
        const result = removed[index] as PromiseSettledResult<boolean>
        if (result.status === 'rejected') throw result.reason
        // The folder is flushed, because otherwise a power failure could restore the file of a purged or erased run. If
        // the file does not exist, the folder is flushed too, because a coordinator may have removed the file and then
        // crashed before the flush.
        await syncFolderOf(path)
        return result.value
      }),
    )
  }
}

async function syncFolderIfExists(path: string): Promise<void> {
  try {
    await syncFolder(path)
  } catch (error) {
    if (!isMissing(error)) throw error
  }
}

function isMissing(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException
  return code === 'ENOENT' || code === 'ENOTDIR'
}
