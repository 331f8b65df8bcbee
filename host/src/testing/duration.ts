const UNITS = {
  millisecond: 1,
  second: 1_000,
  minute: 60_000,
  hour: 3_600_000,
  day: 86_400_000,
  week: 604_800_000,
} as const
type Unit = keyof typeof UNITS

/** A duration as text, such as `30 days` or `1.5 hours`, or as a number of milliseconds. */
export type Duration = number | `${number} ${Unit | `${Unit}s`}`

/** Returns a duration in milliseconds. @throws {TypeError} if the argument is not a duration, or is negative. */
export function milliseconds(duration: Duration): number {
  const [, amount, unit] = /^(\d+(?:\.\d+)?) ([a-z]+?)s?$/.exec(String(duration)) ?? []
  const ms =
    typeof duration === 'number'
      ? duration
      : unit !== undefined && Object.hasOwn(UNITS, unit)
        ? Number(amount) * UNITS[unit as Unit]
        : Number.NaN
  if (Number.isFinite(ms) && ms >= 0) return ms
  throw new TypeError(
    `${JSON.stringify(duration)} is not a duration: use milliseconds, or a text such as '90 seconds' or '30 days'`,
  )
}
