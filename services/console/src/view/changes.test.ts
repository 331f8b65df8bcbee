import { describe, expect, it } from 'vitest'
import { changesOf } from './changes.ts'

const action = {
  ID: 7,
  At: '2026-11-23T10:00:02.000Z',
  KeyID: 'console',
  Person: 'ada@example.com',
  Action: 'pause',
  Process: 'OrderProcess',
  TransactionID: null,
  ReplayID: null,
  Realm: null,
  Reason: 'maintenance',
  Outcome: 'done',
  OperationID: null,
}
const entry = {
  Seq: 1,
  At: '2026-11-23T10:00:01.000Z',
  Who: 'routine',
  What: 'faulted',
  Name: 'ACC-1',
  Version: 1,
  Outcome: 'invalid_grant',
  Previous: '0'.repeat(64),
  Hash: '1'.repeat(64),
} as const

describe('the list of changes on the page Now', () => {
  it('the list of changes merges the entries of both logs, newest first, with the person, the reason and the outcome', () => {
    expect(changesOf([action], [entry])).toMatchObject([
      { Who: 'ada@example.com', What: 'paused OrderProcess', Reason: 'maintenance' },
      { Who: 'routine', What: 'failed to refresh ACC-1 (invalid_grant)', Reason: null },
    ])
  })

  it('the list of changes names the problem code of a rejected action', () => {
    const rejected = {
      ...action,
      TransactionID: '66',
      Action: 'resume',
      Outcome: 'transaction_active',
    }
    expect(changesOf([rejected], [])[0]?.What).toBe(
      'tried to resume OrderProcess/66 (transaction_active)',
    )
  })

  it('the list of changes shows successive equal entries as one entry with a count, and leaves out routine refreshes', () => {
    const entries = [1, 2, 3].map((Seq) => ({ ...entry, Seq }))
    const refreshed = { ...entry, What: 'refreshed', Outcome: 'ok' } as const
    expect(changesOf([], [refreshed, ...entries])).toMatchObject([
      { What: 'failed to refresh ACC-1 (invalid_grant), 3 times' },
    ])
  })
})
