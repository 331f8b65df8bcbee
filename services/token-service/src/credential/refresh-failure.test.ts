import { describe, expect, it } from 'vitest'
import { grantOf, START } from '../../test-support/grants.ts'
import { type Credential, credentialOf } from './credential.ts'
import { faultOf } from './fault.ts'
import { noLabels } from './labels.ts'
import {
  rejectionClass,
  type RefreshFailure,
  type RefreshFailureContext,
  settlementOf,
} from './refresh-failure.ts'

const response = { body: '{"error":"x"}', traceId: 'trace-1' }
const failureOf = (
  failureClass: RefreshFailure['failureClass'],
  overrides: Partial<RefreshFailure> = {},
): RefreshFailure => ({
  failureClass,
  response,
  retryAfterMs: null,
  isAmbiguous: false,
  ...overrides,
})
const context: RefreshFailureContext = {
  at: START,
  random: 0,
  isTokenNeeded: true,
  rejectedGrantRetryDelaysMs: [300_000, 3_600_000],
  storeChangedAt: null,
}
const healthy = { name: 'ACC-1', attempts: 0, fault: null, refreshedAt: START - 3_600_000 }
const provisional = {
  ...healthy,
  attempts: 1,
  fault: faultOf('ACC-1', 'invalid_grant', response, {
    at: START - 1,
    attempts: 1,
    rejections: 1,
    retryAt: START,
  }),
}

describe('the fault and the retry time that a failed refresh stores', () => {
  it('if the provider is unavailable when a token is needed, a fault is recorded and the refresh is retried with back-off', () => {
    expect(settlementOf(healthy, failureOf('provider_unavailable'), context)).toEqual({
      attempts: 1,
      nextTryAt: START + 1_000,
      fault: faultOf('ACC-1', 'provider_unavailable', response, { at: START, attempts: 1 }),
      isPublished: true,
      keepsIntent: false,
    })
  })

  it('a failure unrelated to the grant does not change the time at which a rejected refresh token is sent again', () => {
    const inHours = START + 17 * 3_600_000
    const lastTry = {
      ...provisional,
      fault: faultOf('ACC-1', 'invalid_grant', response, {
        at: START - 1,
        attempts: 4,
        rejections: 4,
        retryAt: inHours,
      }),
    }
    for (const failureClass of ['provider_unavailable', 'throttled', 'client_refused'] as const) {
      const failure = failureOf(failureClass, { retryAfterMs: 30_000, isAmbiguous: true })
      expect(settlementOf(lastTry, failure, context)).toMatchObject({
        nextTryAt: inHours,
        fault: { Code: 'invalid_grant', Final: false, NextTryAt: new Date(inHours).toISOString() },
      })
    }
  })

  it('a failed refresh records no fault while a valid access token can be issued', () => {
    const settlement = settlementOf(healthy, failureOf('provider_unavailable'), {
      ...context,
      isTokenNeeded: false,
    })
    expect(settlement).toMatchObject({ attempts: 1, fault: null, isPublished: false })
  })

  it('a throttled refresh is recorded as provider_unavailable and is not retried before Retry-After has passed', () => {
    const settlement = settlementOf(
      healthy,
      failureOf('throttled', { retryAfterMs: 30_000 }),
      context,
    )
    expect(settlement).toMatchObject({
      nextTryAt: START + 30_000,
      fault: { Code: 'provider_unavailable' },
    })
  })

  it('a refresh with rejected client credentials does not count as an attempt, and is retried at the next probe', () => {
    const failure = failureOf('client_refused', { retryAfterMs: 1_000 })
    expect(settlementOf(healthy, failure, { ...context, random: 0.999 })).toEqual({
      attempts: 0,
      nextTryAt: START + 1_000,
      fault: null,
      isPublished: false,
      keepsIntent: false,
    })
  })

  it('only the first failure of a refresh and the failure that ends the grant are published', () => {
    const fault = faultOf('ACC-1', 'provider_unavailable', response, { at: START, attempts: 1 })
    const failing = { ...healthy, attempts: 1, fault }
    const again = settlementOf(failing, failureOf('provider_bad_response'), context)
    expect(again).toMatchObject({
      attempts: 2,
      fault: { Code: 'provider_bad_response', Since: fault.At },
      isPublished: false,
    })
    expect(settlementOf(failing, failureOf('invalid_grant'), context).isPublished).toBe(true)
  })

  it.each([
    ['first', healthy, 1, 300_000],
    ['second', provisional, 2, 3_600_000],
  ])(
    'the %s rejection of a refresh token causes a provisional fault, because the token will be sent again',
    (_, credential, rejections, delayMs) => {
      const settlement = settlementOf(credential, failureOf('invalid_grant'), context)
      expect(settlement).toMatchObject({
        nextTryAt: START + delayMs,
        fault: { Code: 'invalid_grant', Final: false, Rejections: rejections },
        isPublished: rejections === 1,
      })
    },
  )

  it('a provisional fault is published again when it turns out that the company has disconnected the application', () => {
    const settlement = settlementOf(provisional, failureOf('disconnected'), context)
    expect(settlement).toMatchObject({
      fault: { Code: 'disconnected', Final: false },
      isPublished: true,
    })
    const { fault } = settlement
    if (fault === null) throw new Error('there is no fault')
    const again = settlementOf({ ...provisional, fault }, failureOf('disconnected'), context)
    expect(again.isPublished).toBe(false)
  })

  it('a rejection after the last retry delay makes the fault final and is published', () => {
    const standing = { ...provisional.fault, Rejections: 2 }
    const failure = failureOf('rotation_lost', { isAmbiguous: true })
    const settlement = settlementOf({ ...provisional, fault: standing }, failure, context)
    expect(settlement).toMatchObject({
      nextTryAt: null,
      fault: { Code: 'rotation_lost', Final: true, Rejections: 3 },
      isPublished: true,
      keepsIntent: false,
    })
  })

  it('a failure unrelated to the grant does not replace a provisional fault', () => {
    const settlement = settlementOf(provisional, failureOf('provider_unavailable'), context)
    expect(settlement).toMatchObject({
      attempts: 2,
      fault: {
        Code: 'invalid_grant',
        Final: false,
        Rejections: 1,
        NextTryAt: new Date(START + 2_000).toISOString(),
      },
      isPublished: false,
    })
  })

  it.each(['hard_expired', 'idle_expired', 'no_refresh_token'] as const)(
    'the failure %s ends the grant immediately',
    (failureClass) => {
      expect(settlementOf(healthy, failureOf(failureClass), context)).toMatchObject({
        nextTryAt: null,
        fault: { Code: failureClass, Final: true },
        isPublished: true,
      })
    },
  )

  it('the refresh intent is kept if the provider may have rotated the refresh token', () => {
    const failure = failureOf('provider_unavailable', { isAmbiguous: true })
    expect(settlementOf(healthy, failure, context).keepsIntent).toBe(true)
  })

  it.each([
    ['after', healthy.refreshedAt + 1, true],
    ['before', healthy.refreshedAt, false],
  ])(
    'the remedy mentions a lost token pair only if Redis failed over after the rejected token was stored (%s)',
    (_, storeChangedAt, isNamed) => {
      for (const rejectedGrantRetryDelaysMs of [[], [300_000]]) {
        const { fault } = settlementOf(healthy, failureOf('invalid_grant'), {
          ...context,
          rejectedGrantRetryDelaysMs,
          storeChangedAt,
        })
        expect(/lost a newer/.test(fault?.Remedy ?? '')).toBe(isNamed)
      }
    },
  )
})

describe('the fault class of a rejected refresh token', () => {
  const stored = credentialOf(grantOf('ACC-1', 'one'), 1, noLabels)
  const DAY_MS = 86_400_000
  const cause = {
    at: START + DAY_MS,
    isDisconnectReported: false,
    isAmbiguous: false,
    storeChangedAt: null,
  }
  const classOf = (
    overrides: Partial<typeof cause | { storeChangedAt: number }>,
    { isUnused = true, ...credential }: Partial<Credential> & { isUnused?: boolean } = {},
  ) =>
    rejectionClass(
      { credential: { ...stored, ...credential }, isUnused },
      { ...cause, ...overrides },
    )

  it('an unused refresh token that is rejected within its lifetime gets the fault class used_elsewhere', () => {
    expect(classOf({})).toBe('used_elsewhere')
  })

  it.each<readonly [string, ReturnType<typeof classOf>, string]>([
    ['the token was used before', classOf({}, { isUnused: false }), 'invalid_grant'],
    ['a request had an unknown outcome', classOf({ isAmbiguous: true }), 'rotation_lost'],
    ['a disconnect was reported', classOf({ isDisconnectReported: true }), 'disconnected'],
    [
      'a disconnect was reported and a request had an unknown outcome',
      classOf({ isDisconnectReported: true, isAmbiguous: true }),
      'disconnected',
    ],
    [
      'the store may have lost a newer pair',
      classOf({ storeChangedAt: START + 1 }),
      'invalid_grant',
    ],
    ['the grant was idle for too long', classOf({ at: stored.idleExpiresAt }), 'idle_expired'],
    ['the grant is too old', classOf({}, { hardExpiresAt: START }), 'hard_expired'],
    [
      'the token was rejected before',
      classOf({ isAmbiguous: true }, { fault: provisional.fault }),
      'invalid_grant',
    ],
  ])('the fault class used_elsewhere is not chosen if %s', (_, actual, expected) => {
    expect(actual).toBe(expected)
  })

  it('after a reported disconnect, the rejected token is sent again, and the remedy names the ways to reconnect', () => {
    const first = settlementOf(healthy, failureOf('disconnected'), context)
    expect(first).toMatchObject({ nextTryAt: START + 300_000, fault: { Final: false } })
    const second = settlementOf(
      { ...healthy, fault: first.fault },
      failureOf('disconnected'),
      context,
    )
    expect(second).toMatchObject({ fault: { Final: false, Rejections: 2 } })
    for (const { fault } of [first, second]) {
      expect(fault?.Remedy).toContain('it disconnected the application')
      expect(fault?.Remedy).toContain('connect link')
    }
  })

  it('a reported disconnect does not make a provisional fault final before the rejected token has been sent again', () => {
    const rejected = settlementOf(healthy, failureOf('invalid_grant'), context)
    const reported = settlementOf(
      { ...healthy, fault: rejected.fault },
      failureOf('disconnected'),
      context,
    )
    expect(reported).toMatchObject({
      nextTryAt: START + 300_000,
      fault: { Code: 'disconnected', Final: false, Rejections: 1 },
    })
  })
})
