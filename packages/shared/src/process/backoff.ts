/** Computes exponential back-off. All pauses between two attempts use this formula. */

export interface Backoff {
  /** The maximum pause before the second attempt, in milliseconds. The maximum doubles with every further attempt. */
  readonly baseMs: number
  /** The upper limit of every pause, in milliseconds. */
  readonly capMs: number
  /**
   * The part of the maximum pause to wait, as a factor in [0, 1]. `Math.random()` is full jitter, which spreads the
   * retries of service replicas that failed together; `0.5 + Math.random() / 2` is half jitter; 1 is no jitter.
   */
  readonly random: number
}

/** Returns the milliseconds to wait after failed attempt number `attempt`, which counts from 1. */
export function backoffMs(attempt: number, { baseMs, capMs, random }: Backoff): number {
  // The exponent is limited, because a larger exponent could overflow to Infinity. With an exponent of 30, every pause
  // has reached its limit.
  return Math.floor(random * Math.min(capMs, baseMs * 2 ** Math.min(attempt - 1, 30)))
}
