/**
 * The times of a cron expression in a time zone.
 *
 * Daylight saving time: an expression with a fixed hour fires once on every day. If the clock skips this hour, the
 * expression fires at the end of the gap. If the clock repeats this hour, the expression fires only in the first of the
 * two hours. An expression with several hours (`*`, a range or a list) fires in each hour that passes: not in a skipped
 * hour, and twice in a repeated hour.
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
  let cron: Cron
  try {
    cron = new Cron(expression, { timezone: timeZone, mode: '5-part', paused: true })
  } catch (error) {
    throw new TypeError(`is not valid: ${error instanceof Error ? error.message : ''}`, {
      cause: error,
    })
  }
  const next = (after: number): number => {
    const at = cron.nextRun(new Date(after))
    if (at === null) throw new TypeError('never fires: no date matches it')
    return at.getTime()
  }
  next(0) // throws if the expression never fires
  return {
    next,
    latest(from, until, limit) {
      const found: number[] = []
      let before = until + 1 // the library returns times that are earlier than its argument
      while (found.length < limit) {
        const [at] = cron.previousRuns(1, new Date(before))
        if (at === undefined || at.getTime() < from) break
        before = at.getTime()
        found.push(before)
      }
      return found.toReversed()
    },
  }
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
