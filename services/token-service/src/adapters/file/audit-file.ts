/**
 * The audit log beside the credential file: one entry per line. The credential file says how much of it
 * counts, so an append that a crash cut off is written again over itself, and makes the same lines.
 */
import { constants, createReadStream } from 'node:fs'
import { open, stat, writeFile } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { AuditEntry } from '@integration-host/shared/contracts/audit'

/** Writes `entries` at the byte `at`, over whatever follows there. Resolves with the end, in bytes. */
export async function appendEntries(
  path: string,
  at: number,
  entries: readonly AuditEntry[],
): Promise<number> {
  const bytes = Buffer.from(entries.map((entry) => `${JSON.stringify(entry)}\n`).join(''), 'utf8')
  const file = await open(path, constants.O_RDWR | constants.O_CREAT, 0o600)
  try {
    // Shorter than it should be: somebody cut it, and the gap must not become zeros.
    const { size } = await file.stat()
    const from = Math.min(at, size)
    // What a crash cut off is the beginning of what comes now. Anything else is an audit log that the
    // credential file, restored or begun anew, knows nothing of: it is set aside, not written over.
    const tail = Buffer.alloc(size - from)
    await file.read(tail, 0, tail.length, from)
    if (!bytes.subarray(0, tail.length).equals(tail))
      await writeFile(`${path}.${Date.now()}`, tail, { mode: 0o600, flag: 'wx', flush: true })
    await file.truncate(from)
    // A disk that is full takes a part of it, and says so only by the number.
    for (let done = 0; done < bytes.length;)
      done += (await file.write(bytes, done, bytes.length - done, from + done)).bytesWritten
    await file.sync()
    return from + bytes.length
  } finally {
    await file.close()
  }
}

/** Entries numbered above `after`, at most `limit`. A line that is no entry stands for the end. */
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

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
