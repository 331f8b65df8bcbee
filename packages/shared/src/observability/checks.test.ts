import { describe, expect, it } from 'vitest'
import { checkClock, httpClock } from './checks.ts'

const NOON = Date.parse('2026-01-01T12:00:00.000Z')
const at = (remoteAt: number, tookMs = 100) =>
  checkClock({ remoteAt, requestedAt: NOON, respondedAt: NOON + tookMs })

describe('checking the clock of another machine', () => {
  it('checkClock accepts a clock difference that the response time can explain', () => {
    expect(at(NOON + 50)).toMatchObject({ verdict: 'ok' })
    expect(at(NOON + 1_900)).toMatchObject({ verdict: 'ok' })
    expect(at(NOON - 1_000, 10_000)).toMatchObject({ verdict: 'ok' })
  })

  it.each([
    [3_000, 'warning', '3.0 s ahead of this machine'],
    [-3_000, 'warning', '3.0 s behind this machine'],
    [600_000, 'problem', '600.0 s ahead of this machine'],
    [-45_000, 'problem', '45.0 s behind this machine'],
  ])('checkClock reports a clock that differs by %i ms as a %s: %s', (offMs, verdict, found) => {
    expect(at(NOON + 50 + offMs)).toMatchObject({ verdict, found })
  })

  it('httpClock reads the clock of a server from the Date header, whose precision is one second', () => {
    const dated = (date: string | null) =>
      httpClock(new Response('', { headers: date === null ? {} : { Date: date } }), NOON, NOON + 10)
    const reading = dated('Thu, 01 Jan 2026 11:59:58 GMT')
    expect(reading && checkClock(reading)).toMatchObject({ verdict: 'ok' })
    expect(dated(null)).toBeNull()
    expect(dated('yesterday')).toBeNull()
  })
})
