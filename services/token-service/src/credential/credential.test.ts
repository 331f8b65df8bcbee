import { describe, expect, it } from 'vitest'
import { Secret } from '@integration-host/shared/secret'
import { freshness, lifetimeSeconds, refreshDueAt, spread } from './credential.ts'

const HOUR = 3_600_000
const AHEAD = 600_000
const token = { name: 'ACC-1', accessToken: new Secret('t'), refreshedAt: 0, expiresAt: HOUR }

describe('the freshness of a credential', () => {
  const dueAt = refreshDueAt(token, AHEAD)

  it.each([
    ['fresh', 0],
    ['fresh', dueAt - 1],
    ['due', dueAt],
    ['due', HOUR - 1],
    ['expired', HOUR],
    ['expired', HOUR * 100],
  ])('is %s at %d ms of its hour', (expected, now) => {
    expect(freshness(token, now, AHEAD)).toBe(expected)
  })

  it('is expired without an access token, whatever the clock says', () => {
    expect(freshness({ ...token, accessToken: null }, 0, AHEAD)).toBe('expired')
  })
})

describe('the time of the proactive refresh', () => {
  const names = Array.from({ length: 2_000 }, (_, index) => `ACC-${index}`)

  it('is spread over ±20 % of the margin, the same for a realm every time', () => {
    const margins = names.map((name) => (HOUR - refreshDueAt({ ...token, name }, AHEAD)) / AHEAD)
    expect(Math.min(...margins)).toBeGreaterThanOrEqual(0.8)
    expect(Math.max(...margins)).toBeLessThanOrEqual(1.2)
    expect(Math.min(...margins)).toBeLessThan(0.81)
    expect(Math.max(...margins)).toBeGreaterThan(1.19)
    expect(refreshDueAt(token, AHEAD)).toBe(refreshDueAt({ ...token }, AHEAD))
  })

  it('spreads similar names evenly', () => {
    const tenths = Array.from({ length: 10 }, () => 0)
    for (const name of names)
      tenths[Math.floor(spread(name) * 10)] = (tenths[Math.floor(spread(name) * 10)] ?? 0) + 1
    for (const count of tenths) expect(count).toBeGreaterThan(140)
  })

  it('is never before half the lifetime, so that a short-lived token is not refreshed for ever', () => {
    expect(refreshDueAt({ ...token, expiresAt: 10_000 }, AHEAD)).toBe(5_000)
    expect(freshness({ ...token, expiresAt: 10_000 }, 1, AHEAD)).toBe('fresh')
  })
})

describe('a lifetime as a provider sends it', () => {
  it.each([
    [3600, 3600],
    ['3600', 3600],
    [' 120 ', 120],
    [3600.5, 3600.5],
    [1, 1],
    [86_400, 86_400],
    [1e12, 86_400],
    [9e15, 86_400],
    [Number.POSITIVE_INFINITY, 86_400],
    ['99999999999999999999', 86_400],
    [undefined, 3000],
    [null, 3000],
    [0, 3000],
    [-1, 3000],
    ['-5', 3000],
    ['', 3000],
    ['abc', 3000],
    ['1e9', 3000],
    [Number.NaN, 3000],
    [{}, 3000],
    [true, 3000],
    [[3600], 3000],
  ])('%j is %d seconds', (given, expected) => {
    expect(lifetimeSeconds(given)).toBe(expected)
  })
})
