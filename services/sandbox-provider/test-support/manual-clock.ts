import type { Clock, Timer } from '@integration-host/shared/process/clock'

export interface ManualClock extends Clock {
  /** Advances the clock, and runs the timers that become due in the order of their times. */
  advance(ms: number): void
  /** The milliseconds until each timer is due, in ascending order. */
  pending(): readonly number[]
}

/** A clock that only the test moves. */
export function createManualClock(startsAt = Date.parse('2026-11-23T17:05:09Z')): ManualClock {
  let time = startsAt
  const timers = new Set<{ readonly at: number; readonly run: () => void }>()
  return {
    now: () => time,
    setTimeout(callback, ms): Timer {
      const timer = { at: time + ms, run: callback }
      timers.add(timer)
      return { unref() {}, [Symbol.dispose]: () => void timers.delete(timer) }
    },
    repeat() {
      throw new TypeError('the manual clock repeats no tasks')
    },
    advance(ms) {
      const until = time + ms
      for (;;) {
        const [next] = [...timers].toSorted((one, other) => one.at - other.at)
        if (next === undefined || next.at > until) break
        time = next.at
        timers.delete(next)
        next.run()
      }
      time = until
    },
    pending: () => [...timers].map(({ at }) => at - time).toSorted((one, other) => one - other),
  }
}
