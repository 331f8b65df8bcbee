/** Limits how many actions start in any second, and spreads them over the second. */
export interface Pace {
  /** Returns the milliseconds to wait before the next `count` actions, which are at most `perSecond`. */
  delayMs(count: number): number
  /** Must be called when an action starts. */
  started(): void
}

/** @param now returns milliseconds of a monotonic clock */
export function createPace(perSecond: number, now: () => number): Pace {
  /** When the last actions started, oldest first: at least `perSecond` of them, if there were so many. */
  let starts: number[] = []
  let nextAt = Number.NEGATIVE_INFINITY
  return {
    delayMs(count) {
      // The time at which the actions that started within a second have left room for `count` others.
      const blocking = starts.at(-(perSecond - count + 1))
      const at = now()
      const startAt = Math.max(at, nextAt, blocking === undefined ? 0 : blocking + 1_000)
      nextAt = startAt + (count / perSecond) * 1_000
      return startAt - at
    },
    started() {
      starts.push(now())
      if (starts.length > 2 * perSecond) starts = starts.slice(-perSecond)
    },
  }
}
