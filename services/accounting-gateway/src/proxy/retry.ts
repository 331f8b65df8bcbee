/**
 * Decides whether the proxy repeats an attempt after a failure or a transient status. The functions are pure: time and
 * randomness are parameters. Whether a call is repeated with another token after a 401 is decided in proxy-call.ts.
 */
import { parseRetryAfter } from '@integration-host/shared/http/header-list'
import { backoffMs } from '@integration-host/shared/process/backoff'

/** The idempotent methods of RFC 9110 §9.2.2. */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])
const TRANSIENT = new Set([429, 502, 503, 504])

const MAX_RETRIES = 3
const BACKOFF = { baseMs: 200, capMs: 5_000 }
// Maximum `Retry-After` that the gateway accepts. A provider's mistaken value must not block a company for days.
const MAX_COOL_DOWN_MS = 3_600_000

/** Returns whether sending a request with this method twice has the same effect as sending it once. */
export const isIdempotent = (method: string): boolean => IDEMPOTENT.has(method)

export interface Tries {
  /** True if the call is idempotent and its body can be sent again. */
  readonly canRepeat: boolean
  /** Number of the attempt, counted from 1. */
  readonly attempt: number
  /** Milliseconds left until the call's deadline. */
  readonly remainingMs: number
  /** A random number in [0, 1). */
  readonly random: number
}

export type Verdict =
  | { readonly kind: 'pass' }
  | { readonly kind: 'retry'; readonly delayMs: number }

/** The attempt is not repeated. The caller gets the response, or an error if there is no response. */
export const PASS: Verdict = { kind: 'pass' }

/**
 * Decides whether to repeat an attempt that received this status.
 *
 * @param retryAfterMs the response's `Retry-After` in ms; `null` if the response has none
 */
export function afterStatus(status: number, retryAfterMs: number | null, tries: Tries): Verdict {
  return TRANSIENT.has(status) ? retry(tries, retryAfterMs ?? 0) : PASS
}

/** Decides whether to repeat an attempt that failed without a valid response. */
export const afterFailure = (tries: Tries): Verdict => retry(tries, 0)

function retry(tries: Tries, minimumMs: number): Verdict {
  const { canRepeat, attempt, remainingMs, random } = tries
  if (!canRepeat || attempt > MAX_RETRIES) return PASS
  // The delay is a random time between half of the back-off and the whole back-off, so that calls that failed together
  // are not repeated together.
  const pauseMs = backoffMs(attempt, { ...BACKOFF, random: 0.5 + random / 2 })
  const delayMs = Math.max(minimumMs, pauseMs)
  return delayMs < remainingMs ? { kind: 'retry', delayMs } : PASS
}

/**
 * Returns the value of `Retry-After` in milliseconds, limited to one hour; `null` if the header is absent or invalid.
 */
export function coolDownMs(retryAfter: string | null, now: number): number | null {
  const ms = parseRetryAfter(retryAfter, now)
  return ms === null ? null : Math.min(ms, MAX_COOL_DOWN_MS)
}
