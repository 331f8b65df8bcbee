import { describe, expect, it } from 'vitest'
import { mergeCalls, mergeRealms } from './limits.ts'

const realm = {
  Realm: '1',
  HeldUntil: null,
  Waiting: 0,
  LastSecond: 1,
  LastMinute: 10,
  Failed: 0,
  Metered: 7,
}
const call = {
  At: '2026-11-24T03:00:00.000Z',
  Method: 'GET',
  Path: '/v3/company/1/invoice/7',
  Status: 503,
  Code: null,
  ProviderError: null,
  DurationMs: 1,
  WaitedMs: 0,
  Attempts: 1,
  IntuitTid: null,
  RequestID: 'a',
}

describe('merging what several gateways report on companies', () => {
  it('the merged view sums the rates of the gateways, but not the calls of the month, which include all gateways', () => {
    const early = { ...realm, HeldUntil: '2026-11-24T03:00:01.000Z', Waiting: 2 }
    const late = { ...realm, HeldUntil: '2026-11-24T03:00:09.000Z', Metered: null }
    expect(mergeRealms([[early], [realm], [late]])).toEqual([
      { ...late, Waiting: 2, LastSecond: 3, LastMinute: 30, Metered: 7 },
    ])
  })

  it('the merged view lists companies in a cool-down first, then companies with waiting calls, then the busiest companies', () => {
    const companies = [
      { ...realm, Realm: 'calm', LastMinute: 0 },
      { ...realm, Realm: 'busy', LastMinute: 90 },
      { ...realm, Realm: 'waits', LastMinute: 0, Waiting: 1 },
      { ...realm, Realm: 'rests', LastMinute: 0, HeldUntil: '2026-11-24T03:00:01.000Z' },
    ]
    expect(mergeRealms([companies]).map(({ Realm }) => Realm)).toEqual([
      'rests',
      'waits',
      'busy',
      'calm',
    ])
  })

  it('the merged view of a company lists the newest 20 failed calls of all replicas', () => {
    const calls = Array.from({ length: 15 }, (_, index) => ({
      ...call,
      At: `2026-11-24T03:00:${String(index).padStart(2, '0')}.000Z`,
    }))
    const merged = mergeCalls([
      { ...realm, Calls: calls },
      { ...realm, Calls: calls },
    ])
    expect(merged).toHaveLength(20)
    expect(merged[0]?.At).toBe('2026-11-24T03:00:14.000Z')
    expect(merged.at(-1)?.At).toBe('2026-11-24T03:00:05.000Z')
  })
})
