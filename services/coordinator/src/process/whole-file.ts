import { open, readdir, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'

/**
 * Writes a file whole or not at all: a temporary file beside it, flushed, renamed over it, the folder
 * flushed. Whoever opens the path sees the old content or the new, also after a power cut.
 *
 * @throws the system's error; the file is then as it was.
 */
export async function writeWholeFile(path: string, content: string): Promise<void> {
  const temporary = `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`
  try {
    const file = await open(temporary, 'wx', 0o600)
    try {
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
 * Removes what writers of this path left when they were killed. It reads the whole folder: for a second
 * attempt, not for every write. A writer that still lives fails, and leaves the file as it is.
 */
export async function removeStrays(path: string): Promise<void> {
  const name = basename(path)
  for (const entry of await readdir(dirname(path)))
    if (entry.startsWith(name) && STRAY.test(entry.slice(name.length)))
      await rm(join(dirname(path), entry), { force: true })
}
const STRAY = /^\.[0-9a-f]{8}\.tmp$/

/** Makes a rename in the folder durable. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
