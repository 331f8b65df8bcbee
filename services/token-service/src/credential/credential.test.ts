import { describe, expect, it } from 'vitest'
import { Secret } from '@integration-host/shared/secrets/secret'
import {
  expiryNotice,
  freshness,
  grantTimes,
  lifetimeSeconds,
  refreshDueAt,
  spread,
} from './credential.ts'

const HOUR = 3_600_000
const AHEAD = 600_000
const DAY = 24 * HOUR
const token = {
  name: 'ACC-1',
  accessToken: new Secret('t'),
  refreshedAt: 0,
  expiresAt: HOUR,
  idleExpiresAt: 100 * DAY,
}

describe('freshness of a credential', () => {
  const dueAt = refreshDueAt(token, AHEAD)

  it.each([
    ['fresh', 0],
    ['fresh', dueAt - 1],
    ['due', dueAt],
    ['due', HOUR - 1],
    ['expired', HOUR],
    ['expired', HOUR * 100],
  ])(
    'an access token with a lifetime of one hour is %s %d ms after its refresh',
    (expected, now) => {
      expect(freshness(token, now, AHEAD)).toBe(expected)
    },
  )

  it('a credential without an access token counts as expired at any time', () => {
    expect(freshness({ ...token, accessToken: null }, 0, AHEAD)).toBe('expired')
  })
})

describe('refreshDueAt(): the time of the proactive refresh', () => {
  const names = Array.from({ length: 2_000 }, (_, index) => `ACC-${index}`)

  it('refreshDueAt() varies the margin before expiry by ±20 % between realms, and is constant for each realm', () => {
    const margins = names.map((name) => (HOUR - refreshDueAt({ ...token, name }, AHEAD)) / AHEAD)
    expect(Math.min(...margins)).toBeGreaterThanOrEqual(0.8)
    expect(Math.max(...margins)).toBeLessThanOrEqual(1.2)
    expect(Math.min(...margins)).toBeLessThan(0.81)
    expect(Math.max(...margins)).toBeGreaterThan(1.19)
    expect(refreshDueAt(token, AHEAD)).toBe(refreshDueAt({ ...token }, AHEAD))
  })

  it('spread() distributes similar credential names evenly', () => {
    const tenths = Array.from({ length: 10 }, () => 0)
    for (const name of names)
      tenths[Math.floor(spread(name) * 10)] = (tenths[Math.floor(spread(name) * 10)] ?? 0) + 1
    for (const count of tenths) expect(count).toBeGreaterThan(140)
  })

  it('refreshDueAt() returns no time before half of the token lifetime has passed', () => {
    expect(refreshDueAt({ ...token, expiresAt: 10_000 }, AHEAD)).toBe(5_000)
    expect(freshness({ ...token, expiresAt: 10_000 }, 1, AHEAD)).toBe('fresh')
  })
})

describe('the time limits of a grant', () => {
  it('a refresh is due at 50 to 70 % of the idle limit if this is earlier than the expiry of the access token', () => {
    for (const name of ['ACC-1', 'ACC-2', 'ACC-3']) {
      const dueAt = refreshDueAt({ ...token, name, expiresAt: 365 * DAY }, AHEAD)
      expect(dueAt).toBeGreaterThanOrEqual(50 * DAY)
      expect(dueAt).toBeLessThanOrEqual(70 * DAY)
    }
  })

  it.each([
    ['the setting if the response has no limit', null, 100 * DAY],
    ['the response if the limit there is shorter', 30 * 86_400, 30 * DAY],
    ['the setting if the limit in the response is longer', 101 * 86_400, 100 * DAY],
  ])('the idle limit is taken from %s', (_, idleSeconds, expected) => {
    const tokens = { lifetimeSeconds: 3_600, idleSeconds, hardSeconds: null }
    expect(grantTimes(tokens, 1_000, 100 * DAY)).toMatchObject({
      idleExpiresAt: 1_000 + expected,
      hardExpiresAt: null,
    })
  })

  it.each([
    [91 * DAY, null],
    [90 * DAY, 90],
    [30 * DAY + 1, 90],
    [30 * DAY, 30],
    [7 * DAY, 7],
    [0, 7],
    [-DAY, 7],
  ])('for a hard expiry in %d ms, the notice period in days is %s', (leftMs, expected) => {
    expect(expiryNotice(5_000 + leftMs, 5_000)).toBe(expected)
    expect(expiryNotice(null, 5_000)).toBeNull()
  })
})

describe('lifetimeSeconds(): the lifetime of an access token', () => {
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
  ])('lifetimeSeconds() reads expires_in %j as %d seconds', (given, expected) => {
    expect(lifetimeSeconds(given)).toBe(expected)
  })
})
