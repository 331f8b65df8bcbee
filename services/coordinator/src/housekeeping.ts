/**
 * Starts the periodic tasks: those that continue overdue runs, and those that remove or re-encrypt
 * old data.
 */
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import type { EmbeddedConfig } from './config.ts'
import type { CoordinatorMetrics } from './metrics.ts'
import type { ProcessDefinition } from './step/definition.ts'
import type { Audit } from './run/audit.ts'
import type { OperationStore } from './bulk/bulk-operation-store.ts'
import type { PauseStore } from './run/pause.ts'
import type { ChangeWaits } from './change/change-waits.ts'
import { createPurgePasses } from './retention/purge-passes.ts'
import { createResealingPasses } from './resealing/resealing-passes.ts'
import type { TransactionSource } from './run/transaction-source.ts'
import type { Auditor } from './worker/auditor.ts'
import { startDeadLetterIntake } from './dead-letter/dead-letter-intake.ts'
import type { DeadLetterQueue } from './worker/dead-letter-queue.ts'
import { startDeadlines } from './worker/deadlines.ts'
import { startLeaseRecovery } from './worker/lease-recovery.ts'
import { startResealing } from './resealing/resealing.ts'
import { startRetention } from './retention/purge.ts'
import type { RemoveFilesOfRuns } from './worker/run-files.ts'
import type { Lanes } from './worker/lanes.ts'
import type { StepQueue } from './worker/step-queue.ts'
import type { Periodic } from './worker/polling.ts'
import type { StoreRetry } from './worker/store-retry.ts'
import { startSweeper } from './worker/sweeper.ts'
import type { TransitionPublisher } from './worker/transition-publisher.ts'
import type { Worker } from './worker/worker.ts'

export interface HousekeepingDeps extends Periodic {
  readonly config: EmbeddedConfig
  readonly source: TransactionSource
  readonly pauses: Pick<PauseStore, 'paused'>
  readonly bulkOperations: Pick<OperationStore, 'forgetOperations'>
  /** The transaction source that encrypts payloads, and its keys; `null` if payloads are not encrypted. */
  readonly sealed: { readonly source: TransactionSource; readonly keys: KeyRing } | null
  readonly queue: StepQueue
  readonly lanes: Lanes
  readonly deadLetters: DeadLetterQueue
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly processNames: readonly string[]
  readonly publisher: TransitionPublisher
  readonly worker: Worker
  readonly setPaused: Worker['setPaused']
  readonly auditor: Auditor
  readonly onAudit: (audit: Audit) => Promise<void>
  readonly removeFiles: RemoveFilesOfRuns
  readonly changeWaits: Pick<ChangeWaits, 'removeEnded'>
  readonly metrics: CoordinatorMetrics
  readonly retryStore: StoreRetry
  readonly owner: string
}

export function startHousekeeping(deps: HousekeepingDeps): AsyncDisposable {
  const { config, source, queue, publisher, processes, metrics, owner, retryStore } = deps
  const { log, clock, random } = deps
  const often = { log, clock, random, intervalMs: deps.intervalMs }
  const rarely = { log, clock, random, intervalMs: config.REMOTE_PULL_SECONDS * 1_000 }
  const stack = new AsyncDisposableStack()
  stack.use(
    startSweeper({
      ...often,
      source,
      queue,
      lanes: deps.lanes,
      publisher,
      worker: deps.worker,
      processes,
      prefetch: config.PREFETCH,
      onSweep: metrics.countSwept,
    }),
  )
  stack.use(startDeadlines({ ...often, source, processes, publisher }))
  stack.use(
    startLeaseRecovery({
      ...rarely,
      source,
      pauses: deps.pauses,
      publisher,
      worker: { setPaused: deps.setPaused },
      auditor: deps.auditor,
      onAudit: deps.onAudit,
      onRecovered: metrics.countRecovered,
    }),
  )
  stack.use(
    startRetention({
      ...rarely,
      source,
      passes: createPurgePasses(source),
      bulkOperations: deps.bulkOperations,
      processes,
      retention: {
        completedDays: config.RETENTION_COMPLETED_DAYS,
        failedDays: config.RETENTION_FAILED_DAYS,
        dedupeDays: config.DEDUPE_DAYS,
        entryDays: config.ENTRY_DAYS,
      },
      removeFiles: deps.removeFiles,
      removeLeftovers: (signal) => deps.changeWaits.removeEnded(signal),
      owner,
      onPurged: metrics.countPurged,
      onForgotten: metrics.countForgotten,
      onAges: metrics.setRetention,
    }),
  )
  if (deps.sealed !== null)
    stack.use(
      startResealing({
        ...rarely,
        ...deps.sealed,
        passes: createResealingPasses(source),
        owner,
        onProgress: metrics.setResealing,
      }),
    )
  stack.use(
    startDeadLetterIntake({
      ...often,
      store: source,
      queue: deps.deadLetters,
      processes: deps.processNames,
      retryStore,
    }),
  )
  return stack
}
