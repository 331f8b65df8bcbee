import { backoffMs } from '@integration-host/shared/process/backoff'

/** The number of attempts of a step, and the length of the pauses between them. */
export interface RetryPolicy {
  /** The maximum number of attempts: a whole number, 1 or more. */
  readonly maxAttempts: number
  /** The longest pause after the first attempt, in milliseconds. It doubles after each further attempt. */
  readonly baseMs: number
  /** The longest pause between two attempts in milliseconds. */
  readonly capMs: number
}

export const defaultRetryPolicy: RetryPolicy = { maxAttempts: 10, baseMs: 1_000, capMs: 300_000 }

/**
 * Returns the delay in milliseconds between attempt number `attempt` (from 1) and the next attempt. The delay is base ×
 * 2ⁿ⁻¹ up to the cap, with full jitter, so that steps that failed together are not retried together. A `Retry-After` of
 * the target takes precedence.
 */
export function retryDelayMs(
  attempt: number,
  policy: RetryPolicy,
  { random, retryAfterMs }: { readonly random: number; readonly retryAfterMs: number | null },
): number {
  if (retryAfterMs !== null) return Math.min(Math.max(0, retryAfterMs), MAX_RETRY_AFTER_MS)
  return backoffMs(attempt, { ...policy, random })
}

// The longest Retry-After that is respected: a day. A longer one counts as a mistake of the target.
const MAX_RETRY_AFTER_MS = 86_400_000

/** What an HTTP status means for the step that made the call: completed, retried later, or failed. */
export type CallVerdict = 'completed' | 'retry' | 'failed'

/** 2xx is success; 408, 425, 429 and 5xx may be temporary; any other status is permanent. */
export function verdictOf(status: number): CallVerdict {
  if (status >= 200 && status < 300) return 'completed'
  return status === 408 || status === 425 || status === 429 || status >= 500 ? 'retry' : 'failed'
}

/**
 * Whether a target that responds with this status may have executed the request. A target that responds with 500 may
 * have crashed while it executed the request. Responses with 502 and 504 come from a gateway that does not know the
 * result (RFC 9110 §15.6).
 */
export const leavesDoubt = (status: number): boolean => [500, 502, 504].includes(status)
