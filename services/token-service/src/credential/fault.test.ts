import { describe, expect, it } from 'vitest'
import { Fault } from '@integration-host/shared/contracts/credential'
import {
  faultOf,
  hasEndedGrant,
  isProvisional,
  isTerminal,
  RETRY_CAP_MS,
  retryDelayMs,
} from './fault.ts'

describe('the fault of a credential', () => {
  const at = Date.parse('2026-01-01T00:00:00.000Z')

  it('a fault has the documented message and a remedy', () => {
    const fault = faultOf(
      'ACC-12',
      'invalid_grant',
      { body: '{"error":"invalid_grant"}', traceId: 'tid-1' },
      { at, attempts: 2 },
    )
    expect(fault).toEqual({
      Code: 'invalid_grant',
      Message: `Couldn't refresh token for realm ACC-12, {"error":"invalid_grant"}`,
      At: '2026-01-01T00:00:00.000Z',
      Since: '2026-01-01T00:00:00.000Z',
      Attempts: 2,
      TraceId: 'tid-1',
      Remedy: expect.stringContaining('Reconnect'),
      Final: true,
    })
    expect(Fault.parse(fault)).toEqual(fault)
    expect(isTerminal(fault)).toBe(true)
  })

  it('a fault is provisional and has NextTryAt if the rejected refresh token will be sent again', () => {
    const fault = faultOf(
      'ACC-12',
      'invalid_grant',
      { body: '{"error":"invalid_grant"}', traceId: null },
      { at, attempts: 1, rejections: 1, retryAt: at + 300_000 },
    )
    expect(fault).toMatchObject({
      Message: `Couldn't refresh token for realm ACC-12, {"error":"invalid_grant"}`,
      Final: false,
      Rejections: 1,
      NextTryAt: '2026-01-01T00:05:00.000Z',
      Remedy: expect.stringContaining('tried again automatically'),
    })
    expect(Fault.parse(fault)).toEqual(fault)
    expect([isTerminal(fault), isProvisional(fault), hasEndedGrant(fault)]).toEqual([
      false,
      true,
      true,
    ])
  })

  it('the fault used_elsewhere names both possible causes, and what decides between an outage and the end of the grant', () => {
    const remedyOf = (retryAt: number | null) =>
      faultOf('ACC-1', 'used_elsewhere', { body: '', traceId: null }, { at, attempts: 1, retryAt })
        .Remedy
    expect(remedyOf(null)).toMatch(/^Reconnect the company/)
    expect(remedyOf(at + 300_000)).toMatch(/^Refresh now.*automatically\.$/)
    for (const remedy of [remedyOf(null), remedyOf(at + 300_000)])
      expect(remedy).toMatch(
        /either (?:its owner|the owner of the company) disconnected the application, or another program/,
      )
  })

  it('a fault of a rejected grant counts as final if an earlier release stored the fault without the member Final', () => {
    const { Final: _, ...stored } = faultOf(
      'ACC-1',
      'invalid_grant',
      { body: '', traceId: null },
      { at, attempts: 1 },
    )
    expect([isTerminal(stored), isProvisional(stored)]).toEqual([true, false])
  })

  it('only the fault classes that need a new authorization are final', () => {
    const of = (
      code: 'provider_unavailable' | 'provider_rejected' | 'rotation_lost' | 'no_refresh_token',
    ) => isTerminal(faultOf('ACC-1', code, { body: '', traceId: null }, { at, attempts: 1 }))
    expect([
      of('rotation_lost'),
      of('no_refresh_token'),
      of('provider_unavailable'),
      of('provider_rejected'),
    ]).toEqual([true, true, false, false])
    expect(isTerminal(null)).toBe(false)
  })
})

describe('retryDelayMs(): the delay before a failed refresh is retried', () => {
  it('retryDelayMs() doubles the delay with each attempt, with jitter, up to 15 minutes', () => {
    expect([1, 2, 3, 4].map((attempts) => retryDelayMs(attempts, null, 0))).toEqual([
      1_000, 2_000, 4_000, 8_000,
    ])
    expect(retryDelayMs(1, null, 0.999)).toBeLessThan(2_000)
    expect(retryDelayMs(1_000, null, 0.999)).toBeLessThanOrEqual(RETRY_CAP_MS)
    expect(retryDelayMs(1_000, null, 0)).toBe(RETRY_CAP_MS / 2)
  })

  it('retryDelayMs() returns at least the time in Retry-After, but not more than the limit', () => {
    for (const random of [0, 0.5, 0.999]) {
      expect(retryDelayMs(1, 30_000, random)).toBeGreaterThanOrEqual(30_000)
      expect(retryDelayMs(1, 1e12, random)).toBeLessThan(RETRY_CAP_MS * 1.3)
    }
    expect(retryDelayMs(1, 0, 0)).toBe(0)
  })
})
