/** Limits the rate of an operation that clients can cause without a service key. */
export interface RateLimit {
  /**
   * Returns whether the operation may run now. If so, the operation is counted. `lane` is the group of the caller, such
   * as its network.
   */
  take(lane?: string): boolean
}

/**
 * Allows `count` operations in each interval of `intervalMs`, of which one group of callers can use `perLane`; all by
 * default. `now` is a clock in milliseconds.
 */
export function createRateLimit(options: {
  readonly count: number
  readonly intervalMs: number
  readonly now: () => number
  readonly perLane?: number
}): RateLimit {
  const { count, intervalMs, now, perLane = count } = options
  let startedAt = Number.NEGATIVE_INFINITY
  let taken = 0
  /** The counted operations of each group. At most `count` groups have one. */
  let byLane = new Map<string, number>()
  return {
    take(lane = '') {
      if (now() - startedAt >= intervalMs) {
        startedAt = now()
        taken = 0
        byLane = new Map()
      }
      const own = byLane.get(lane) ?? 0
      if (taken >= count || own >= perLane) return false
      taken += 1
      byLane.set(lane, own + 1)
      return true
    },
  }
}
