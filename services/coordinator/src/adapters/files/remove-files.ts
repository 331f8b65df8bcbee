import { unlink } from 'node:fs/promises'
import { dirname, resolve, sep } from 'node:path'
import { syncFolder } from '@integration-host/shared/files/write-file-atomic'

/**
 * Returns a function that removes files in `dataDir` durably, and resolves with the number of those that existed. A path outside is rejected before anything is removed: the
 * paths come from process files, whose mistakes must not remove other files.
 */
export function createFileRemover(dataDir: string): (paths: readonly string[]) => Promise<number> {
  const root = resolve(dataDir) + sep
  return async (paths) => {
    for (const path of paths)
      if (!resolve(path).startsWith(root))
        throw new TypeError('a process may name only files in DATA_DIR as files of its runs')
    let count = 0
    const folders = new Set<string>()
    await Promise.all(
      paths.map(async (path) => {
        try {
          await unlink(path)
          count += 1
          folders.add(dirname(path))
        } catch (error) {
          const { code } = error as NodeJS.ErrnoException
          if (code !== 'ENOENT' && code !== 'ENOTDIR') throw error
        }
      }),
    )
    // A removal that a power failure undoes would leave the file of a run that is purged already.
    for (const folder of folders) await syncFolder(folder)
    return count
  }
}
