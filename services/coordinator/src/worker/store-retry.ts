import { backoffMs } from '@integration-host/shared/process/backoff'
import { setTimeout as sleep } from 'node:timers/promises'
import { hasCode } from '@integration-host/shared/errors'

/** The result of retries against an unavailable store if a shutdown aborts them. */
export const ABORTED = Symbol('retries aborted')

/** Repeats a call until the store is available again; throws any error but `store_unavailable`. */
export type StoreRetry = <Result>(
  call: () => Promise<Result>,
  signal: AbortSignal,
) => Promise<Result | typeof ABORTED>

/**
 * Builds a StoreRetry. The first retry follows after 100 ms, and each later one after at most 2 s. Jitter shortens
 * each delay by up to half.
 * `random` is in [0, 1).
 */
export const createStoreRetry =
  (random: () => number): StoreRetry =>
  async (call, signal) => {
    for (let tries = 1; ; tries += 1) {
      try {
        return await call()
      } catch (error) {
        if (!hasCode(error, 'store_unavailable')) throw error
        if (signal.aborted) return ABORTED
        const backoff = { baseMs: 100, capMs: 2_000, random: 0.5 + random() / 2 }
        await sleep(backoffMs(tries, backoff), null, { signal }).catch(() => {})
      }
    }
  }
