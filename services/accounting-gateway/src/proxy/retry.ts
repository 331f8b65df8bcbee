/** What becomes of an attempt that did not go well. Pure: time and chance come in. */

/** RFC 9110 §9.2.2. */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])
const TRANSIENT = new Set([429, 502, 503, 504])

const RETRIES = 3
const BACKOFF = { baseMs: 200, capMs: 5_000 }
// A timer from outside data is clamped: a provider's slip must not park a company for days.
const LONGEST_HOLD_MS = 3_600_000

/** Whether sending the call twice does no more than sending it once. */
export const isRepeatable = (method: string, carriesRequestId: boolean): boolean =>
  IDEMPOTENT.has(method) || (method === 'POST' && carriesRequestId)

export interface Tries {
  /** {@link isRepeatable}, and the body can be sent again. */
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

/**
 * `Retry-After` in milliseconds (RFC 9110 §10.2.3: seconds or a date), null when absent or neither.
 * `Date.parse` reads `120` as a year, so a number is tried first and a date must look like one.
 */
export function retryAfterMs(value: string | null, now: number): number | null {
  if (value === null) return null
  const text = value.trim()
  if (/^\d+$/.test(text)) return Math.min(Number(text) * 1_000, LONGEST_HOLD_MS)
  if (!/^[A-Z][a-z]{2,8},? .*GMT$/.test(text)) return null
  const at = Date.parse(text)
  return Number.isNaN(at) ? null : Math.min(Math.max(0, at - now), LONGEST_HOLD_MS)
}
