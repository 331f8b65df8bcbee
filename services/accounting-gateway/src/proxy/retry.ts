/** Decides whether an attempt is repeated. Pure: time and randomness are parameters. */
import { parseRetryAfter } from '@integration-host/shared/http/retry-after'
import { backoffMs } from '@integration-host/shared/process/backoff'

/** RFC 9110 §9.2.2. */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])
const TRANSIENT = new Set([429, 502, 503, 504])

const MAX_RETRIES = 3
const BACKOFF = { baseMs: 200, capMs: 5_000 }
// A provider's mistaken `Retry-After` must not block a company for days.
const MAX_COOL_DOWN_MS = 3_600_000

/** Whether sending a request with this method twice has the same effect as sending it once. */
export const isIdempotent = (method: string): boolean => IDEMPOTENT.has(method)

export interface Tries {
  /** The call is idempotent, and its body can be sent again. */
  readonly canRepeat: boolean
  /** Counts from 1. */
  readonly attempt: number
  /** Milliseconds until the call's deadline. */
  readonly remainingMs: number
  /** In [0, 1). */
  readonly random: number
}

export type Verdict =
  | { readonly kind: 'pass' }
  | { readonly kind: 'retry'; readonly delayMs: number }

/** The response, or the failure, is passed on to the caller. */
export const PASS: Verdict = { kind: 'pass' }

/** @param retryAfterMs from the response's `Retry-After`; `null` if it has none */
export function afterStatus(status: number, retryAfterMs: number | null, tries: Tries): Verdict {
  return TRANSIENT.has(status) ? retry(tries, retryAfterMs ?? 0) : PASS
}

/** Decides after a network failure, that is, without a valid response. */
export const afterFailure = (tries: Tries): Verdict => retry(tries, 0)

function retry(tries: Tries, minimumMs: number): Verdict {
  const { canRepeat, attempt, remainingMs, random } = tries
  if (!canRepeat || attempt > MAX_RETRIES) return PASS
  // Half of the back-off is random, so that calls that failed together are not repeated together.
  const pauseMs = backoffMs(attempt, { ...BACKOFF, random: 0.5 + random / 2 })
  const delayMs = Math.max(minimumMs, pauseMs)
  return delayMs < remainingMs ? { kind: 'retry', delayMs } : PASS
}

/** Returns the milliseconds of a `Retry-After`, at most an hour; `null` if it is absent or invalid. */
export function coolDownMs(retryAfter: string | null, now: number): number | null {
  const ms = parseRetryAfter(retryAfter, now)
  return ms === null ? null : Math.min(ms, MAX_COOL_DOWN_MS)
}
