import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'
import type { Logger } from '@integration-host/shared/logger'
import { isOver } from '../transaction/status.ts'
import type { RunState } from '../transaction/transaction-source.ts'
import type { StepQueue } from './step-queue.ts'
import type { TransitionFeed } from './transition-feed.ts'

/** Says what was committed: to the worker of the next step, to other systems, to who watches. */
export interface TransitionPublisher {
  /**
   * Resolves when the message for the next step, if there is one, is with the broker or has failed; a
   * failure is not an error, because the row is the outbox and the pull sends it again.
   */
  announce(run: RunState, delayMs?: number): Promise<void>
  /** Sends the message for the step that is due once more: nothing has changed. Resolves as `announce` does. */
  remind(run: RunState): Promise<void>
  /** The same for many, without anyone waiting for it. */
  announceAll(runs: readonly RunState[]): void
  /** Tells of a transition that needs no message. */
  tell(run: RunState): void
  /** Resolves when nothing is on its way any more. */
  settled(): Promise<void>
}

export interface TransitionPublisherDeps {
  readonly queue: StepQueue
  readonly feed: TransitionFeed
  /** Tells other systems and replicas. */
  readonly tell: (event: TransactionEvent) => void
  readonly log: Logger
  readonly firstStep: (process: string) => string | undefined
}

const GROUP = 500

export function createTransitionPublisher(deps: TransitionPublisherDeps): TransitionPublisher {
  const { queue, feed, log } = deps
  const underway = new Set<Promise<void>>()

  const tell = (run: RunState): void => {
    const event = eventOf(run)
    feed.add(event)
    deps.tell(event)
  }

  const send = async (run: RunState, delayMs: number): Promise<void> => {
    if (isOver(run.Status) || run.Status === 'Waiting') return
    const { Process, TransactionID, ReplayID, Version: version } = run
    const step = run.StepName || deps.firstStep(Process)
    if (step === undefined) return
    try {
      await queue.publish({ Process, TransactionID, ReplayID, step, version }, delayMs)
    } catch {
      log.debug({ process: Process, step }, 'step message was not published: the pull sends it')
    }
  }

  const announce = (run: RunState, delayMs = 0): Promise<void> => {
    tell(run)
    return send(run, delayMs)
  }

  return {
    announce,
    remind: (run) => send(run, 0),
    tell,
    announceAll(runs) {
      const all = async (): Promise<void> => {
        for (let start = 0; start < runs.length; start += GROUP)
          await Promise.all(runs.slice(start, start + GROUP).map((run) => announce(run)))
      }
      const work = all().finally(() => underway.delete(work))
      underway.add(work)
    },
    async settled() {
      while (underway.size > 0) await Promise.allSettled(underway)
    },
  }
}

const eventOf = (run: RunState): TransactionEvent => ({
  Process: run.Process,
  TransactionID: run.TransactionID,
  ReplayID: run.ReplayID,
  Status: run.Status,
  StepName: run.StepName,
  Version: run.Version,
  At: run.UpdatedAt,
})
