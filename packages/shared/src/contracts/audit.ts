import { createHash } from 'node:crypto'
import { z } from 'zod'

/**
 * The audited actions. All token issuances (`handed_out`) for the same credential version and the same caller within a
 * few seconds form a single audit entry.
 */
const auditActions = [
  'granted',
  'refreshed',
  'refresh_failed',
  'faulted',
  'expiring',
  'handed_out',
  'removed',
  'exported',
  'imported',
  'adopted',
  /** Label or tags were changed. The outcome of the entry names the changed members. */
  'labelled',
  /**
   * A connect link was created, used or deleted. `Name` contains the name of the company's credential; `Name` is empty
   * if the link may connect any company.
   */
  'link_created',
  'link_used',
  'link_withdrawn',
  'keys_rotated',
  /** Recorded in place of an outbox entry that could not be read. */
  'unreadable',
] as const

/** An audited event before it is appended to the chain. The event contains no secret. */
export const AuditFact = z.object({
  At: z.iso.datetime(),
  Who: z.string().meta({
    description: '`routine`, `browser`, or `key <fingerprint>` of the service key of the request',
  }),
  What: z.enum(auditActions),
  Name: z.string().meta({ description: 'the credential; empty if all are meant' }),
  Version: z.int().nonnegative(),
  Outcome: z.string().meta({ description: '`ok`, or the class of the failure' }),
  Count: z
    .int()
    .positive()
    .optional()
    .meta({ description: 'of token issuances or of credentials' }),
  TraceId: z.string().optional().meta({ description: "the provider's trace id" }),
  Reason: z.string().optional().meta({
    description:
      'the reason that the caller has given, and what was odd about a response of the provider that was accepted',
  }),
})
export type AuditFact = z.output<typeof AuditFact>

const Hash = z.string().regex(/^[0-9a-f]{64}$/, 'must be a SHA-256 in hex')

/** One entry of the audit log: the event, its sequence number, and the hash that chains it to the previous entry. */
export const AuditEntry = AuditFact.extend({
  Seq: z.int().positive(),
  Previous: Hash,
  Hash,
}).meta({ ref: 'AuditEntry' })
export type AuditEntry = z.output<typeof AuditEntry>

/** A position in the hash chain: the sequence number and the hash of one entry. */
export const AuditHead = z.object({ Seq: z.int().nonnegative(), Hash })
export type AuditHead = z.output<typeof AuditHead>

/** The position before the first entry of the chain. */
export const auditStart: AuditHead = { Seq: 0, Hash: '0'.repeat(64) }

export const AuditPage = z
  .object({
    items: z.array(AuditEntry),
    head: AuditHead.meta({
      description: 'the newest entry; keep it, and compare with it next time',
    }),
    next_before: z.int().positive().nullable().optional().meta({
      description:
        'of a page with the newest entry first: `before` of the next page; null at the end',
    }),
  })
  .meta({ ref: 'AuditPage' })
export type AuditPage = z.output<typeof AuditPage>

/**
 * Returns the SHA-256 of a JSON array of the entry's members in a fixed order. The array contains `null` for an absent
 * member. It contains `Reason` as an eleventh element only if the entry has one, so that an entry without a reason has
 * the same hash as in version 0.1.
 */
export function auditHash(entry: Omit<AuditEntry, 'Hash'>): string {
  const { Seq, At, Who, What, Name, Version, Outcome, Count, TraceId, Previous, Reason } = entry
  const members = [Seq, At, Who, What, Name, Version, Outcome, Count, TraceId, Previous]
  const hashed = Reason === undefined ? members : [...members, Reason]
  return createHash('sha256').update(JSON.stringify(hashed)).digest('hex')
}

/**
 * For each event in `facts`, returns an audit entry that is chained to the previous entry. The first entry is chained
 * to `head`.
 */
export function chain(head: AuditHead, facts: readonly AuditFact[]): AuditEntry[] {
  let last = head
  return facts.map((fact) => {
    const entry = { ...fact, Seq: last.Seq + 1, Previous: last.Hash }
    const linked = { ...entry, Hash: auditHash(entry) }
    last = linked
    return linked
  })
}

/** Returns the first entry that does not continue the chain, with the reason; `null` if the chain is intact. */
export function firstBreak(
  before: AuditHead,
  entries: readonly AuditEntry[],
): { readonly entry: AuditEntry; readonly reason: string } | null {
  let last = before
  for (const entry of entries) {
    if (entry.Seq !== last.Seq + 1)
      return { entry, reason: `entry ${last.Seq + 1} is missing before it` }
    if (entry.Previous !== last.Hash)
      return { entry, reason: 'the entry before it is not the one it was written after' }
    if (entry.Hash !== auditHash(entry)) return { entry, reason: 'it was changed' }
    last = entry
  }
  return null
}
