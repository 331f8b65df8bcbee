/**
 * Runs steps: claim, run, record, publish, acknowledge.
 *
 * R1  A step runs only under a lease, and its outcome is recorded only under this lease: if two workers run the same
 *     step, only one result counts.
 * R2  A delivery is acknowledged after the outcome is committed and publishing the next message was tried. If that
 *     message was not published, the sweeper publishes it later, because the row is the outbox. A crash in between
 *     repeats a message, never a result.
 * R3  A delivery waits while the store is unavailable: nothing is lost, and no attempt is charged.
 * R4  Shutdown, and the loss of the internet, abort calls that were not sent, and no attempt is charged for them. A
 *     call that was sent may finish; during shutdown it has at most `drainMs`. After that the call is aborted, no
 *     attempt is charged either, and the step is in doubt.
 * R5  A worker that continues with the next step by itself (`dispatch: 'inline'`) does so under the lease that the
 *     last record renewed. After a crash, the run continues from the last recorded step once that lease has
 *     expired.
 */
import type { Logger } from '@integration-host/shared/observability/logger'
import type { ProcessDefinition } from '../process/definition.ts'
import { RENEW_MS, type TransactionSource } from '../transaction/transaction-source.ts'
import { createConsumers } from './consumers.ts'
import { createGate, type PausedNames } from './gate.ts'
import { createDeliveryHandler } from './handle-delivery.ts'
import { startLeaseRenewal } from './lease-renewal.ts'
import { type ClaimedStepDeps, createClaimedStepRunner } from './run-claimed-step.ts'
import type { StepQueue } from './step-queue.ts'
import type { StepsInFlight } from './steps-in-flight.ts'
import { createStoreRetry } from './store-retry.ts'

export interface Worker extends AsyncDisposable {
  /** The result of the internet probes. Processes that need the internet run only while it is reachable. */
  setOnline(isOnline: boolean): void
  setPaused(paused: PausedNames): void
  /** Whether this replica consumes the steps of a process now. */
  isConsuming(process: string): boolean
}

export interface WorkerDeps extends Omit<ClaimedStepDeps, 'gate' | 'retryStore' | 'cutOff'> {
  readonly source: TransactionSource
  readonly queue: StepQueue
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly stepsInFlight: StepsInFlight
  readonly log: Logger
  readonly owner: string
  readonly prefetch: number
  readonly renewMs?: number
  /** Milliseconds over which the start of waiting steps is spread after the internet came back. */
  readonly rampMs?: number
  /** Milliseconds that steps in flight may continue during shutdown before they are aborted. */
  readonly drainMs?: number
}

export function createWorker(deps: WorkerDeps): Worker {
  const { source, queue, processes, stepsInFlight, log, owner, now, random, prefetch, count } = deps
  const { renewMs = RENEW_MS, rampMs = 2_000, drainMs = 5_000 } = deps
  const shutdown = new AbortController()
  const cutOff = new AbortController()
  const retryStore = createStoreRetry(random)
  const gate = createGate({ processes, now, random, rampMs, shutdown: shutdown.signal })
  const runClaimed = createClaimedStepRunner({ ...deps, gate, retryStore, cutOff: cutOff.signal })
  const handle = createDeliveryHandler({
    source,
    queue,
    processes,
    gate,
    retryStore,
    shutdown: shutdown.signal,
    log,
    owner,
    countStale: (process, step) => count(process, step, 'stale'),
    runClaimed,
  })
  const consumers = createConsumers({ processes, queue, gate, prefetch, handle })
  const renewal = startLeaseRenewal({ source, stepsInFlight, log, renewMs })

  return {
    setOnline(isOnline) {
      gate.setOnline(isOnline)
      if (!gate.dependsOnInternet) return void consumers.reconcile()
      if (isOnline) {
        log.info('coordinator starting')
        return void consumers.reconcile()
      }
      log.warn('coordinator cancellation requested')
      stepsInFlight.blockNewCalls('internet')
      void consumers.reconcile().then(() => log.warn('coordinator cancellation complete'))
    },
    setPaused(names) {
      gate.setPaused(names)
      void consumers.reconcile()
    },
    isConsuming: consumers.isConsuming,
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      stepsInFlight.blockNewCalls('all')
      const abortSteps = setTimeout(() => stepsInFlight.abortAll('shutdown'), drainMs)
      const endRetries = setTimeout(() => cutOff.abort(), drainMs + 2_000)
      await consumers.reconcile()
      clearTimeout(abortSteps)
      clearTimeout(endRetries)
      renewal[Symbol.dispose]()
    },
  }
}
