/** Reads the times and durations in options, such as `--since 2h`. */
import { z } from 'zod'
import { UsageError } from './exit-code.ts'

const UNITS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** Whether a duration lies before or after now, and the examples for the error message of an option. */
const directions = {
  past: { sign: -1, examples: '30m, 2h or 3d, or a time such as 2026-01-31T08:00:00Z' },
  future: { sign: 1, examples: '90d or 12h, or a time such as 2027-01-31T00:00:00Z' },
} as const

/**
 * Parses the text of an option. A time in ISO 8601 with an offset is returned unchanged. A duration such as `2h` is
 * subtracted from `now`, or added to `now` if the direction is `future`.
 *
 * @param now milliseconds since the epoch
 * @throws {UsageError} the text is neither a time nor a duration.
 */
export function timeOf(
  option: string,
  text: string,
  now: number,
  direction: keyof typeof directions = 'past',
): string {
  const { sign, examples } = directions[direction]
  const [, amount, unit] = /^(\d{1,6})([smhd])$/.exec(text) ?? []
  if (amount !== undefined)
    return new Date(now + sign * Number(amount) * UNITS[unit as keyof typeof UNITS]).toISOString()
  if (!z.iso.datetime({ offset: true }).safeParse(text).success)
    throw new UsageError(`${option} must be a duration such as ${examples}`)
  return text
}
