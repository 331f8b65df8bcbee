/**
 * The times of a cron expression in a time zone.
 *
 * T1  An expression with a fixed hour (a number, a range, a list) names wall-clock times of calendar dates. Each of them
 *     happens once: at the first instant at which the clock has reached it. So a time that the clock skips happens at
 *     the end of the gap, together with all others of the gap, and the second pass of a repeated hour does nothing.
 * T2  An expression whose hour is `*`, `*` with a step or `0-23` names no hour. It fires whenever the clock of the zone
 *     shows a matching time: not in a gap, and in both passes of a repeated hour.
 */
import { Cron } from 'croner'

export interface CronTimes {
  /** Returns the first time after `after`, in epoch ms. */
  next(after: number): number
  /** Returns the newest times from `from` to `until`, both included; at most `limit` times, oldest first. */
  latest(from: number, until: number, limit: number): readonly number[]
}

const FIELDS = /^[0-9A-Za-z*,/#+-]+(?: +[0-9A-Za-z*,/#+-]+){4}$/

/**
 * Parses a cron expression of five fields: minute, hour, day of the month, month and day of the week.
 *
 * @throws {TypeError} if the expression or the time zone is not valid, or if the expression never fires, such as one
 *   for 30 February.
 */
export function cronTimes(expression: string, timeZone: string): CronTimes {
  requireTimeZone(timeZone)
  if (!FIELDS.test(expression.trim()))
    throw new TypeError(
      'must have five fields: minute, hour, day of the month, month, day of the week; a schedule fires once a minute at most',
    )
  try {
    const hour = expression.trim().split(/ +/)[1] ?? ''
    const times = EVERY_HOUR.test(hour)
      ? passingTimes(expression, timeZone)
      : namedTimes(expression, timeZone)
    times.next(0) // throws if the expression never fires
    return times
  } catch (error) {
    if (error instanceof NeverFires) throw error
    throw new TypeError(`is not valid: ${error instanceof Error ? error.message : ''}`, {
      cause: error,
    })
  }
}

class NeverFires extends TypeError {}

const EVERY_HOUR = /(?:^|,)(?:\*|0{1,2}-23)/

/** Returns the times of an expression that names no hour (T2). Croner has the same rule. */
function passingTimes(expression: string, timeZone: string): CronTimes {
  const times = new Cron(expression, { timezone: timeZone, mode: '5-part', paused: true })
  return {
    next: (after) => following(times, after),
    latest: (from, until, limit) => collect(from, until, limit, preceding(times, until)),
  }
}

/**
 * Returns the times of an expression with fixed hours (T1). Croner enumerates the wall-clock times that the expression
 * names, without a time zone: it is used in UTC, and a wall-clock time is the epoch ms that it would have in UTC.
 */
function namedTimes(expression: string, timeZone: string): CronTimes {
  const named = new Cron(expression, { timezone: 'UTC', mode: '5-part', paused: true })
  const { offsetAt, reached } = zoneClock(timeZone)
  function* backwards(until: number): Generator<number> {
    // If the clock was set back within the last day, it had reached later times before.
    const latest = until + Math.max(offsetAt(until), offsetAt(until - DAY_MS))
    for (const wall of preceding(named, latest)) {
      const at = reached(wall)
      if (at <= until) yield at
    }
  }
  return {
    next(after) {
      // What the clock shows now has happened already, and so has everything before.
      let wall = after + offsetAt(after)
      for (;;) {
        wall = following(named, wall)
        const at = reached(wall)
        if (at > after) return at
      }
    },
    latest: (from, until, limit) => collect(from, until, limit, backwards(until)),
  }
}

function following(cron: Cron, after: number): number {
  const at = cron.nextRun(new Date(after))
  if (at === null) throw new NeverFires('never fires: no date matches it')
  return at.getTime()
}

/** Yields the times of an expression up to `until`, included, the latest first. */
function* preceding(cron: Cron, until: number): Generator<number> {
  let before = until + 1 // the library returns times that are earlier than its argument
  for (;;) {
    const [at] = cron.previousRuns(1, new Date(before))
    if (at === undefined) return
    before = at.getTime()
    yield before
  }
}

/** Returns the first `limit` different times of a descending sequence that are not before `from`, oldest first. */
function collect(
  from: number,
  until: number,
  limit: number,
  descending: Iterable<number>,
): readonly number[] {
  const found: number[] = []
  if (from > until) return found
  for (const at of descending) {
    if (found.length === limit || at < from) break
    if (found.at(-1) !== at) found.push(at)
  }
  return found.toReversed()
}

const DAY_MS = 86_400_000

/**
 * Returns the clock of a time zone.
 *
 * - `offsetAt` returns by how many ms the clock is ahead of UTC at an instant.
 * - `reached` returns the first instant at which the clock has reached a wall-clock time. No zone has changed its clock
 *   twice within two days, so the offsets a day before and a day after are those before and after the change.
 */
function zoneClock(timeZone: string) {
  const format = new Intl.DateTimeFormat('en-US', { timeZone, timeZoneName: 'longOffset' })
  function offsetAt(at: number): number {
    // Such as `3/29/2026, GMT+01:00`, or `GMT` in UTC. Offsets of the 19th century have seconds.
    const found = /GMT([+-])(\d\d):(\d\d)(?::(\d\d))?$/.exec(format.format(at))
    if (found === null) return 0
    const [, sign, hours, minutes, seconds = 0] = found
    const ms = (Number(hours) * 3_600 + Number(minutes) * 60 + Number(seconds)) * 1_000
    return sign === '-' ? -ms : ms
  }
  const reached = (wall: number): number => {
    const before = offsetAt(wall - DAY_MS)
    const after = offsetAt(wall + DAY_MS)
    const first = wall - before
    if (before === after || offsetAt(first) === before) return first
    const second = wall - after
    if (offsetAt(second) === after) return second
    // The clock skips this time. The gap ends at the first instant with the new offset, between these two.
    let [low, high] = [second, first]
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2)
      if (offsetAt(middle) === after) high = middle
      else low = middle
    }
    return high
  }
  return { offsetAt, reached }
}

function requireTimeZone(timeZone: string): void {
  try {
    // oxlint-disable-next-line no-new -- the constructor checks the time zone
    new Intl.DateTimeFormat('en', { timeZone })
  } catch (error) {
    throw new TypeError(`time zone ${timeZone} does not exist`, { cause: error })
  }
  // Intl accepts the time zone `+02:00`, which has no rules for daylight saving time. Croner rejects it.
  if (!/^[A-Za-z]/.test(timeZone))
    throw new TypeError(`time zone ${timeZone} is not a name such as Europe/Berlin`)
}
