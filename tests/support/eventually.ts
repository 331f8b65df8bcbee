import { vi } from 'vitest'

/** Tries `look` until it passes; fails with its last error after `seconds`. */
export const eventually = <T>(look: () => T | Promise<T>, seconds = 15): Promise<T> =>
  vi.waitFor(look, { timeout: seconds * 1_000, interval: 20 })
