import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

const BROWSER = Date.parse('2026-11-24T12:00:00Z')
const HOUR_MS = 3_600_000

/** Returns the server's time as ISO 8601 if its clock is an hour ahead of the browser's clock. */
const anHourAhead = (browserTime: number): string => new Date(browserTime + HOUR_MS).toISOString()

describe('the estimate of the server clock in the browser', () => {
  beforeEach(() => {
    vi.resetModules()
    vi.useFakeTimers({ now: BROWSER })
  })
  afterEach(() => void vi.useRealTimers())

  it('the server is assumed to have read its clock in the middle of the request', async () => {
    const { serverNow, setServerTime } = await import('./server-clock.ts')
    setServerTime(anHourAhead(BROWSER - 200), BROWSER - 400)
    expect(serverNow()).toBe(BROWSER + HOUR_MS)
  })

  it('a message that arrives 3 s late does not change an estimate from a quick request', async () => {
    const { serverNow, setServerTime } = await import('./server-clock.ts')
    setServerTime(anHourAhead(BROWSER), BROWSER)
    setServerTime(anHourAhead(BROWSER - 3_000))
    expect(serverNow()).toBe(BROWSER + HOUR_MS)
  })

  it('a quick message corrects the estimate from a slow request', async () => {
    const { serverNow, setServerTime } = await import('./server-clock.ts')
    setServerTime(anHourAhead(BROWSER - 3_000), BROWSER - 3_000)
    expect(serverNow()).toBe(BROWSER + HOUR_MS - 1_500)
    setServerTime(anHourAhead(BROWSER))
    expect(serverNow()).toBe(BROWSER + HOUR_MS)
  })

  it.each([
    ['set back by two hours', -2 * HOUR_MS],
    ['set ahead by two hours', 2 * HOUR_MS],
  ])('the estimate restarts after the clock of the browser was %s', async (_, change) => {
    const { serverNow, setServerTime } = await import('./server-clock.ts')
    setServerTime(anHourAhead(BROWSER), BROWSER)
    vi.setSystemTime(BROWSER + change)
    setServerTime(anHourAhead(BROWSER), BROWSER + change)
    expect(serverNow()).toBe(BROWSER + HOUR_MS)
  })
})
