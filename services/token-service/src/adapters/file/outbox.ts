/** The outbox in the credential file, and the audit log in a file beside it. */
import { auditStart, chain } from '@integration-host/shared/contracts/audit'
import type { OutboxMethods } from '../../credential/credential-store.ts'
import type { OutboxEntry } from '../../credential/outbox.ts'
import { appendEntries, readEntries, readEntriesBackwards } from './audit-file.ts'
import { type CredentialFile, type FileState, unchanged, unwritable } from './credential-file.ts'

/** Adds an outbox entry to a state, so that the entry and the change that it describes are stored in one write. */
export const withOutboxEntry = (current: FileState, entry: OutboxEntry): FileState => ({
  ...current,
  sequence: current.sequence + 1,
  outbox: [...current.outbox, { ...entry, id: String(current.sequence + 1) }],
})

export function createFileOutbox(file: CredentialFile, auditPath: string): OutboxMethods {
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
