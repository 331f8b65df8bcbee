import { describe, expect, it } from 'vitest'
import {
  type AuditEntry,
  type AuditFact,
  auditHash,
  auditStart,
  chain,
  firstBreak,
} from './audit.ts'

const fact: AuditFact = {
  At: '2026-11-21T00:00:00.000Z',
  Who: 'routine',
  What: 'refreshed',
  Name: 'ACC-1',
  Version: 2,
  Outcome: 'ok',
}
const withReason: AuditFact = { ...fact, Reason: 'the provider is back' }
const numbered = (one: AuditFact): Omit<AuditEntry, 'Hash'> => ({
  ...one,
  Seq: 1,
  Previous: auditStart.Hash,
})

describe('the hash chain of the audit log', () => {
  it('an audit entry without a reason has the same hash as in earlier versions', () => {
    expect(auditHash(numbered(fact))).toBe(
      'ca7901f78a3b81633d9f9d58ee3e25a56bfecfa8cf13734e12a7145f375b08cd',
    )
  })

  it('the hash of an audit entry covers its reason', () => {
    expect(auditHash(numbered(withReason))).toBe(
      '0d3a09860ba912dadf2118a217f8ecb8c3c2a10b51ba1cfb20dfcba5b97bd32b',
    )
    const entries = chain(auditStart, [fact, withReason, fact])
    expect(firstBreak(auditStart, entries)).toBeNull()
    const changed = entries.map((entry) =>
      entry.Seq === 2 ? { ...entry, Reason: 'another reason' } : entry,
    )
    expect(firstBreak(auditStart, changed)).toMatchObject({
      entry: { Seq: 2 },
      reason: 'it was changed',
    })
    const removed = entries.map(({ Reason: _reason, ...entry }) => entry)
    expect(firstBreak(auditStart, removed)).toMatchObject({ entry: { Seq: 2 } })
  })
})
