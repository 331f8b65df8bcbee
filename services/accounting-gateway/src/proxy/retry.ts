/** Decides what follows a failed attempt. Pure: time and chance are parameters. */
import { parseRetryAfter } from '@integration-host/shared/http/retry-after'

/** RFC 9110 §9.2.2. */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])
const TRANSIENT = new Set([429, 502, 503, 504])

const RETRIES = 3
const BACKOFF = { baseMs: 200, capMs: 5_000 }
// A time from outside is limited: a provider's slip must not stop a company for days.
const LONGEST_COOL_DOWN_MS = 3_600_000

/** Whether a request with this method does no more when it is sent twice. */
export const isIdempotent = (method: string): boolean => IDEMPOTENT.has(method)

export interface Tries {
  /** Sending the call twice does no more than sending it once, and its body can be sent again. */
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

const PASS: Verdict = { kind: 'pass' }

/** Whether an answer is one that {@link afterStatus} may want to retry. */
const isTransient = (status: number): boolean => TRANSIENT.has(status)

/** @param retryAfter milliseconds that upstream asked for, null when it did not. */
export function afterStatus(status: number, retryAfter: number | null, tries: Tries): Verdict {
  if (!isTransient(status)) return PASS
  return again(tries, retryAfter ?? 0)
}

/** After a network failure: no answer, or none that could be read. */
export const afterFailure = (tries: Tries): Verdict => again(tries, 0)

function again(tries: Tries, leastMs: number): Verdict {
  const { canRepeat, attempt, remainingMs, random } = tries
  if (!canRepeat || attempt > RETRIES) return PASS
  const delayMs = Math.max(leastMs, backoff(attempt, random))
  return delayMs < remainingMs ? { kind: 'retry', delayMs } : PASS
}

// Half of it fixed, half of it chance: calls that failed together come back apart.
function backoff(attempt: number, random: number): number {
  const ceiling = Math.min(BACKOFF.capMs, BACKOFF.baseMs * 2 ** (attempt - 1))
  return Math.floor(ceiling / 2 + (random * ceiling) / 2)
}

/** Milliseconds that a `Retry-After` names, at most an hour; `null` if it is absent or cannot be read. */
export function coolDownMs(retryAfter: string | null, now: number): number | null {
  const ms = parseRetryAfter(retryAfter, now)
  return ms === null ? null : Math.min(ms, LONGEST_COOL_DOWN_MS)
}
