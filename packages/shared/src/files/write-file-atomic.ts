import { open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'

export interface WriteOptions {
  /** Permissions of the file; 0600 by default, because most files written this way hold credentials. */
  readonly mode?: number
}

/**
 * Replaces the content of a file so that readers, and a process that starts after a crash or a power failure, see
 * either the whole old content or the whole new one.
 *
 * The content goes to `<path>.tmp`, which is flushed before it is renamed: otherwise a power failure could leave an
 * empty file under the final name. The folder is flushed last; only then does the rename itself survive. Two writes
 * of the same path must not overlap, as they would share the temporary file.
 *
 * @throws the file system's error. The previous content is still in place then.
 */
export async function writeFileAtomic(
  path: string,
  content: string | Uint8Array,
  { mode = 0o600 }: WriteOptions = {},
): Promise<void> {
  const temporary = `${path}.tmp`
  try {
    const file = await open(temporary, 'w', mode)
    try {
      // A temporary file that a crash left behind keeps its permissions when it is opened again.
      await file.chmod(mode)
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

/** Flushes a folder, so that files created, renamed or removed in it stay so after a power failure. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path)
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}
