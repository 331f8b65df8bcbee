/** Completes the index of the credential store in the background after each start. */
import { backoffMs } from '@integration-host/shared/process/backoff'
import type { CustodyDeps } from './custody-deps.ts'

/**
 * The pauses between two attempts. An attempt fails if the store is unavailable or another process is building the
 * index.
 */
const RETRY = { baseMs: 200, capMs: 10_000 } as const

/**
 * Completes the index in the background. Repeats failed attempts until the index is complete or the returned object is
 * disposed.
 */
export function startIndexUpkeep({
  store,
  sleep,
  onError,
}: Pick<CustodyDeps, 'store' | 'sleep' | 'onError'>): AsyncDisposable {
  const shutdown = new AbortController()

  async function run(): Promise<void> {
    for (let attempt = 1; !shutdown.signal.aborted; attempt += 1) {
      try {
        if (await store.completeIndex(shutdown.signal)) return
      } catch (error) {
        onError(error)
      }
      await sleep(backoffMs(attempt, { ...RETRY, random: 1 }), shutdown.signal)
    }
  }

  const running = run()
  return {
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await running
    },
  }
}
