import { describe, expect, it } from 'vitest'
import { textOfActivity } from './activity.ts'
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

/** Returns the changes as sentences. */
const sentences = (...logs: Parameters<typeof changesOf>): readonly string[] =>
  changesOf(...logs).map((change) => `${change.Who} ${textOfActivity(change)}`)

describe('the list of changes on the page Now', () => {
  it('the list of changes merges the entries of both logs, newest first, and each entry has its page and its reason', () => {
    expect(changesOf([action], [entry], {})).toMatchObject([
      { Who: 'ada@example.com', Page: '/processes/OrderProcess', Reason: 'maintenance', Times: 1 },
      { Who: 'routine', Page: '/companies/1', Reason: null, Times: 1 },
    ])
    expect(sentences([action], [entry], {})).toEqual([
      'ada@example.com paused OrderProcess',
      'routine could not refresh ACC-1 (invalid_grant)',
    ])
  })

  it('the list of changes names companies by their names', () => {
    expect(sentences([], [entry], { 1: 'Rosewood' })).toEqual([
      'routine could not refresh Rosewood (invalid_grant)',
    ])
  })

  it('the list of changes names the run and the problem code of a rejected action', () => {
    const rejected = {
      ...action,
      TransactionID: '66',
      ReplayID: 1,
      Action: 'resume',
      Outcome: 'transaction_active',
    }
    expect(sentences([rejected], [], {})).toEqual([
      'ada@example.com tried to resume OrderProcess/66, run 1 (transaction_active)',
    ])
  })

  it('the list of changes shows successive equal entries as one entry with a count, and leaves out refreshes and token issuances', () => {
    const entries = [1, 2, 3].map((Seq) => ({ ...entry, Seq }))
    const others = (['refreshed', 'refresh_failed', 'handed_out'] as const).map((What) => ({
      ...entry,
      What,
    }))
    expect(changesOf([], [...others, ...entries], {})).toMatchObject([
      { What: 'could not refresh', Times: 3 },
    ])
  })
})
