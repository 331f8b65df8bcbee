import { rename, writeFile } from 'node:fs'
import { mkdir, open, readdir, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { grouped } from '@integration-host/shared/grouped'

// Half the processor time of the functions of `fs/promises`, which make an object with a finalizer for each file.
const writeNew = promisify(writeFile)
const move = promisify(rename)

/**
 * Writes a file whole or not at all: a temporary file beside it, flushed, renamed over it, the folder
 * flushed. Whoever opens the path sees the old content or the new, also after a power cut. The folder is made
 * when it is missing.
 *
 * @throws the system's error; the file is then as it was.
 */
export async function writeWholeFile(path: string, content: string): Promise<void> {
  const temporary = `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`
  const folder = dirname(path)
  const write = () => writeNew(temporary, content, { flag: 'wx', mode: 0o600, flush: true })
  try {
    await write().catch(async (error: unknown) => {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
      await mkdir(folder, { recursive: true })
      await write()
    })
    await move(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  await flushFolder(folder)
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

/** Makes the renames in the folder durable: one flush for all that came while the last one ran. */
const flushFolder = grouped(
  async (folders: readonly string[]) => {
    for (const folder of new Set(folders)) {
      await using handle = await open(folder, 'r')
      await handle.sync()
    }
    return folders
  },
  // Linux tells of a failed write once: the next flush would say that all is well.
  { retries: false },
)
