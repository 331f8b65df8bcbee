import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'
import type { Logger } from '@integration-host/shared/logger'
import { isOver } from '../transaction/status.ts'
import type { Moved } from '../transaction/transaction-source.ts'
import type { StepQueue } from './step-queue.ts'
import type { TransitionFeed } from './transition-feed.ts'

/** Says what was committed: to the worker of the next step, to other systems, to who watches. */
export interface TransitionPublisher {
  /**
   * Resolves when the message for the next step, if there is one, is with the broker or has failed; a
   * failure is not an error, because the row is the outbox and the pull sends it again.
   */
  announce(header: Moved, delayMs?: number): Promise<void>
  /** Sends the message for the step that is due once more: nothing has changed. Resolves as `announce` does. */
  remind(header: Moved): Promise<void>
  /** The same for many, without anyone waiting for it. */
  announceAll(headers: readonly Moved[]): void
  /** Tells of a transition that needs no message. */
  tell(header: Moved): void
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

  const tell = (header: Moved): void => {
    const event = eventOf(header)
    feed.add(event)
    deps.tell(event)
  }

  const send = async (header: Moved, delayMs: number): Promise<void> => {
    if (isOver(header.Status) || header.Status === 'Waiting') return
    const { Process, TransactionID, ReplayID, Version: version } = header
    const step = header.StepName || deps.firstStep(Process)
    if (step === undefined) return
    try {
      await queue.publish({ Process, TransactionID, ReplayID, step, version }, delayMs)
    } catch {
      log.debug({ process: Process, step }, 'step message was not published: the pull sends it')
    }
  }

  const announce = (header: Moved, delayMs = 0): Promise<void> => {
    tell(header)
    return send(header, delayMs)
  }

  return {
    announce,
    remind: (header) => send(header, 0),
    tell,
    announceAll(headers) {
      const all = async (): Promise<void> => {
        for (let start = 0; start < headers.length; start += GROUP)
          await Promise.all(headers.slice(start, start + GROUP).map((header) => announce(header)))
      }
      const work = all().finally(() => underway.delete(work))
      underway.add(work)
    },
    async settled() {
      while (underway.size > 0) await Promise.allSettled(underway)
    },
  }
}

const eventOf = (header: Moved): TransactionEvent => ({
  Process: header.Process,
  TransactionID: header.TransactionID,
  ReplayID: header.ReplayID,
  Status: header.Status,
  StepName: header.StepName,
  Version: header.Version,
  At: header.UpdatedAt,
})
