import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'
import type { Logger } from '@integration-host/shared/logger'
import type { Header } from '../transaction/header.ts'
import { isOver } from '../transaction/status.ts'
import type { StepQueue } from './step-queue.ts'
import type { TransitionFeed } from './transition-feed.ts'

/** Says what was committed: to the worker of the next step, to other systems, to who watches. */
export interface Announcer {
  /**
   * Resolves when the message for the next step, if there is one, is with the broker or has failed; a
   * failure is not an error, because the row is the outbox and the pull sends it again.
   */
  announce(header: Header, delayMs?: number): Promise<void>
  /** The same for many, without anyone waiting for it. */
  announceAll(headers: readonly Header[]): void
  /** Tells of a transition that needs no message. */
  tell(header: Header): void
  /** Resolves when nothing is on its way any more. */
  settled(): Promise<void>
}

export interface AnnouncerDeps {
  readonly queue: StepQueue
  readonly feed: TransitionFeed
  readonly publishEvent: (event: TransactionEvent) => Promise<void>
  readonly log: Logger
  readonly firstStep: (process: string) => string | undefined
}

const GROUP = 500

export function createAnnouncer(deps: AnnouncerDeps): Announcer {
  const { queue, feed, log } = deps
  const underway = new Set<Promise<unknown>>()
  const track = (work: Promise<unknown>): void => {
    underway.add(work)
    void work.finally(() => underway.delete(work))
  }

  const tell = (header: Header): void => {
    const event = eventOf(header)
    feed.add(event)
    track(deps.publishEvent(event).catch(() => log.debug('transaction event was not published')))
  }

  const announce = async (header: Header, delayMs = 0): Promise<void> => {
    tell(header)
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

  return {
    announce,
    tell,
    announceAll(headers) {
      const all = async (): Promise<void> => {
        for (let start = 0; start < headers.length; start += GROUP)
          await Promise.all(headers.slice(start, start + GROUP).map((header) => announce(header)))
      }
      track(all())
    },
    async settled() {
      while (underway.size > 0) await Promise.allSettled(underway)
    },
  }
}

const eventOf = (header: Header): TransactionEvent => ({
  Process: header.Process,
  TransactionID: header.TransactionID,
  ReplayID: header.ReplayID,
  Status: header.Status,
  StepName: header.StepName,
  Version: header.Version,
  At: header.UpdatedAt,
})
