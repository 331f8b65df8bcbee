import { describe, expect, it } from 'vitest'
import { parseRetryAfter, verdictOf } from './retry-policy.ts'

describe('the verdict on a response', () => {
  it.each([
    [200, 'completed'],
    [201, 'completed'],
    [204, 'completed'],
    [299, 'completed'],
    [301, 'failed'],
    [304, 'failed'],
    [400, 'failed'],
    [401, 'failed'],
    [404, 'failed'],
    [408, 'retry'],
    [409, 'failed'],
    [422, 'failed'],
    [424, 'failed'],
    [425, 'retry'],
    [429, 'retry'],
    [500, 'retry'],
    [501, 'retry'],
    [503, 'retry'],
    [599, 'retry'],
  ])('%i is %s', (status, verdict) => expect(verdictOf(status)).toBe(verdict))
})

describe('Retry-After', () => {
  const now = Date.parse('2026-11-20T12:00:00Z')
  it.each([
    ['120', 120_000],
    ['0', 0],
    [' 5 ', 5_000],
    ['Fri, 20 Nov 2026 12:00:30 GMT', 30_000],
    ['Fri, 20 Nov 2026 11:00:00 GMT', 0],
    ['soon', null],
    ['-5', null],
    ['1.5', null],
    ['2026-11-20', null],
    ['', null],
    [null, null],
  ])('%j means %j ms', (value, ms) => expect(parseRetryAfter(value, now)).toBe(ms))
})
