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
