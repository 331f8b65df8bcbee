import { backoffMs } from '@integration-host/shared/process/backoff'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ErrorCode, hasCode } from '@integration-host/shared/errors'

/** The result of a retried call if a shutdown aborted the retries. */
export const ABORTED = Symbol('retries aborted')

/**
 * Retries a call while it fails with one of `codes`, by default only with `store_unavailable`. Throws every other
 * error.
 */
export type StoreRetry = <Result>(
  call: () => Promise<Result>,
  signal: AbortSignal,
  codes?: readonly ErrorCode[],
) => Promise<Result | typeof ABORTED>

const STORE = ['store_unavailable'] as const

/**
 * Builds a StoreRetry. The pause before the first retry is 100 ms. Each further pause is twice as long, up to 2 s.
 * Jitter shortens each pause by up to half; `random` is in [0, 1).
 */
export const createStoreRetry =
  (random: () => number): StoreRetry =>
  async (call, signal, codes = STORE) => {
    for (let tries = 1; ; tries += 1) {
      try {
        return await call()
      } catch (error) {
        if (!codes.some((code) => hasCode(error, code))) throw error
        if (signal.aborted) return ABORTED
        const backoff = { baseMs: 100, capMs: 2_000, random: 0.5 + random() / 2 }
        await sleep(backoffMs(tries, backoff), null, { signal }).catch(() => {})
      }
    }
  }
