import { chown, readFile, realpath, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { FileLocked, lockFile, writeFileAtomic } from '../files/durable-file.ts'
import { type KeyEntry, parseKeyList } from './key-list.ts'

/** The error if the key file is not valid, or would not be valid after the change. */
export class KeyListInvalid extends Error {
  override readonly name = 'KeyListInvalid'
  readonly faults: readonly string[]

  constructor(faults: readonly string[]) {
    super(faults.join('\n'))
    this.faults = faults
  }
}

const LOCK_POLL_MS = 50
const LOCK_DEADLINE_MS = 10_000

/**
 * Returns the keys of a key file; `null` if the file does not exist.
 *
 * @throws {KeyListInvalid} the file is not a valid list.
 * @throws the file system's error if the file cannot be read.
 */
export async function readKeyList(path: string): Promise<readonly KeyEntry[] | null> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
  return valid(text)
}

/**
 * Replaces the list in a key file with the result of `change`. If several OS processes change the file, their changes
 * are made one after the other, so that no change is lost. Readers see either the old or the new list, even after a
 * crash. The file has mode 0600 and keeps its owner. If root creates the file, it belongs to the owner of its folder.
 *
 * @param change gets the keys of the file, or an empty list if the file does not exist. An error that it throws leaves
 * the file unchanged.
 * @throws {KeyListInvalid} the content of the file or the result of `change` is not a valid list. The file is
 * unchanged.
 * @throws {FileLocked} another process has been changing the file for 10 s.
 * @throws the file system's error if the file cannot be written.
 */
export async function changeKeyList(
  file: string,
  change: (keys: readonly KeyEntry[]) => readonly KeyEntry[],
): Promise<void> {
  // The file itself is replaced, even if the path is a symbolic link. Otherwise the rename would replace the link.
  const path = await realpath(file).catch(() => file)
  const unlock = await lock(path)
  try {
    const owner = await ownerOf(path)
    if (owner !== undefined) await chown(`${path}.lock.sqlite`, owner.uid, owner.gid)
    const next = `${JSON.stringify(change((await readKeyList(path)) ?? []), null, 2)}\n`
    valid(next)
    await writeFileAtomic(path, next, { ...(owner !== undefined && { owner }) })
  } finally {
    unlock()
  }
}

async function lock(path: string): Promise<() => void> {
  for (let waitedMs = 0; ; waitedMs += LOCK_POLL_MS) {
    try {
      return lockFile(path)
    } catch (error) {
      if (!(error instanceof FileLocked) || waitedMs >= LOCK_DEADLINE_MS) throw error
    }
    await delay(LOCK_POLL_MS)
  }
}

/**
 * Returns the owner to set for the file. Returns `undefined` if the owner is already right, or if it cannot be set
 * because this process does not run as root.
 */
async function ownerOf(path: string) {
  const before = await stat(path).catch(() => null)
  if (process.getuid?.() === 0) return before ?? (await stat(dirname(path)))
  return before === null || before.uid === process.getuid?.() ? undefined : before
}

function valid(text: string): readonly KeyEntry[] {
  const { list: keys, faults } = parseKeyList(text)
  if (keys === null) throw new KeyListInvalid(faults)
  return keys
}
