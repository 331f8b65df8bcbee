/**
 * Compares the times of cron expressions with a model that walks through time minute by minute and shares no code with
 * cron.ts, around each change of the clock.
 */
import { execFileSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { cronTimes } from './cron.ts'

const MINUTE_MS = 60_000
const DAY_MS = 86_400_000
const HOURS_MS = 3 * 3_600_000
const iso = (times: readonly number[]): string[] => times.map((at) => new Date(at).toISOString())

/** Returns a function that reads the clock of a zone: the ms that its wall-clock time would have in UTC. */
function clockOf(timeZone: string): (at: number) => number {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
  })
  return (at) => {
    const [month = 0, day = 0, year = 0, hour = 0, minute = 0] = (
      format.format(at).match(/\d+/g) ?? []
    ).map(Number)
    return Date.UTC(year, month - 1, day, hour, minute)
  }
}

/** Returns the days of a year after which the clock of a zone was changed. */
function changesOf(timeZone: string, year: number): number[] {
  const clock = clockOf(timeZone)
  const days = Array.from({ length: 365 }, (_, day) => Date.UTC(year, 0, 1 + day))
  return days.filter((day) => clock(day + DAY_MS) - clock(day) !== DAY_MS)
}

function values(field: string, first: number, last: number): Set<number> {
  const all = (from: number, to: number, step: number): number[] =>
    Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, n) => from + n * step)
  return new Set(
    field.split(',').flatMap((part) => {
      const [range = '', step = '1'] = part.split('/')
      const [from, to = from] = range === '*' ? [first, last] : range.split('-').map(Number)
      return all(from ?? first, to ?? first, Number(step))
    }),
  )
}

/** Returns whether an expression names a wall-clock time. */
function namesOf(expression: string): (wall: number) => boolean {
  const [minute = '', hour = '', date = '', month = '', weekday = ''] = expression.split(' ')
  const [minutes, hours, months] = [
    values(minute, 0, 59),
    values(hour, 0, 23),
    values(month, 1, 12),
  ]
  const [dates, weekdays] = [values(date, 1, 31), values(weekday, 0, 6)]
  return (wall) => {
    const time = new Date(wall)
    if (!minutes.has(time.getUTCMinutes()) || !hours.has(time.getUTCHours())) return false
    if (!months.has(time.getUTCMonth() + 1)) return false
    const [isDate, isWeekday] = [dates.has(time.getUTCDate()), weekdays.has(time.getUTCDay())]
    return date !== '*' && weekday !== '*' ? isDate || isWeekday : isDate && isWeekday
  }
}

/** Returns the times of an expression, given what the clock shows in each minute from `from` on. */
function modelled(expression: string, from: number, shown: readonly number[]): number[] {
  const names = namesOf(expression)
  const hour = expression.split(' ')[1] ?? ''
  if (hour.startsWith('*'))
    return shown.flatMap((wall, minute) => (names(wall) ? [from + minute * MINUTE_MS] : []))
  const found: number[] = []
  let reached = (shown[0] ?? 0) - MINUTE_MS
  for (const [minute, wall] of shown.entries()) {
    let isNamed = false
    for (; reached < wall; reached += MINUTE_MS) isNamed ||= names(reached + MINUTE_MS)
    if (isNamed) found.push(from + minute * MINUTE_MS)
  }
  return found
}

/** A generator of pseudo-random whole numbers below `limit`, always the same for a seed. */
function numbers(seed: number): (limit: number) => number {
  let state = seed
  return (limit) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * limit)
  }
}

function randomExpression(below: (limit: number) => number): string {
  const list = (first: number, size: number): string =>
    Array.from({ length: 1 + below(3) }, () => first + below(size)).join(',')
  const range = (first: number, size: number): string => {
    const from = first + below(size)
    return `${from}-${from + below(first + size - from)}`
  }
  const pick = (...of: readonly (() => string)[]): string =>
    (of[below(of.length)] as () => string)()
  return [
    pick(
      () => `*/${10 + below(30)}`,
      () => list(0, 60),
      () => '0,30',
    ),
    // Hours near midnight and near the usual changes are the interesting ones.
    pick(
      () => list(0, 4),
      () => range(0, 4),
      () => list(20, 4),
      () => range(0, 24),
      () => '*',
      () => `*/${1 + below(5)}`,
    ),
    pick(
      () => '*',
      () => '*',
      () => '*',
      () => range(1, 31),
    ),
    pick(
      () => '*',
      () => '*',
      () => range(1, 12),
    ),
    pick(
      () => '*',
      () => '*',
      () => '*',
      () => range(0, 7),
    ),
  ].join(' ')
}

const expressions = [
  '0 0 * * *', '30 0 * * *', '0,30 1 * * *', '*/15 1 * * *', '0-10/5 1 * * *', '30 2 * * *',
  '0 1-3 * * *', '30 1,2 * * *', '*/20 0-4 * * *', '59 23 * * *', '0 22-23 * * *', '15,45 23,0 * * *',
  '0 2 * * 0', '0 12 * * *', '0 * * * *', '*/15 * * * *', '0 */2 * * *', '7 */3 * * 6', '* * * * *', '* 2 * * *',
] // prettier-ignore

const zones: readonly (readonly [zone: string, year: number])[] = [
  ['Europe/London', 2026],
  ['Europe/Berlin', 2026],
  ['Europe/Dublin', 2026],
  ['America/New_York', 2026],
  ['America/Nuuk', 2026],
  ['America/Scoresbysund', 2026],
  ['America/Santiago', 2026],
  ['America/Havana', 2026],
  ['America/St_Johns', 2010],
  ['America/Sao_Paulo', 2018],
  ['Asia/Beirut', 2026],
  ['Asia/Gaza', 2026],
  ['Asia/Tehran', 2022],
  ['Africa/Cairo', 2026],
  ['Africa/Casablanca', 2026],
  ['Australia/Lord_Howe', 2026],
  ['Pacific/Chatham', 2026],
  ['Pacific/Apia', 2011],
  ['Pacific/Kwajalein', 1993],
  ['Antarctica/Troll', 2026],
  ['Asia/Pyongyang', 2018],
  ['America/Caracas', 2016],
]

describe('the times of a cron expression at the change of the clock', () => {
  it.each(zones)('in %s (%i) are those of the minute-by-minute model', (zone, year) => {
    const changes = changesOf(zone, year)
    expect(changes.length).toBeGreaterThan(0)
    const clock = clockOf(zone)
    const below = numbers(year + zone.length)
    const random = Array.from({ length: 5 }, () => randomExpression(below))
    for (const change of changes) {
      const [from, until] = [change - HOURS_MS, change + DAY_MS + HOURS_MS]
      const shown = Array.from({ length: (until - from) / MINUTE_MS + 1 }, (_, minute) =>
        clock(from + minute * MINUTE_MS),
      )
      for (const cron of [...expressions, ...random]) {
        const times = cronTimes(cron, zone)
        const expected = modelled(cron, from, shown)
        const forwards: number[] = []
        for (let at = times.next(from - 1); at <= until; at = times.next(at)) forwards.push(at)
        expect([cron, iso(forwards)]).toEqual([cron, iso(expected)])
        expect([cron, iso(times.latest(from, until, 10_000))]).toEqual([cron, iso(expected)])
        expect(times.latest(from, until, 2)).toEqual(expected.slice(-2))
      }
    }
  })

  it('next() and latest() agree from each minute of a gap and of a repeated hour', () => {
    for (const [zone, from] of [
      ['Europe/London', '2026-03-29T00:00:00Z'],
      ['Europe/London', '2026-10-24T23:00:00Z'],
      ['America/Havana', '2026-11-01T03:00:00Z'],
      ['America/Nuuk', '2026-03-29T00:00:00Z'],
    ] as const)
      for (const cron of ['0,30 1 * * *', '30 23,0 * * *', '20 * * * *']) {
        const times = cronTimes(cron, zone)
        for (let minute = 0; minute < 240; minute += 1) {
          const at = Date.parse(from) + minute * MINUTE_MS
          const next = times.next(at)
          expect(next).toBeGreaterThan(at)
          expect(times.latest(at + 1, next, 10)).toEqual([next])
          expect(times.latest(at + 1, next - 1, 10)).toEqual([])
        }
      }
  })

  it.each(['America/New_York', 'Asia/Kolkata', 'Australia/Lord_Howe'])(
    'do not depend on the time zone of the process, here %s',
    (TZ) => {
      const script = `import { cronTimes } from ${JSON.stringify(import.meta.resolve('./cron.ts'))}
        const times = cronTimes('0,30 1 * * *', 'Europe/London')
        const found = [times.next(Date.parse('2026-03-29T00:00:00Z')), ...times.latest(Date.parse('2026-10-24T23:30:00Z'), Date.parse('2026-10-25T06:00:00Z'), 9)]
        console.log(found.map((at) => new Date(at).toISOString()).join(' '))`
      const output = execFileSync(process.execPath, ['--input-type=module', '--eval', script], {
        env: { ...process.env, TZ },
        encoding: 'utf8',
      })
      expect(output.trim().split(' ')).toEqual([
        '2026-03-29T01:00:00.000Z',
        '2026-10-25T00:00:00.000Z',
        '2026-10-25T00:30:00.000Z',
      ])
    },
  )
})
