import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { afterFailure, afterStatus, coolDownMs, isIdempotent } from './retry.ts'

const tries = { canRepeat: true, attempt: 1, remainingMs: 100_000, random: 0 }

describe('idempotency of request methods', () => {
  it.each([
    ['GET', true],
    ['HEAD', true],
    ['OPTIONS', true],
    ['PUT', true],
    ['DELETE', true],
    ['POST', false],
    ['PATCH', false],
  ])('for the method %s, isIdempotent() returns %s', (method, idempotent) => {
    expect(isIdempotent(method)).toBe(idempotent)
  })
})

describe('the decision to retry a call', () => {
  it.each([200, 201, 204, 304, 400, 401, 403, 404, 408, 409, 500, 501, 505])(
    'the gateway relays a response with status %i without a retry',
    (status) => {
      expect(afterStatus(status, null, tries)).toEqual({ kind: 'pass' })
    },
  )

  it.each([429, 502, 503, 504])('the gateway retries a call after status %i', (status) => {
    expect(afterStatus(status, null, tries)).toEqual({ kind: 'retry', delayMs: 100 })
  })

  it('the gateway waits between 50 % and 100 % of a back-off before a retry, and doubles the back-off with each attempt', () => {
    const delays = [1, 2, 3].map((attempt) =>
      [0, 0.999].map((random) => afterStatus(503, null, { ...tries, attempt, random })),
    )
    expect(delays).toEqual([
      [
        { kind: 'retry', delayMs: 100 },
        { kind: 'retry', delayMs: 199 },
      ],
      [
        { kind: 'retry', delayMs: 200 },
        { kind: 'retry', delayMs: 399 },
      ],
      [
        { kind: 'retry', delayMs: 400 },
        { kind: 'retry', delayMs: 799 },
      ],
    ])
  })

  it('the gateway does not retry a call more than three times', () => {
    expect(afterStatus(503, null, { ...tries, attempt: 4 })).toEqual({ kind: 'pass' })
    expect(afterFailure({ ...tries, attempt: 3 }).kind).toBe('retry')
    expect(afterFailure({ ...tries, attempt: 4 })).toEqual({ kind: 'pass' })
  })

  it('the gateway waits for the time in Retry-After before a retry if this time exceeds the back-off', () => {
    expect(afterStatus(429, 60_000, tries)).toEqual({ kind: 'retry', delayMs: 60_000 })
  })

  it('the gateway relays a response instead of retrying if the delay would exceed the deadline', () => {
    expect(afterStatus(429, 60_000, { ...tries, remainingMs: 60_000 })).toEqual({ kind: 'pass' })
    expect(afterFailure({ ...tries, remainingMs: 50 })).toEqual({ kind: 'pass' })
  })

  it('the gateway never retries a call that must not be repeated', () => {
    expect(afterStatus(503, null, { ...tries, canRepeat: false })).toEqual({ kind: 'pass' })
    expect(afterFailure({ ...tries, canRepeat: false })).toEqual({ kind: 'pass' })
  })
})

describe('the value of Retry-After', () => {
  const now = Date.UTC(2026, 10, 20, 12, 0, 0)

  it.each([
    ['120', 120_000],
    [' 5 ', 5_000],
    ['0', 0],
    ['Fri, 20 Nov 2026 12:01:30 GMT', 90_000],
    ['Fri, 20 Nov 2026 11:00:00 GMT', 0],
    ['Friday, 20-Nov-26 12:01:30 GMT', 90_000],
    ['99999999', 3_600_000],
    ['9'.repeat(400), 3_600_000],
    ['Fri, 20 Nov 2099 12:01:30 GMT', 3_600_000],
    ['soon', null],
    ['-5', null],
    ['1.5', null],
    ['1e3', null],
    ['0x10', null],
    ['Infinity', null],
    ['120, 60', null],
    ['Fri, 99 Nov 2026 12:01:30 GMT', null],
    ['2027', 2_027_000],
    ['', null],
    [null, null],
  ])('the gateway reads Retry-After %j as %j milliseconds', (value, ms) => {
    expect(coolDownMs(value, now)).toBe(ms)
  })

  it('coolDownMs() returns null or at most one hour for any Retry-After text', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.double().map(String),
      fc.bigInt().map(String),
      fc.date({ noInvalidDate: true }).map((date) => date.toUTCString()),
      fc.stringMatching(/^[A-Z][a-z]{2},? [\w :+-]{0,30}GMT$/),
    )
    fc.assert(
      fc.property(text, (value) => {
        const ms = coolDownMs(value, now)
        if (ms === null) return
        expect(ms).toBeGreaterThanOrEqual(0)
        expect(ms).toBeLessThanOrEqual(3_600_000)
      }),
      { numRuns: 2_000 },
    )
  })
})
