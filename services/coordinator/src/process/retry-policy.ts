/** How often a step is tried, and how long it waits in between. */
export interface RetryPolicy {
  readonly maxAttempts: number
  readonly baseMs: number
  readonly capMs: number
}

export const defaultRetryPolicy: RetryPolicy = { maxAttempts: 10, baseMs: 1_000, capMs: 300_000 }

/**
 * Milliseconds before the attempt after number `attempt` (from 1): base × 2ⁿ⁻¹ up to the cap with full
 * jitter, so that what failed together does not come back together. A target's own `Retry-After` wins.
 */
export function retryDelayMs(
  attempt: number,
  policy: RetryPolicy,
  { random, retryAfterMs }: { readonly random: number; readonly retryAfterMs: number | null },
): number {
  if (retryAfterMs !== null) return Math.min(Math.max(0, retryAfterMs), MAX_RETRY_AFTER_MS)
  const ceilingMs = Math.min(policy.capMs, policy.baseMs * 2 ** Math.min(attempt - 1, 30))
  return Math.floor(random * ceilingMs)
}

// A date far away is a mistake of the target; a day later somebody should look at it again.
const MAX_RETRY_AFTER_MS = 86_400_000

/** What an HTTP answer means for the step that made the call. */
export type CallVerdict = 'completed' | 'retry' | 'failed'

/** 2xx is success; 408, 425, 429 and 5xx may pass by themselves; anything else will not. */
export function verdictOf(status: number): CallVerdict {
  if (status >= 200 && status < 300) return 'completed'
  return status === 408 || status === 425 || status === 429 || status >= 500 ? 'retry' : 'failed'
}

/** Whether a target that answers so may have done its work: a crash in it, or a gateway's own doubt (RFC 9110 §15.6). */
export const leavesDoubt = (status: number): boolean => [500, 502, 504].includes(status)
