/** Exponential back-off: the only formula for the pause between two attempts. */

export interface Backoff {
  /** Milliseconds: the longest pause before the second attempt. It doubles with every further attempt. */
  readonly baseMs: number
  /** Milliseconds that no pause exceeds. */
  readonly capMs: number
  /**
   * The share of the computed pause to wait, in [0, 1]. `Math.random()` is full jitter, which spreads replicas
   * that failed together; `0.5 + Math.random() / 2` is half jitter; 1 is none.
   */
  readonly random: number
}

/** Returns the milliseconds to wait after failed attempt number `attempt`, which counts from 1. */
export function backoffMs(attempt: number, { baseMs, capMs, random }: Backoff): number {
  // Beyond 2^30 the cap has long been reached, and a larger exponent could overflow to Infinity.
  return Math.floor(random * Math.min(capMs, baseMs * 2 ** Math.min(attempt - 1, 30)))
}
