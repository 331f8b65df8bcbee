/** Limits the rate of an operation that clients can cause without a service key. */
export interface RateLimit {
  /** Returns whether the operation may run now. If so, the operation is counted. */
  take(): boolean
}

/** Allows `count` operations in each interval of `intervalMs`. `now` is a clock in milliseconds. */
export function createRateLimit(options: {
  readonly count: number
  readonly intervalMs: number
  readonly now: () => number
}): RateLimit {
  const { count, intervalMs, now } = options
  let startedAt = Number.NEGATIVE_INFINITY
  let taken = 0
  return {
    take() {
      if (now() - startedAt >= intervalMs) {
        startedAt = now()
        taken = 0
      }
      taken += 1
      return taken <= count
    },
  }
}
