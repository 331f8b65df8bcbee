/**
 * The outbox in the credential file, and the audit log in a file beside it, with one entry per line. The credential file
 * stores how many bytes of the audit file are valid. After a crash during an append, the next process appends the lines
 * at the same offset.
 */
import { constants, createReadStream } from 'node:fs'
import { open, stat, writeFile } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { AuditEntry, auditStart, chain } from '@integration-host/shared/contracts/audit'
import { parseJson } from '@integration-host/shared/json'
import type { OutboxStore } from '../../credential/credential-store.ts'
import type { OutboxEntry } from '../../credential/outbox.ts'
import { type CredentialFile, type FileState, unchanged, unwritable } from './credential-file.ts'

/** Adds an outbox entry to a state, so that the entry and the change that it describes are stored in one write. */
export const withOutboxEntry = (current: FileState, entry: OutboxEntry): FileState => ({
  ...current,
  sequence: current.sequence + 1,
  outbox: [...current.outbox, { ...entry, id: String(current.sequence + 1) }],
})

export function createFileOutbox(file: CredentialFile, auditPath: string): OutboxStore {
  /** The actions of each key on the newest day. Only this process uses the file; a restart begins again. */
  let actions = { day: 0, byKey: new Map<string, number>() }
  return {
    async takeActions(keyId, day, count, limit) {
      if (actions.day !== day) actions = { day, byKey: new Map() }
      const used = (actions.byKey.get(keyId) ?? 0) + count
      if (used > limit) return false
      actions.byKey.set(keyId, used)
      return true
    },

    record: (facts) =>
      file.change((current) => ({
        next: withOutboxEntry(current, { facts, events: [] }),
        result: undefined,
      })),

    audit: (limit) =>
      file.change(async (current) => {
        const { audited } = current
        const batch = current.outbox.filter(({ id }) => Number(id) > audited.upTo).slice(0, limit)
        const upTo = Number(batch.at(-1)?.id ?? audited.upTo)
        if (batch.length === 0) return unchanged(0)
        const entries = chain(
          audited,
          batch.flatMap(({ facts }) => facts),
        )
        const { Seq, Hash } = entries.at(-1) ?? audited
        const bytes = await appendEntries(auditPath, audited.bytes, entries).catch(
          (cause: unknown) => {
            throw unwritable(cause)
          },
        )
        return {
          next: { ...current, audited: { Seq, Hash, upTo, bytes } },
          result: batch.length,
        }
      }),

    async readAudit(after, limit) {
      const { Seq, Hash } = file.state().audited
      const items = await readEntries(auditPath, after, limit)
      return { items: items.filter((entry) => entry.Seq <= Seq), head: { Seq, Hash } }
    },

    async readAuditBackwards(before, limit) {
      const { Seq, Hash, bytes } = file.state().audited
      return {
        items: await readEntriesBackwards(auditPath, bytes, before, limit),
        head: { Seq, Hash },
      }
    },

    // Only one process uses the file, so it needs no lease to send the audit log.
    claimAuditSink: async (sink) => file.state().sinks?.[sink] ?? auditStart,

    advanceAuditSink: (sink, _owner, position) =>
      file.change((current) => ({
        next: { ...current, sinks: { ...current.sinks, [sink]: position } },
        result: undefined,
      })),

    async releaseAuditSink() {},

    async readOutbox(_owner, _leaseMs, limit) {
      const { outbox, audited } = file.state()
      return outbox.filter(({ id }) => Number(id) <= audited.upTo).slice(0, limit)
    },

    async releaseOutbox() {
      // Only one process uses the file, so no other process can hold the lease for publishing events.
    },

    async trimOutbox(ids) {
      if (ids.length === 0) return
      await file.change((current) => ({
        next: { ...current, outbox: current.outbox.filter(({ id }) => !ids.includes(id)) },
        result: null,
      }))
    },
  }
}

/**
 * Writes `entries` at the byte offset `at` and removes everything that follows them in the file. Resolves with the new
 * size in bytes.
 *
 * @throws the file system's error if the file cannot be written.
 */
async function appendEntries(
  path: string,
  at: number,
  entries: readonly AuditEntry[],
): Promise<number> {
  const bytes = Buffer.from(entries.map((entry) => `${JSON.stringify(entry)}\n`).join(''), 'utf8')
  const file = await open(path, constants.O_RDWR | constants.O_CREAT, 0o600)
  try {
    // If the file is shorter than `at`, another program has truncated it. The entries are then appended at the end of
    // the file, because writing at `at` would fill the gap with zeros.
    const { size } = await file.stat()
    const from = Math.min(at, size)
    // Bytes after `at` have one of two causes. In the first case, an append of the same lines was interrupted. In the
    // second case, the credential file was deleted or restored from a backup. The bytes are then audit entries from the
    // time before the deletion or restoration. They are copied to another file before they are overwritten.
    const tail = Buffer.alloc(size - from)
    await file.read(tail, 0, tail.length, from)
    if (!bytes.subarray(0, tail.length).equals(tail))
      await writeFile(`${path}.${Date.now()}`, tail, { mode: 0o600, flag: 'wx', flush: true })
    await file.truncate(from)
    // On a full disk, a write may be partial without an error. Only the number of written bytes shows this.
    for (let done = 0; done < bytes.length;)
      done += (await file.write(bytes, done, bytes.length - done, from + done)).bytesWritten
    await file.sync()
    return from + bytes.length
  } finally {
    await file.close()
  }
}

/**
 * Reads at most `limit` audit entries whose number is greater than `after`. Stops at the first line that is not an
 * audit entry.
 */
async function readEntries(path: string, after: number, limit: number): Promise<AuditEntry[]> {
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

const BLOCK_BYTES = 65_536

/**
 * Reads at most `limit` audit entries whose number is less than `before`, newest first. Only the first `size` bytes of
 * the file are valid. The file is read backwards in blocks, so that the newest entries of a long log are found quickly.
 */
async function readEntriesBackwards(
  path: string,
  size: number,
  before: number,
  limit: number,
): Promise<AuditEntry[]> {
  const found: AuditEntry[] = []
  if (!(await exists(path))) return found
  await using file = await open(path)
  let rest = Buffer.alloc(0)
  for (let end = size; end > 0 && found.length < limit;) {
    const start = Math.max(0, end - BLOCK_BYTES)
    const block = Buffer.alloc(end - start)
    const { bytesRead } = await file.read(block, 0, block.length, start)
    const text = Buffer.concat([block.subarray(0, bytesRead), rest])
    // The first line of a block may begin in the previous block of the file.
    const first = start === 0 ? 0 : text.indexOf('\n') + 1
    rest = text.subarray(0, first)
    for (const line of text.subarray(first).toString('utf8').split('\n').toReversed()) {
      const entry = AuditEntry.safeParse(parseJson(line))
      if (entry.success && entry.data.Seq < before && found.length < limit) found.push(entry.data)
    }
    end = start
  }
  return found
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  )
