import { createHash } from 'node:crypto'
import { z } from 'zod'

/** What is audited. Hand-outs are counted: one entry per caller, version and few seconds. */
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
  'keys_rotated',
  /** A journal entry that could not be read. */
  'unreadable',
] as const

/** What happened, before it has its place in the chain. Holds no secret. */
export const AuditFact = z.object({
  At: z.iso.datetime(),
  Who: z.string().meta({
    description: '`routine`, `browser`, or `key <fingerprint>` of the service key that asked',
  }),
  What: z.enum(auditActions),
  Name: z.string().meta({ description: 'the credential; empty where all are meant' }),
  Version: z.int().nonnegative(),
  Outcome: z.string().meta({ description: '`ok`, or the class of what went wrong' }),
  Count: z.int().positive().optional().meta({ description: 'of hand-outs or of credentials' }),
  TraceId: z.string().optional().meta({ description: "the provider's trace id" }),
})
export type AuditFact = z.output<typeof AuditFact>

const Hash = z.string().regex(/^[0-9a-f]{64}$/, 'must be a SHA-256 in hex')

/** One line of the audit log: a fact, its number and the hashes that tie it to the line before. */
export const AuditEntry = AuditFact.extend({
  Seq: z.int().positive(),
  Previous: Hash,
  Hash,
})
export type AuditEntry = z.output<typeof AuditEntry>

/** A place in the chain: the entry with this number has this hash. */
export const AuditHead = z.object({ Seq: z.int().nonnegative(), Hash })
export type AuditHead = z.output<typeof AuditHead>

/** The place before the first entry. */
export const auditStart: AuditHead = { Seq: 0, Hash: '0'.repeat(64) }

export const AuditPage = z.object({
  items: z.array(AuditEntry),
  head: AuditHead.meta({ description: 'the newest entry; keep it, and compare at the next look' }),
})
export type AuditPage = z.output<typeof AuditPage>

/** SHA-256 over the entry's members as a JSON array in this order, absent ones as null. */
export function auditHash(entry: Omit<AuditEntry, 'Hash'>): string {
  const { Seq, At, Who, What, Name, Version, Outcome, Count, TraceId, Previous } = entry
  const members = [Seq, At, Who, What, Name, Version, Outcome, Count, TraceId, Previous]
  return createHash('sha256').update(JSON.stringify(members)).digest('hex')
}

/** The entries that `facts` make after `head`. */
export function chain(head: AuditHead, facts: readonly AuditFact[]): AuditEntry[] {
  let last = head
  return facts.map((fact) => {
    const entry = { ...fact, Seq: last.Seq + 1, Previous: last.Hash }
    const linked = { ...entry, Hash: auditHash(entry) }
    last = linked
    return linked
  })
}

/** The first entry that does not follow from the one before it, and why; null when all do. */
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
