import { setTimeout as sleep } from 'node:timers/promises'
import { hasCode } from '@integration-host/shared/errors'
import type { Logger } from '@integration-host/shared/observability/logger'

export interface PollingOptions {
  /** The name of the task in log messages. */
  readonly task: string
  readonly intervalMs: number
  readonly log: Logger
  /** Returns a random number in [0, 1). */
  readonly random: () => number
  /** Resolves with false if the next poll should follow soon instead of after the interval. */
  readonly poll: () => Promise<boolean>
  /** Called before each poll. Returns a signal that ends the pause after this poll early if it aborts. */
  readonly wakeUp?: () => AbortSignal
}

/** Milliseconds to the next poll after a poll that failed or left something to do. */
const SOON_MS = 500

/** Calls `poll` at intervals until the returned object is disposed of. Disposal waits for the poll in flight. */
export function startPolling(options: PollingOptions): AsyncDisposable {
  const { task, intervalMs, log, random, poll, wakeUp } = options
  const shutdown = new AbortController()
  const loop = async (): Promise<void> => {
    while (!shutdown.signal.aborted) {
      let isDone = false
      const signal =
        wakeUp === undefined ? shutdown.signal : AbortSignal.any([wakeUp(), shutdown.signal])
      try {
        isDone = await poll()
      } catch (error) {
        if (hasCode(error, 'store_unavailable'))
          log.debug({ task }, 'periodic task waits until the transaction store is available')
        else log.error({ err: error, task }, 'periodic task failed')
      }
      // The pause varies by a tenth, so that replicas do not poll at the same moments.
      const ms = (isDone ? intervalMs : Math.min(SOON_MS, intervalMs)) * (0.9 + random() * 0.2)
      await sleep(ms, null, { signal }).catch(() => {})
    }
  }
  const polling = loop()
  return {
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await polling
    },
  }
}
