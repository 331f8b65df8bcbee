import { vi } from 'vitest'

export interface WaitOptions {
  /** The timeout; 30 s by default, which is enough on a loaded machine. A condition that always takes longer sets more. */
  readonly seconds?: number
  /** The time between two checks; 10 ms by default. A check that is costly or has a side effect sets more. */
  readonly everyMs?: number
}

/** Runs `check` until it passes; fails with its last error at the timeout. */
export const eventually = <T>(
  check: () => T | Promise<T>,
  { seconds = 30, everyMs = 10 }: WaitOptions = {},
): Promise<T> => vi.waitFor(check, { timeout: seconds * 1_000, interval: everyMs })

/** Resolves when the condition holds; fails at the timeout. */
export const until = (
  condition: () => boolean | Promise<boolean>,
  options?: WaitOptions,
): Promise<void> =>
  eventually(async () => {
    if (!(await condition())) throw new Error('the condition does not hold')
  }, options)
