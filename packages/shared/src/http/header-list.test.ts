import { expect, it, describe } from 'vitest'
import { headerValue, parseRetryAfter } from './header-list.ts'

it('headerValue finds a header field by its name regardless of upper and lower case', () => {
  expect(headerValue(['A', '1', 'Retry-AFTER', '5'], 'retry-after')).toBe('5')
  expect(headerValue(['A', '1'], 'retry-after')).toBeNull()
})

describe('parseRetryAfter()', () => {
  const now = Date.parse('2026-01-01T00:00:00.000Z')

  it.each([
    ['30', 30_000],
    [' 120', 120_000],
    ['0', 0],
    ['9999999999', 9_999_999_999_000],
    ['-5', null],
    ['1.5', null],
    ['1e9', null],
    ['9'.repeat(400), Number.MAX_SAFE_INTEGER],
    ['abc', null],
    ['', null],
    [null, null],
    ['30, 60', null],
    ['2026-01-01T00:01:00Z', null],
    ['Thu, 01 Jan 2026 00:01:00 GMT', 60_000],
    ['Thursday, 01-Jan-26 00:01:00 GMT', 60_000],
    ['Thu Jan  1 00:01:00 2026', 60_000],
    ['Thu, 01 Jan 2015 00:00:00 GMT', 0],
    ['Thu, 01 Jan 2026 00:01:00 PST', null],
  ])('parseRetryAfter reads the Retry-After value %j as %j ms', (header, expected) => {
    expect(parseRetryAfter(header, now)).toBe(expected)
  })
})
