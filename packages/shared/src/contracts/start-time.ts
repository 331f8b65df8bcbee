/** When a queued run may start. */
import { z } from 'zod'

/** A year of 365 days, in seconds: the longest time for which a run can be delayed. */
const MAX_DELAY_SECONDS = 31_536_000

const RULE = `must be a time of RFC 3339 with an offset, or a whole number of seconds from 0 to ${MAX_DELAY_SECONDS}`
const Time = z.iso.datetime({ offset: true })
const isDelay = (seconds: number): boolean =>
  Number.isInteger(seconds) && seconds >= 0 && seconds <= MAX_DELAY_SECONDS

/**
 * The time before which a run does not start: a time of RFC 3339, or a number of seconds after the transaction is
 * stored. A time in the past does not delay the run.
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

const MAX_KEY_LENGTH = 128
/** The factor between `Seconds` and `MaxSeconds` if a request does not contain `MaxSeconds`. */
const DEFAULT_MAX_FACTOR = 10

const seconds = z
  .int('must be a whole number of seconds')
  .min(1, 'must be at least 1')
  .max(MAX_DELAY_SECONDS, `must be at most ${MAX_DELAY_SECONDS}`)

/**
 * Several requests with the same `Key` start only one run. If a run of this key still waits for its start, a new
 * request replaces the run's initial data. The start of the run then moves to `Seconds` after the new request, but at
 * most to `MaxSeconds` after the first request.
 */
export const Debounce = z
  .strictObject({
    Key: z
      .string()
      .min(1, 'must not be empty')
      .max(MAX_KEY_LENGTH, `must have at most ${MAX_KEY_LENGTH} characters`)
      .refine((key) => !/\p{Cc}/u.test(key), 'must not contain control characters')
      .refine((key) => key.isWellFormed(), 'must be well-formed Unicode'),
    Seconds: seconds,
    MaxSeconds: seconds.optional(),
  })
  .refine(({ Seconds, MaxSeconds = Seconds }) => MaxSeconds >= Seconds, {
    path: ['MaxSeconds'],
    error: 'must not be less than Seconds',
  })
  .meta({
    description:
      'requests of the same key, process and realm start one run with the data of the last one; MaxSeconds is 10 times Seconds if it is missing',
    examples: [{ Key: 'Invoice-129', Seconds: 30, MaxSeconds: 300 }],
  })
export type Debounce = z.output<typeof Debounce>

/** Returns `MaxSeconds`, or its default value if it is absent. */
export const maxSecondsOf = ({ Seconds, MaxSeconds }: Debounce): number =>
  MaxSeconds ?? Math.min(Seconds * DEFAULT_MAX_FACTOR, MAX_DELAY_SECONDS)
