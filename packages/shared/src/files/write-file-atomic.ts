import { open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'

export interface WriteOptions {
  /** Permissions of the file; 0600 by default, because most files written this way hold credentials. */
  readonly mode?: number
  /**
   * User and group that own the file; by default the user and group of this process. Only root can set other owners.
   */
  readonly owner?: { readonly uid: number; readonly gid: number }
}

/**
 * Replaces the content of a file atomically. Every reader sees either the whole old content or the whole new content,
 * even after a crash or a power failure.
 *
 * The content is written to `<path>.tmp`. This temporary file is flushed before it is renamed, because otherwise a
 * power failure could leave an empty file under the final name. The folder is flushed last, which makes the rename
 * durable. Two writes of the same path must not overlap, because both would use the same temporary file.
 *
 * @throws the file system's error if an operation fails. The previous content is then still in place, unless only the
 * flush of the folder failed.
 */
export async function writeFileAtomic(
  path: string,
  content: string | Uint8Array,
  { mode = 0o600, owner }: WriteOptions = {},
): Promise<void> {
  const temporary = `${path}.tmp`
  try {
    const file = await open(temporary, 'w', mode)
    try {
      // If a crash has left the temporary file behind, opening the file does not change its permissions. Therefore the
      // permissions are set here.
      await file.chmod(mode)
      if (owner !== undefined) await file.chown(owner.uid, owner.gid)
      await file.writeFile(content)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  await syncFolder(dirname(path))
}

/**
 * Flushes a folder. After that, a power failure cannot undo the creation, renaming or removal of a file in the folder.
 */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path)
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}
