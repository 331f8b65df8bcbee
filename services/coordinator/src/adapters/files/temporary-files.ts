import { readdir, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'

/**
 * Returns a unique temporary path in the folder of the file, because a rename is atomic only within one file system.
 */
export const temporaryPath = (path: string): string =>
  `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`

const TEMPORARY = /^\.[0-9a-f]{8}\.tmp$/

/** Implements `Files.removeTemporaryFiles`. */
export async function removeTemporaryFiles(path: string): Promise<void> {
  const name = basename(path)
  const entries = await readdir(dirname(path)).catch((error: unknown) => {
    // The folder may not exist, because the writers may have been killed before they created it.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  })
  for (const entry of entries)
    if (entry.startsWith(name) && TEMPORARY.test(entry.slice(name.length)))
      await rm(join(dirname(path), entry), { force: true })
}
