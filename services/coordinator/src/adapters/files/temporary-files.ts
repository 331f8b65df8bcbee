import { open, readdir, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'

/** A new name beside the file: only within one folder is a rename atomic. */
export const temporaryPath = (path: string): string =>
  `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`

/**
 * Writes a single file atomically into an existing folder: a temporary file beside it, flushed, renamed over it, and
 * the folder flushed. A reader sees the old content or the new, also after a power failure.
 */
export async function writeFileAtomic(path: string, content: string): Promise<void> {
  const temporary = temporaryPath(path)
  try {
    await writeFlushed(temporary, content)
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  await using folder = await open(dirname(path), 'r')
  await folder.sync()
}

async function writeFlushed(path: string, content: string): Promise<void> {
  await using file = await open(path, 'wx', 0o600)
  await file.writeFile(content)
  await file.sync()
}

const TEMPORARY = /^\.[0-9a-f]{8}\.tmp$/

/** See `Files.removeTemporaryFiles`. */
export async function removeTemporaryFiles(path: string): Promise<void> {
  const name = basename(path)
  const entries = await readdir(dirname(path)).catch((error: unknown) => {
    // The writers were killed before they created the folder.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  })
  for (const entry of entries)
    if (entry.startsWith(name) && TEMPORARY.test(entry.slice(name.length)))
      await rm(join(dirname(path), entry), { force: true })
}
