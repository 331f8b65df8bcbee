/**
 * The formats of times. With `relative`, lists show times as `4 min ago`, and exact times are in the zone of
 * this computer.
 */
export const timeStyles = ['relative', 'local', 'utc', 'zone'] as const
export type TimeStyle = (typeof timeStyles)[number]

export interface TimeFormat {
  /** Returns date, time and zone, such as `Nov 24, 2026, 3:12:04 AM UTC`. */
  full(time: Date): string
  /** Returns the weekday and the date, such as `Tuesday, November 24`. */
  dayName(time: Date): string
  /** Returns the time of day with seconds, such as `3:12:04 AM`. */
  clock(time: Date): string
  /** Returns the time of day without seconds, such as `3:12 AM`. */
  timeOfDay(time: Date): string
  /** Returns the time of day with milliseconds, such as `3:12:04.120 AM`. Only attempts need it. */
  timeMs(time: Date): string
  /** Returns the date and the time with milliseconds, such as `Nov 24, 3:12:04.120 AM`. Only attempts need it. */
  fullMs(time: Date): string
  /**
   * Returns the time of day if the time is on the same day as `now`, and the date with the time otherwise.
   */
  inList(time: Date, now: Date): string
  /** The short name of the zone; empty for the zone of this computer. */
  readonly zoneName: string
}

/** Returns the formats of a time zone; `undefined` stands for the zone of this computer. */
export function timeFormat(timeZone: string | undefined, locale?: string): TimeFormat {
  const format = (options: Intl.DateTimeFormatOptions): ((time: Date) => string) => {
    const formatter = new Intl.DateTimeFormat(locale, { ...options, timeZone })
    // A line may break after the date, but not between the time and `AM` or `PM`.
    return (time) => formatter.format(time).replace(/\s(?=[AP]M\b)/i, '\u00a0')
  }
  // As in the format of the language itself, only an hour of a clock with 24 hours has a leading zero.
  const { hour12 } = new Intl.DateTimeFormat(locale, { hour: 'numeric' }).resolvedOptions()
  const hour = hour12 === true ? 'numeric' : '2-digit'
  const milliseconds = {
    hour,
    minute: '2-digit',
    second: '2-digit',
    fractionalSecondDigits: 3,
  } as const
  const full = format({ dateStyle: 'medium', timeStyle: 'long' })
  const clock = format({ timeStyle: 'medium' })
  const timeOfDay = format({ timeStyle: 'short' })
  const timeMs = format(milliseconds)
  const fullMs = format({ month: 'short', day: 'numeric', ...milliseconds })
  const day = format({ dateStyle: 'short' })
  const dayName = format({ weekday: 'long', month: 'long', day: 'numeric' })
  const withDate = format({ month: 'short', day: 'numeric', hour, minute: '2-digit' })
  return {
    full,
    dayName,
    clock,
    timeOfDay,
    timeMs,
    fullMs,
    inList: (time, now) => (day(time) === day(now) ? clock(time) : withDate(time)),
    zoneName: timeZone?.slice(timeZone.lastIndexOf('/') + 1).replaceAll('_', ' ') ?? '',
  }
}

/** Returns the zone of times in this style; `undefined` stands for the zone of this computer. */
export const zoneOf = (style: TimeStyle, zone: string): string | undefined =>
  style === 'utc' ? 'UTC' : style === 'zone' ? zone : undefined

/** Returns a time of day that is as wide at 9 o'clock as at 10 o'clock: a figure space is as wide as a digit. */
export const withEvenWidth = (clock: string): string =>
  /^\d:/.test(clock) ? `\u2007${clock}` : clock
