import { hasCode } from '@integration-host/shared/errors'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Clock } from '@integration-host/shared/process/clock'

/** What a periodic task needs. */
export interface Periodic {
  /** The milliseconds between two polls. */
  readonly intervalMs: number
  readonly log: Logger
  /** A clock that is used for durations only. */
  readonly clock: Clock
  /** Returns a random number in [0, 1). */
  readonly random: () => number
}

interface PollingOptions extends Periodic {
  /** The name of the task in log messages. */
  readonly task: string
  /** Performs one poll. Resolves with false if the next poll must follow soon instead of after the interval. */
  readonly poll: () => Promise<boolean>
}

export interface Polling extends AsyncDisposable {
  /** Starts the next poll at once, or directly after the poll in flight if there is one. */
  pollSoon(): void
}

/** The milliseconds until the next poll after a poll that failed or was incomplete. */
const SOON_MS = 500

/** Calls `poll` at intervals until the returned object is disposed of. Disposal waits for a poll in flight. */
export function startPolling(options: PollingOptions): Polling {
  const { task, intervalMs, log, random, poll } = options
  const repetition = options.clock.repeat(async () => {
    let isDone = false
    try {
      isDone = await poll()
    } catch (error) {
      if (hasCode(error, 'store_unavailable'))
        log.debug({ task }, 'periodic task waits until the transaction store is available')
      else log.error({ err: error, task }, 'periodic task failed')
    }
    // The pause varies randomly by up to a tenth, so that replicas poll at different moments.
    return (isDone ? intervalMs : Math.min(SOON_MS, intervalMs)) * (0.9 + random() * 0.2)
  })
  return {
    pollSoon: () => repetition.soon(),
    [Symbol.asyncDispose]: () => repetition[Symbol.asyncDispose](),
  }
}

/** The maximum number of runs that one statement of a periodic task concerns. */
const BATCH = 500
/** The maximum number of batches of one poll. The next poll continues. */
const MAX_BATCHES = 10

/**
 * Calls `work`, which resolves with how many of at most `size` things it has found, until it has found fewer. Resolves with
 * false if more may be left.
 */
export async function inBatches(work: (size: number) => Promise<number>): Promise<boolean> {
  for (let batch = 0; batch < MAX_BATCHES; batch += 1) if ((await work(BATCH)) < BATCH) return true
  return false
}
