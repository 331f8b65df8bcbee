/**
 * The clock of a service, which returns the time and runs code later. Tests use a clock that they advance themselves.
 */
import { setTimeout as sleep } from 'node:timers/promises'

export interface Clock {
  /** Returns epoch ms. */
  readonly now: () => number
  /** Calls `callback` once after `ms` milliseconds, unless the timer is disposed of first. */
  setTimeout(callback: () => void, ms: number): Timer
  /**
   * Calls `task` immediately, and then repeatedly. `task` resolves with the milliseconds from the end of its call to
   * the beginning of its next call. `task` must not reject.
   */
  repeat(task: () => Promise<number>): Repetition
}

export interface Timer extends Disposable {
  /** Lets the OS process exit before the timer has expired. */
  unref(): unknown
}

/** A repeated task. Disposing ends the repetition, and waits until a call in flight has ended. */
export interface Repetition extends AsyncDisposable {
  /** Calls the task without a pause: immediately, or directly after the call in flight. */
  soon(): void
}

/** The clock of the machine. */
export const systemClock: Clock = {
  now: Date.now,
  setTimeout: (callback, ms) => setTimeout(callback, ms),
  repeat(task) {
    let isStopped = false
    /** Aborting this controller ends the pause that follows the current call. */
    let pause = new AbortController()
    const loop = async (): Promise<void> => {
      while (!isStopped) {
        pause = new AbortController()
        const ms = await task()
        await sleep(ms, null, { signal: pause.signal }).catch(() => {})
      }
    }
    const repeating = loop()
    return {
      soon: () => pause.abort(),
      async [Symbol.asyncDispose]() {
        isStopped = true
        pause.abort()
        await repeating
      },
    }
  },
}

/** The exponential back-off of all pauses between two attempts. */
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
