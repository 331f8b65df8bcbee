/** When a queued run may start. */
import { z } from 'zod'

/** A year of 365 days, in seconds: the longest time for which a run can be delayed. */
export const MAX_DELAY_SECONDS = 31_536_000

const RULE = `must be a time of RFC 3339 with an offset, or a whole number of seconds from 0 to ${MAX_DELAY_SECONDS}`
const Time = z.iso.datetime({ offset: true })
const isDelay = (seconds: number): boolean =>
  Number.isInteger(seconds) && seconds >= 0 && seconds <= MAX_DELAY_SECONDS

/**
 * The time before which a run does not start: a time of RFC 3339, or a number of seconds after the transaction is
 * stored. A time in the past delays nothing.
 */
export const NotBefore = z
  .union([z.number(), z.string()], { error: RULE })
  .refine((at) => (typeof at === 'number' ? isDelay(at) : Time.safeParse(at).success), {
    error: RULE,
    abort: true,
  })
  .refine(
    (at) => typeof at === 'number' || Date.parse(at) - Date.now() <= MAX_DELAY_SECONDS * 1_000,
    'must be at most a year ahead',
  )
  .meta({
    description:
      'the time before which the run does not start (RFC 3339), or seconds from now; at most a year ahead',
    examples: ['2027-01-31T02:00:00-05:00', 90],
  })
export type NotBefore = z.output<typeof NotBefore>
