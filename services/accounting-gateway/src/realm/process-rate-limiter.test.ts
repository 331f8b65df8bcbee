import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { createProcessRateLimiter } from './process-rate-limiter.ts'

it('the in-process rate limiter permits exactly the calls that a sliding window over the list of all calls would permit', () => {
  const rates = fc.record({
    perSecond: fc.integer({ min: 1, max: 60 }),
    perMinute: fc.integer({ min: 1, max: 200 }),
    concurrent: fc.constant(10_000),
  })
  const pauses = fc.array(fc.oneof(fc.nat(20), fc.nat(2_000), fc.nat(70_000)), { maxLength: 400 })
  fc.assert(
    fc.property(rates, pauses, (limits, pausesMs) => {
      let now = 1_000_000
      const limiter = createProcessRateLimiter(limits, () => now)
      const sent: number[] = []
      const waitFor = (limit: number, windowMs: number): number =>
        (sent.at(-limit) ?? Number.NEGATIVE_INFINITY) + windowMs - now
      for (const pauseMs of pausesMs) {
        now += pauseMs
        const waitMs = Math.max(waitFor(limits.perSecond, 1_000), waitFor(limits.perMinute, 60_000))
        const reservation = limiter.reserve('1')
        if (waitMs > 0) expect(reservation).toEqual({ denial: { reason: 'rate', waitMs } })
        else {
          expect(reservation).toHaveProperty('permit')
          sent.push(now)
        }
      }
    }),
    { seed: 3, numRuns: 300 },
  )
})
