import { describe, expect, it } from 'vitest'
import { createRealmActivityLog, type FailedCallRecord } from './realm-activity.ts'
import type { GatewayLimits, Permit } from './throttle.ts'

const failure = (requestId: string): FailedCallRecord => ({
  at: 0,
  method: 'GET',
  path: '/v3/company/1/invoice/7',
  status: 503,
  code: null,
  providerError: null,
  durationMs: 1,
  waitedMs: 0,
  attempts: 1,
  traceId: null,
  requestId,
})

describe('the activity of companies at the gateway', () => {
  it('the activity log counts the calls of a company in the last second and in the last minute', () => {
    let at = 1_000_000
    const log = createRealmActivityLog(() => at)
    for (let second = 0; second < 90; second += 1) {
      log.callEnded('1', null)
      log.callEnded('1', null)
      at += 1_000
    }
    expect(log.find('1')).toMatchObject({ lastSecond: 2, lastMinute: 118 })
    at += 30_000
    expect(log.find('1')).toMatchObject({ lastSecond: 0, lastMinute: 58 })
    at += 3_600_000
    expect(log.find('1')).toMatchObject({ lastSecond: 0, lastMinute: 0 })
  })

  it('the activity log keeps the last 20 failed calls of a company, newest first', () => {
    const log = createRealmActivityLog(() => 0)
    for (let call = 0; call < 30; call += 1) log.callEnded('1', failure(String(call)))
    const { failed } = log.find('1')
    expect(failed.map(({ requestId }) => requestId)).toEqual(
      Array.from({ length: 20 }, (_, index) => String(29 - index)),
    )
  })

  it('the activity log lists companies in a cool-down first, then companies with waiting calls, then the busiest companies', async () => {
    let at = 1_000_000
    const granted = Promise.withResolvers<Permit>()
    const coolDowns: string[] = []
    const limits = {
      acquire: () => granted.promise,
      coolDown: (realm: string) => void coolDowns.push(realm),
    }
    const log = createRealmActivityLog(() => at)
    const observed: GatewayLimits = log.observed({ calls: limits, batches: limits })
    for (const realm of ['busy', 'busy', 'calm']) log.callEnded(realm, null)
    const waiting = observed.calls.acquire('waiting', () => {
      throw new Error('not called')
    })
    observed.batches.coolDown('held', 5_000)
    expect(coolDowns).toEqual(['held'])
    expect(log.list().map(({ realm }) => realm)).toEqual(['held', 'waiting', 'busy', 'calm'])
    expect(log.find('held').heldUntil).toBe(1_005_000)
    expect(log.find('waiting').waiting).toBe(1)
    granted.resolve({ release() {} })
    await waiting
    at += 5_000
    expect(log.find('held').heldUntil).toBeNull()
    expect(log.find('waiting').waiting).toBe(0)
  })

  it('the activity log drops the company that was added first if there are more than 10,000 companies', () => {
    const log = createRealmActivityLog(() => 1_000_000)
    for (let realm = 0; realm <= 10_000; realm += 1) log.callEnded(String(realm), null)
    expect(log.list()).toHaveLength(10_000)
    expect(log.find('0').lastMinute).toBe(0)
    expect(log.find('10000').lastMinute).toBe(1)
  })
})
