import { describe, expect, it } from 'vitest'
import { cronTimes } from './cron.ts'

const at = (time: string): number => Date.parse(time)
/** Returns the times of a cron expression from `from` until `until`, both included. */
function timesBetween(cron: string, timeZone: string, from: string, until: string): string[] {
  const times = cronTimes(cron, timeZone)
  const found: string[] = []
  for (let next = times.next(at(from) - 1); next <= at(until); next = times.next(next))
    found.push(new Date(next).toISOString().replace('.000Z', 'Z'))
  return found
}

describe('the times of a cron expression', () => {
  it.each([
    ['New York', 'America/New_York', '2026-03-08T05:00:00Z', '2026-03-08T07:00:00Z'],
    ['Berlin', 'Europe/Berlin', '2026-03-28T23:00:00Z', '2026-03-29T01:00:00Z'],
  ])(
    'a time that the clock skips in %s fires once, at the end of the gap',
    (_city, zone, midnight, gapEnd) => {
      const nextDay = new Date(at(midnight) + 23 * 3_600_000 - 1_000).toISOString()
      expect(timesBetween('30 2 * * *', zone, midnight, nextDay)).toEqual([gapEnd])
    },
  )

  it.each([
    [
      'New York',
      'America/New_York',
      '30 1 * * *',
      '2026-11-01T04:00:00Z',
      '2026-11-02T05:00:00Z',
      '2026-11-01T05:30:00Z',
    ],
    [
      'Berlin',
      'Europe/Berlin',
      '30 2 * * *',
      '2026-10-24T22:00:00Z',
      '2026-10-25T22:59:00Z',
      '2026-10-25T00:30:00Z',
    ],
  ])(
    'a time that the clock passes twice in %s fires once, the first time',
    (_city, zone, cron, from, until, first) => {
      expect(timesBetween(cron, zone, from, until)).toEqual([first])
    },
  )

  it.each([
    ['23 times on the day with a gap', '2026-03-29', 23],
    ['25 times on the day with an overlap', '2026-10-25', 25],
    ['24 times on any other day', '2026-06-01', 24],
  ])('an hourly cron expression fires %s', (_what, day, count) => {
    const zone = 'Europe/Berlin'
    const midnight = cronTimes('0 0 * * *', zone)
    const from = midnight.next(at(`${day}T00:00:00Z`) - 3 * 3_600_000)
    const until = midnight.next(from) - 1
    const times = timesBetween(
      '15 * * * *',
      zone,
      new Date(from).toISOString(),
      new Date(until).toISOString(),
    )
    expect(times).toHaveLength(count)
  })

  it.each([
    // A gap: each time of it happens at its end, and all of them are one time.
    ['0,30 1 * * *', 'Europe/London', '2026-03-29', ['01:00Z']],
    ['*/15 1 * * *', 'Europe/London', '2026-03-29', ['01:00Z']],
    ['0-10/5 1 * * *', 'Europe/London', '2026-03-29', ['01:00Z']],
    ['0 1-3 * * *', 'Europe/London', '2026-03-29', ['01:00Z', '02:00Z']],
    ['45 0,1 * * *', 'Europe/London', '2026-03-29', ['00:45Z', '01:00Z', '23:45Z']],
    ['30 1-2 * * *', 'America/New_York', '2026-03-08', ['06:30Z', '07:00Z']],
    ['0,30 2 * * *', 'Australia/Lord_Howe', '2026-10-03', ['15:30Z']],
    ['15 2 * * *', 'Australia/Lord_Howe', '2026-10-03', ['15:30Z']],
    ['0,50 2 * * *', 'Pacific/Chatham', '2026-09-26', ['13:15Z', '14:00Z']],
    ['0,30 1,2 * * *', 'Antarctica/Troll', '2026-03-29', ['01:00Z', '23:00Z', '23:30Z']],
    ['30 2,3 * * *', 'Africa/Casablanca', '2026-03-22', ['02:00Z', '02:30Z']],
    // A gap that begins or ends at midnight
    ['59 23 28 3 *', 'America/Nuuk', '2026-03-29', ['01:00Z']],
    ['30,59 23 * * *', 'America/Scoresbysund', '2026-03-29', ['01:00Z']],
    ['0,30 0 * * *', 'America/Santiago', '2026-09-06', ['04:00Z']],
    ['0,30 0 * * *', 'America/Havana', '2026-03-08', ['05:00Z']],
    ['0 0 * * *', 'Asia/Beirut', '2026-03-28', ['22:00Z']],
    ['0 0 24 4 *', 'Africa/Cairo', '2026-04-23', ['22:00Z']],
    // A whole day that a zone has skipped
    ['0 9 30 12 *', 'Pacific/Apia', '2011-12-30', ['10:00Z']],
    ['0 0,9 * * *', 'Pacific/Apia', '2011-12-30', ['10:00Z', '19:00Z']],
    // A repeated hour: the second pass does nothing.
    ['0,30 1 * * *', 'Europe/London', '2026-10-25', ['00:00Z', '00:30Z']],
    ['*/15 1 * * *', 'Europe/London', '2026-10-25', ['00:00Z', '00:15Z', '00:30Z', '00:45Z']],
    ['30 1-2 * * *', 'America/New_York', '2026-11-01', ['05:30Z', '07:30Z']],
    ['0,45 1 * * *', 'Australia/Lord_Howe', '2026-04-04', ['14:00Z', '14:45Z']],
    ['30 23 * * *', 'Asia/Beirut', '2026-10-24', ['20:30Z']],
    ['0 0 25 10 *', 'Asia/Beirut', '2026-10-24', ['22:00Z']],
  ])('%s in %s fires on %s at %j', (cron, zone, day, expected) => {
    const found = timesBetween(cron, zone, `${day}T00:00:00Z`, `${day}T23:59:59Z`)
    expect(found.map((time) => time.slice(11).replace(':00Z', 'Z'))).toEqual(expected)
  })

  it.each(['America/New_York', 'Europe/Berlin', 'Australia/Lord_Howe', 'UTC'])(
    'for a year in the time zone %s, latest() returns the same times as repeated calls of next()',
    (zone) => {
      for (const cron of [
        '30 2 * * *',
        '30 1-2 * * *',
        '0 */2 * * *',
        '0 9 * * MON-FRI',
        '0 0 L * *',
      ]) {
        const from = at('2026-01-01T00:00:00Z')
        const until = at('2027-01-01T00:00:00Z')
        const times = cronTimes(cron, zone)
        const forwards: number[] = []
        for (let next = times.next(from - 1); next <= until; next = times.next(next))
          forwards.push(next)
        expect(times.latest(from, until, 10_000)).toEqual(forwards)
        expect(times.latest(from, until, 3)).toEqual(forwards.slice(-3))
      }
    },
  )

  it.each([
    ['30 February', '0 0 30 2 *', 'UTC', 'never fires'],
    ['31 April', '0 0 31 4 *', 'UTC', 'never fires'],
    ['six fields', '* * * * * *', 'UTC', 'once a minute at most'],
    ['four fields', '0 2 * *', 'UTC', 'five fields'],
    ['an alias', '@daily', 'UTC', 'five fields'],
    ['a date', '2027-01-01T00:00:00Z', 'UTC', 'five fields'],
    ['an empty text', '', 'UTC', 'five fields'],
    ['minute 60', '60 * * * *', 'UTC', 'minute: 60'],
    ['an unknown name', '0 0 * * FOO', 'UTC', 'is not valid'],
    ['a zone that does not exist', '0 2 * * *', 'Mars/Base', 'time zone Mars/Base does not exist'],
    ['an empty zone', '0 2 * * *', '', 'does not exist'],
    ['an offset', '0 2 * * *', '+02:00', 'is not a name'],
  ])('a cron expression or a time zone is rejected: %s', (_what, cron, zone, message) => {
    expect(() => cronTimes(cron, zone)).toThrow(message)
  })
})
