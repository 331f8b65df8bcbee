import { vi } from 'vitest'

export interface WaitOptions {
  /**
   * The timeout in seconds. The default of 60 s is enough on a loaded machine; a condition that always takes
   * longer needs a longer timeout.
   */
  readonly seconds?: number
  /**
   * The time between two checks in milliseconds; 10 ms by default. A check that is costly or has a side effect needs a
   * longer time.
   */
  readonly everyMs?: number
}

/** Runs `check` repeatedly until it passes. At the timeout, the promise is rejected with the last error of `check`. */
export const eventually = <T>(
  check: () => T | Promise<T>,
  { seconds = 60, everyMs = 10 }: WaitOptions = {},
): Promise<T> => vi.waitFor(check, { timeout: seconds * 1_000, interval: everyMs })

/** Resolves when the condition holds; rejects at the timeout. */
export const until = (
  condition: () => boolean | Promise<boolean>,
  options?: WaitOptions,
): Promise<void> =>
  eventually(async () => {
    if (!(await condition())) throw new Error('the condition does not hold')
  }, options)
