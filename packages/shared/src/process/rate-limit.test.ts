import { expect, it } from 'vitest'
import { createRateLimit } from './rate-limit.ts'

it('a rate limit allows at most the given number of operations in each interval', () => {
  let now = 1_000
  const limit = createRateLimit({ count: 2, intervalMs: 100, now: () => now })
  const taken = () => [limit.take(), limit.take(), limit.take()]
  expect(taken()).toEqual([true, true, false])
  now += 99
  expect(limit.take()).toBe(false)
  now += 1
  expect(taken()).toEqual([true, true, false])
})

it('a group of callers that has used up its share of a rate limit does not affect the other groups', () => {
  let now = 0
  const limit = createRateLimit({ count: 3, perLane: 2, intervalMs: 100, now: () => now })
  expect(['a', 'a', 'a', 'b', 'c'].map((lane) => limit.take(lane))).toEqual([
    true,
    true,
    false,
    true,
    false, // the limit of all groups
  ])
  now = 100
  expect(limit.take('a')).toBe(true)
})
