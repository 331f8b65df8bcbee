const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS

/**
 * The pauses after the first, second, third … failed attempt of a delivery, in milliseconds.
 * Further attempts use the last pause.
 *
 * @see https://developer.intuit.com/app/developer/qbo/docs/develop/webhooks (Retry policy)
 */
const PAUSES_MS = [
  10_000,
  20_000,
  30_000,
  5 * MINUTE_MS,
  20 * MINUTE_MS,
  2 * HOUR_MS,
  4 * HOUR_MS,
  6 * HOUR_MS,
] as const

/**
 * Returns the pause in milliseconds between the last of `failures` failed attempts (at least one) and the next attempt.
 */
export const pauseAfterMs = (failures: number): number =>
  PAUSES_MS[Math.min(failures, PAUSES_MS.length) - 1] ?? PAUSES_MS[0]
