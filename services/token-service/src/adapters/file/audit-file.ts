/**
 * The audit log beside the credential file: one entry per line. The credential file stores how many bytes of it
 * are valid, so an append that a crash interrupted is repeated at the same place, with the same lines.
 */
import { constants, createReadStream } from 'node:fs'
import { open, stat, writeFile } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { AuditEntry } from '@integration-host/shared/contracts/audit'
import { parseJson } from '@integration-host/shared/json'

/** Writes `entries` at the byte offset `at`, replacing what follows. Resolves with the new end, in bytes. */
export async function appendEntries(
  path: string,
  at: number,
  entries: readonly AuditEntry[],
): Promise<number> {
  const bytes = Buffer.from(entries.map((entry) => `${JSON.stringify(entry)}\n`).join(''), 'utf8')
  const file = await open(path, constants.O_RDWR | constants.O_CREAT, 0o600)
  try {
    // The file is shorter than it should be: it was truncated, and the gap must not be filled with zeros.
    const { size } = await file.stat()
    const from = Math.min(at, size)
    // An interrupted append left the beginning of the same lines. Anything else is an audit log that is newer
    // than the credential file, which was restored or deleted: it is moved to another file, not overwritten.
    const tail = Buffer.alloc(size - from)
    await file.read(tail, 0, tail.length, from)
    if (!bytes.subarray(0, tail.length).equals(tail))
      await writeFile(`${path}.${Date.now()}`, tail, { mode: 0o600, flag: 'wx', flush: true })
    await file.truncate(from)
    // On a full disk a write may be partial, which only the number of bytes shows.
    for (let done = 0; done < bytes.length;)
      done += (await file.write(bytes, done, bytes.length - done, from + done)).bytesWritten
    await file.sync()
    return from + bytes.length
  } finally {
    await file.close()
  }
}

/** Entries numbered above `after`, at most `limit`. Reading ends at the first line that is not an entry. */
export async function readEntries(
  path: string,
  after: number,
  limit: number,
): Promise<AuditEntry[]> {
  const found: AuditEntry[] = []
  if (!(await exists(path))) return found
  const input = createReadStream(path, 'utf8')
  try {
    for await (const line of createInterface({ input })) {
      const entry = AuditEntry.safeParse(parseJson(line))
      if (!entry.success || found.length >= limit) break
      if (entry.data.Seq > after) found.push(entry.data)
    }
  } finally {
    input.destroy()
  }
  return found
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  )
