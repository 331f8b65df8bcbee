import { describe, expect, it } from 'vitest'
import { timeFormat, withEvenWidth, zoneOf } from './time-format.ts'

const TIME = new Date('2026-11-24T23:12:04.120Z')
const plain = (text: string): string => text.replaceAll(/\s/g, ' ')

describe('the format of times in the console', () => {
  it('the console shows times in the chosen zone, and adds the name of the zone to a time with a date', () => {
    const utc = timeFormat('UTC', 'en-GB')
    const kathmandu = timeFormat('Asia/Kathmandu', 'en-GB')
    expect(plain(utc.full(TIME))).toBe('24 Nov 2026, 23:12:04 UTC')
    expect(plain(kathmandu.full(TIME))).toBe('25 Nov 2026, 04:57:04 GMT+5:45')
    expect([utc.timeMs(TIME), kathmandu.timeMs(TIME)]).toEqual(['23:12:04.120', '04:57:04.120'])
    expect([utc.zoneName, kathmandu.zoneName]).toEqual(['UTC', 'Kathmandu'])
  })

  it('in a list, the console shows the date of a time only if the time is not today in the chosen zone', () => {
    const now = new Date('2026-11-25T01:00:00Z')
    expect(timeFormat('Asia/Kathmandu', 'en-GB').inList(TIME, now)).toBe('04:57:04')
    expect(plain(timeFormat('UTC', 'en-GB').inList(TIME, now))).toBe('24 Nov, 23:12')
  })

  it('an hour has a leading zero only in a language that writes it, also in times with a date or with milliseconds', () => {
    const early = new Date('2026-11-24T03:12:04.120Z')
    const later = new Date('2026-11-26T01:00:00Z')
    const timesIn = (locale: string): readonly string[] => {
      const utc = timeFormat('UTC', locale)
      return [
        utc.inList(early, early),
        utc.inList(early, later),
        utc.timeMs(early),
        utc.fullMs(early),
      ]
    }
    expect(timesIn('en-US').map(plain)).toEqual([
      '3:12:04 AM',
      'Nov 24, 3:12 AM',
      '3:12:04.120 AM',
      'Nov 24, 3:12:04.120 AM',
    ])
    expect(timesIn('en-GB').map(plain)).toEqual([
      '03:12:04',
      '24 Nov, 03:12',
      '03:12:04.120',
      '24 Nov, 03:12:04.120',
    ])
  })

  it('a line never breaks between a time and AM or PM', () => {
    const utc = timeFormat('UTC', 'en-US')
    for (const text of [utc.clock(TIME), utc.timeOfDay(TIME), utc.timeMs(TIME), utc.full(TIME)])
      expect(text).toMatch(/\d\u00a0PM/)
  })

  it('the clock in the bar has the same number of characters at each hour', () => {
    for (const locale of ['en-US', 'en-GB', 'de']) {
      const format = timeFormat('UTC', locale)
      const lengths = Array.from(
        { length: 24 },
        (_, hour) => withEvenWidth(format.clock(new Date(Date.UTC(2026, 10, 24, hour)))).length,
      )
      expect(new Set(lengths).size).toBe(1)
    }
  })

  it('the console shows times in the zone of this computer unless UTC or another zone is chosen', () => {
    const zone = 'Asia/Kathmandu'
    expect([zoneOf('relative', zone), zoneOf('local', zone)]).toEqual([undefined, undefined])
    expect([zoneOf('utc', zone), zoneOf('zone', zone)]).toEqual(['UTC', zone])
  })
})
