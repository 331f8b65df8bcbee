import { setTimeout as sleep } from 'node:timers/promises'
import { hasCode } from '@integration-host/shared/errors'

/** The result when shutdown aborts the retries against an unavailable store. */
export const ABORTED = Symbol('retries aborted')

/** Calls until the store is available again; any error but `store_unavailable` is thrown. */
export type StoreRetry = <Result>(
  call: () => Promise<Result>,
  signal: AbortSignal,
) => Promise<Result | typeof ABORTED>

/** Retries after 50 ms at first and at most 2 s, with up to half of it as jitter. `random` is in [0, 1). */
export const createStoreRetry =
  (random: () => number): StoreRetry =>
  async (call, signal) => {
    for (let tries = 1; ; tries += 1) {
      try {
        return await call()
      } catch (error) {
        if (!hasCode(error, 'store_unavailable')) throw error
        if (signal.aborted) return ABORTED
        const ceilingMs = Math.min(2_000, 50 * 2 ** Math.min(tries, 6))
        await sleep(ceilingMs * (0.5 + random() / 2), null, { signal }).catch(() => {})
      }
    }
  }
