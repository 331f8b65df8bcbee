import { vi } from 'vitest'

export interface Patience {
  /** For a machine that does a few other things at once; what takes longer by its nature says so. */
  readonly seconds?: number
  /** More where looking costs something, or has an effect. */
  readonly everyMs?: number
}

/** Tries `look` until it passes; fails with its last error when patience ends. */
export const eventually = <T>(
  look: () => T | Promise<T>,
  { seconds = 30, everyMs = 10 }: Patience = {},
): Promise<T> => vi.waitFor(look, { timeout: seconds * 1_000, interval: everyMs })

/** Resolves when the condition holds; fails when patience ends. */
export const until = (
  condition: () => boolean | Promise<boolean>,
  patience?: Patience,
): Promise<void> =>
  eventually(async () => {
    if (!(await condition())) throw new Error('the condition does not hold')
  }, patience)
