/**
 * A clock that only the test moves. While it moves, it stops at each time at which something is due, and continues when
 * all work of that time is done.
 *
 * V1  What is due at an earlier time runs first. Timers that are due at the same time run in the order in which they
 *     were set.
 * V2  After each activity, a repeated task is called at its normal interval. While nothing happens, the interval
 *     doubles with each call, up to `IDLE_MS`. Otherwise a move by 90 days would stop 500,000 times, each time
 *     for a poll that finds nothing. At the end of each move, a task is called once more if its normal interval has
 *     passed.
 */
import type { Clock, Repetition, Timer } from '@integration-host/shared/process/clock'

export interface VirtualClock extends Clock {
  /** Moves the clock to a time in epoch ms. Resolves when everything due until then is done. */
  moveTo(time: number): Promise<void>
  /** Reports an activity. Repeated tasks are then called at their normal intervals again. */
  onActivity(): void
}

export interface VirtualClockOptions {
  /** The time at which the clock starts, in epoch ms. */
  readonly startsAt: number
  /** Counts each call of a repeated task as work in progress until the promise settles. */
  readonly track: (work: Promise<void>) => void
  /** Resolves when all work of the current time is done. */
  readonly settled: () => Promise<void>
  /**
   * Returns whether nothing is in progress. The intervals of repeated tasks grow as long as this function returns true.
   */
  readonly isIdle: () => boolean
}

/** Something that is due at a time, in epoch ms. */
interface Due {
  at: number
  readonly run: () => void
}

interface RepeatedTask extends Due {
  calledAt: number
  intervalMs: number
  idleCalls: number
}

const IDLE_MS = 6 * 3_600_000

export function createVirtualClock(options: VirtualClockOptions): VirtualClock {
  const { track, settled, isIdle } = options
  let time = options.startsAt
  const timers = new Set<Due>()
  const tasks = new Set<RepeatedTask>()

  function nextUntil(limit: number): Due | null {
    let next: Due | null = null
    for (const due of [...timers, ...tasks])
      if (due.at <= limit && (next === null || due.at < next.at)) next = due
    return next
  }

  /** Ends the longer idle intervals: each task whose normal interval has passed becomes due immediately. */
  function endIdleIntervals(): void {
    for (const task of tasks)
      if (task.at !== Infinity && task.calledAt + task.intervalMs <= time) task.at = time
  }

  return {
    now: () => time,
    setTimeout(callback, ms): Timer {
      const due: Due = {
        at: time + Math.max(0, ms),
        run() {
          timers.delete(due)
          callback()
        },
      }
      timers.add(due)
      return { unref() {}, [Symbol.dispose]: () => void timers.delete(due) }
    },
    repeat(task): Repetition {
      let inFlight: Promise<void> | null = null
      let isStopped = false
      let isWantedSoon = false
      const call = async (): Promise<void> => {
        do {
          isWantedSoon = false
          repeated.calledAt = time
          repeated.intervalMs = await task()
        } while (isWantedSoon && !isStopped)
        repeated.idleCalls = isIdle() ? repeated.idleCalls + 1 : 0
        const idleMs = Math.min(IDLE_MS, repeated.intervalMs * 2 ** (repeated.idleCalls - 1))
        repeated.at = time + Math.max(repeated.intervalMs, idleMs)
        inFlight = null
      }
      const repeated: RepeatedTask = {
        at: Infinity,
        calledAt: time,
        intervalMs: 0,
        idleCalls: 0,
        run() {
          repeated.at = Infinity // not due again until this call has ended
          inFlight = call()
          track(inFlight)
        },
      }
      tasks.add(repeated)
      repeated.run()
      return {
        soon() {
          isWantedSoon = true
          if (inFlight === null && !isStopped) repeated.run()
        },
        async [Symbol.asyncDispose]() {
          isStopped = true
          tasks.delete(repeated)
          await inFlight
        },
      }
    },
    onActivity() {
      for (const task of tasks) {
        task.idleCalls = 0
        task.at = Math.min(task.at, Math.max(time, task.calledAt + task.intervalMs))
      }
    },
    async moveTo(target) {
      await settled()
      for (;;) {
        let next = nextUntil(target)
        if (next === null) {
          time = Math.max(time, target)
          endIdleIntervals()
          next = nextUntil(target)
        }
        if (next === null) return
        time = Math.max(time, next.at)
        next.run()
        await settled()
      }
    },
  }
}
