/**
 * Runs steps: claim, run, record, publish, acknowledge. A step message passes step-queue.ts and step-consumers.ts,
 * which claims the run (`TransactionSource.claim`). Then run-claimed-step.ts runs the step
 * (step/run-step.ts), derives the transition from its outcome (run/progress.ts), and records it
 * (`TransactionSource.record`: adapters/postgres/statements/record-outcomes.ts, or run/transitions.ts in memory).
 *
 * R1  A step runs only under a lease, and its outcome is recorded only under this lease. So if two workers run the same
 *     step, only one result counts.
 * R2  A delivery is acknowledged after the outcome is committed and the worker has tried to publish the next message; or
 *     if no outcome can be recorded, because the lease was lost or the process shuts down: the run then continues when
 *     the lease has expired.
 *     If the next message was not published, the sweeper publishes it later, because the row is the outbox. A crash
 *     between commit and acknowledgement repeats a message, but never a result.
 * R3  A delivery waits while the store is unavailable. Nothing is lost, and the wait does not count as an attempt.
 * R4  A shutdown, or the loss of the internet, aborts the calls that were not sent, and they do not count as attempts.
 *     A call that was sent can finish. A shutdown waits at most `drainMs` for such a call, and then aborts the call:
 *     the step is then in doubt, but the attempt does not count.
 * R5  With `dispatch: 'inline'`, a worker runs the next step itself, under the lease that was renewed when the outcome
 *     of the previous step was recorded. After a crash, the run continues from the last recorded step when that lease
 *     has expired.
 * R6  The statement that inserts a run can also claim the run for the replica that accepted the request (step-consumers.ts).
 *     If this replica dies directly afterwards, the run continues when the lease of this claim has expired.
 */
import type { Logger } from '@integration-host/shared/observability/logger'
import type { ProcessDefinition } from '../step/definition.ts'
import { RENEW_MS, type TransactionSource } from '../run/transaction-source.ts'
import { createArrivals, createConsumers, createDeliveryHandler } from './step-consumers.ts'
import { createGate, type PausedNames } from './gate.ts'
import { type ClaimedStepDeps, createClaimedStepRunner } from './run-claimed-step.ts'
import type { Lanes } from './lanes.ts'
import type { StepQueue } from './step-queue.ts'
import type { StepsInFlight } from './steps-in-flight.ts'

export interface WorkerDeps extends Omit<ClaimedStepDeps, 'gate' | 'cutOff'> {
  readonly source: TransactionSource
  readonly queue: StepQueue
  readonly lanes: Pick<Lanes, 'left'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly stepsInFlight: StepsInFlight
  readonly log: Logger
  readonly owner: string
  readonly prefetch: number
  readonly renewMs?: number
  /** The milliseconds over which the starts of waiting steps are spread when the internet becomes reachable. */
  readonly rampMs?: number
  /** The milliseconds for which steps in flight may continue during shutdown. After this time they are aborted. */
  readonly drainMs?: number
}

export type Worker = ReturnType<typeof createWorker>

export function createWorker(deps: WorkerDeps) {
  const { source, queue, processes, stepsInFlight, log, owner, clock, random, prefetch } = deps
  const { renewMs = RENEW_MS, rampMs = 2_000, drainMs = 5_000 } = deps
  const shutdown = new AbortController()
  const cutOff = new AbortController()
  const { now } = clock
  const gate = createGate({ processes, now, random, rampMs, shutdown: shutdown.signal })
  const runClaimed = createClaimedStepRunner({ ...deps, gate, cutOff: cutOff.signal })
  const handle = createDeliveryHandler({ ...deps, gate, shutdown: shutdown.signal, runClaimed })
  const arrivals = createArrivals({ gate, owner, prefetch, runClaimed, log })
  const consumers = createConsumers({ processes, queue, gate, prefetch, arrivals, handle })
  let areCompaniesKnown = false
  const renewal = startLeaseRenewal({ source, stepsInFlight, log, clock, renewMs })

  return {
    /** The result of the internet probes. A process that needs the internet runs only while the internet is reachable. */
    setOnline(isOnline: boolean): void {
      gate.setOnline(isOnline)
      if (!gate.dependsOnInternet()) return void consumers.reconcile()
      if (isOnline) {
        log.info('coordinator starting')
        return void consumers.reconcile()
      }
      log.warn('coordinator cancellation requested')
      stepsInFlight.blockNewCalls('internet')
      void consumers.reconcile().then(() => log.warn('coordinator cancellation complete'))
    },
    setPaused(names: PausedNames): void {
      gate.setPaused(names)
      void consumers.reconcile()
    },
    setPausedCompanies(realms: PausedNames): void {
      gate.setPausedCompanies(realms)
      if (!areCompaniesKnown) void consumers.reconcile()
      areCompaniesKnown = true
    },
    /**
     * Starts to consume the steps of `processes` in their current state. Called after definitions were replaced or added.
     */
    followDefinitions: (): void => void consumers.reconcile(),
    /** Whether this replica currently consumes the steps of a process. */
    isConsuming: consumers.isConsuming,
    /**
     * Queues transactions, and starts runs on arrival (without a step message), as many as this replica has capacity for.
     */
    queueAndStart: arrivals.queueAndStart,
    async [Symbol.asyncDispose](): Promise<void> {
      shutdown.abort()
      stepsInFlight.blockNewCalls('all')
      const abortSteps = setTimeout(() => stepsInFlight.abortAll('shutdown'), drainMs)
      const endRetries = setTimeout(() => cutOff.abort(), drainMs + 2_000)
      await consumers.reconcile()
      await arrivals[Symbol.asyncDispose]()
      clearTimeout(abortSteps)
      clearTimeout(endRetries)
      renewal[Symbol.dispose]()
    },
  }
}

/** Every `renewMs`, extends the leases of all steps in flight and aborts the steps whose lease was lost. */
function startLeaseRenewal({
  source,
  stepsInFlight,
  log,
  clock,
  renewMs,
}: Required<
  Pick<WorkerDeps, 'source' | 'stepsInFlight' | 'log' | 'clock' | 'renewMs'>
>): Disposable {
  const renew = (): void => {
    const { leases } = stepsInFlight
    if (leases.length === 0) return
    source.renew(leases).then(
      (lost) => {
        for (const lease of lost) stepsInFlight.abortLost(lease)
      },
      () => log.debug('could not renew the leases of the steps in flight'),
    )
  }
  // A renewal starts even if the previous renewal has not ended, because otherwise a lease could expire while the store
  // is slow.
  const repetition = clock.repeat(async () => {
    renew()
    return renewMs
  })
  return { [Symbol.dispose]: () => void repetition[Symbol.asyncDispose]() }
}
