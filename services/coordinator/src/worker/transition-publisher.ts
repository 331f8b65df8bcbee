import type { TransactionEvent } from '@integration-host/shared/contracts/events'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Clock, Timer } from '@integration-host/shared/process/clock'
import { providerErrorOf } from '@integration-host/shared/provider-profile/provider-fault'
import { createPendingWork } from '@integration-host/shared/process/pending-work'
import { isOver } from '../run/status.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import type { RunState } from '../run/transaction-source.ts'
import type { Lanes } from './lanes.ts'
import type { StepQueue } from './step-queue.ts'
import type { TransitionFeed } from '../events/transaction-events.ts'

/** A run after a transition. Without `Realm`, its messages go to the queues of the steps. */
export type PublishedRun = RunState & { readonly Realm?: string | null }

export interface TransitionPublisherDeps {
  readonly queue: Pick<StepQueue, 'publish' | 'written'>
  readonly feed: Pick<TransitionFeed, 'add'>
  readonly lanes: Pick<Lanes, 'of' | 'published'>
  /** Each is called with the event of each transition that this replica makes. */
  readonly listeners: readonly ((event: TransactionEvent) => void)[]
  readonly log: Logger
  readonly clock: Clock
  readonly processes: ReadonlyMap<string, Pick<ProcessDefinition, 'stepNames'>>
}

const BATCH = 500
/** The maximum number of messages that wait in memory: about 10 MB. Further messages wait in the delay queues. */
const MAX_HELD = 10_000

export type TransitionPublisher = ReturnType<typeof createTransitionPublisher>

/**
 * Publishes committed transitions. It sends a message to the queue of the step that is due, and an event to other
 * replicas, to other systems and to the clients of `GET /events`.
 */
export function createTransitionPublisher(deps: TransitionPublisherDeps) {
  const { queue, feed, lanes, listeners, log, clock } = deps
  const inBackground = createPendingWork()
  /** The steps that wait for a cool-down, with the time at which their messages are published, in epoch ms. */
  const held = new Map<Timer, { readonly run: PublishedRun; readonly at: number }>()

  const publishEvent = (run: RunState): void => {
    const event = eventOf(run)
    feed.add(event)
    for (const listener of listeners) listener(event)
  }

  const publishMessage = async (run: PublishedRun, delayMs: number): Promise<void> => {
    if (isOver(run.Status)) return
    const { Process, TransactionID, ReplayID, Version: version } = run
    const step = run.StepName || deps.processes.get(Process)?.stepNames[0]
    if (step === undefined) return
    const lane = lanes.of(run)
    if (delayMs <= 0) lanes.published(run)
    try {
      await queue.publish({ Process, TransactionID, ReplayID, step, version }, delayMs, lane)
    } catch {
      log.debug(
        { process: Process, step },
        'step message was not published; the sweeper publishes it again',
      )
    }
  }

  const publishStep = async (run: PublishedRun, delayMs = 0): Promise<void> => {
    publishEvent(run)
    // No step message is published for a run that waits for a credential, because its step cannot run yet. If the event
    // of the credential is missed, the sweeper publishes the message.
    if (run.WaitingFor === null) await publishMessage(run, delayMs)
  }

  return {
    /**
     * Publishes the event of a transition and, if a step is due after the transition, the message of that step. Resolves
     * when the broker has confirmed the message, or when publishing has failed. A failure is not thrown: the row is the
     * outbox, so the sweeper publishes the message again.
     */
    publishStep,
    /** Resolves when the messages of this turn of the event loop are on their way to the broker. */
    written: (): Promise<void> => queue.written(),
    /** Publishes the message of the due step again, but no event, because the run has not changed. */
    republishStep: (run: PublishedRun): Promise<void> => publishMessage(run, 0),
    /** Publishes the event of a transition that needs no message. */
    publishEvent,
    /** Publishes the events and messages of many runs in the background. `flush` waits until they are published. */
    publishSteps: (runs: readonly PublishedRun[]): void => {
      const publishAll = async (): Promise<void> => {
        for (let start = 0; start < runs.length; start += BATCH)
          await Promise.all(
            runs.slice(start, start + BATCH).map((run) => publishStep(run, delayMsOf(run))),
          )
      }
      void inBackground.add(publishAll())
    },
    /**
     * Publishes the event of a transition whose step waits for a cool-down, and publishes the message of the step after
     * `delayMs`. Until then the message waits in the memory of this replica. It does not wait in the broker, because many
     * runs may wait for one company, and each message would pass through several delay queues. If the replica dies, the
     * sweeper publishes the message. At shutdown, `flush` publishes the waiting messages to the delay queues.
     */
    publishHeld(run: PublishedRun, delayMs: number): void {
      publishEvent(run)
      if (held.size >= MAX_HELD) return void inBackground.add(publishMessage(run, delayMs))
      const timer = clock.setTimeout(() => {
        held.delete(timer)
        void inBackground.add(publishMessage(run, 0))
      }, delayMs)
      timer.unref()
      held.set(timer, { run, at: clock.now() + delayMs })
    },
    /**
     * Publishes the messages of waiting steps with their delays. Resolves when all publishing in the background has
     * ended.
     */
    async flush(): Promise<void> {
      for (const [timer, { run, at }] of held) {
        timer[Symbol.dispose]()
        void inBackground.add(publishMessage(run, Math.max(0, at - clock.now())))
      }
      held.clear()
      await inBackground.ended()
    },
  }
}

/**
 * Returns the milliseconds from the last transition of a run until the run is due. Both times come from the clock of
 * the transaction source, so the clock of this replica does not matter.
 */
export const delayMsOf = ({ NextAttemptAt, UpdatedAt }: RunState): number =>
  NextAttemptAt === null || NextAttemptAt === UpdatedAt
    ? 0
    : Math.max(0, Date.parse(NextAttemptAt) - Date.parse(UpdatedAt))

const eventOf = (run: RunState): TransactionEvent => ({
  Process: run.Process,
  TransactionID: run.TransactionID,
  ReplayID: run.ReplayID,
  Status: run.Status,
  StepName: run.StepName,
  Attempt: run.Attempt,
  ErrorClass: run.ErrorClass,
  ProviderError: run.ErrorClass === null ? null : providerErrorOf(run),
  WaitingFor: run.WaitingFor,
  InDoubt: run.InDoubt,
  NextAttemptAt: run.NextAttemptAt,
  Version: run.Version,
  At: run.UpdatedAt,
})
