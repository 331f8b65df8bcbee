/** Limits how often clients without a service key may cause an operation in this process. */
export interface RateLimit {
  /** Returns whether the operation may run now, and counts it if so. */
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
