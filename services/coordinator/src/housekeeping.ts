/**
 * Starts the periodic tasks: those that continue overdue runs, and those that remove or re-encrypt
 * old data.
 */
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import type { EmbeddedConfig } from './config.ts'
import type { Core } from './core.ts'
import type { Audit } from './run/audit.ts'
import type { OperationStore } from './bulk/bulk-operation-store.ts'
import type { ChangeWaits } from './change/change-waits.ts'
import { createPurgePasses } from './retention/purge-passes.ts'
import type { TransactionSource } from './run/transaction-source.ts'
import type { Auditor } from './worker/auditor.ts'
import { startDeadLetterIntake } from './dead-letter/dead-letter-intake.ts'
import type { DeadLetterQueue } from './worker/dead-letter-queue.ts'
import { startDeadlines } from './worker/deadlines.ts'
import { startLeaseRecovery } from './worker/lease-recovery.ts'
import { createResealingPasses, startResealing } from './resealing/resealing.ts'
import { startRetention } from './retention/purge.ts'
import type { RemoveFilesOfRuns } from './worker/run-files.ts'
import { startSweeper } from './worker/sweeper.ts'
import type { Worker } from './worker/worker.ts'

export interface HousekeepingDeps extends Core {
  readonly config: EmbeddedConfig
  readonly bulkOperations: OperationStore
  /** The transaction source that encrypts payloads, and its keys; `null` if payloads are not encrypted. */
  readonly sealed: { readonly source: TransactionSource; readonly keys: KeyRing } | null
  readonly deadLetters: DeadLetterQueue
  readonly processNames: readonly string[]
  readonly worker: Worker
  readonly setPaused: Worker['setPaused']
  readonly auditor: Auditor
  readonly onAudit: (audit: Audit) => Promise<void>
  readonly removeFiles: RemoveFilesOfRuns
  readonly changeWaits: ChangeWaits
}

export function startHousekeeping(deps: HousekeepingDeps): AsyncDisposable {
  const { config, source, metrics, setPaused } = deps
  const rarely = { ...deps, intervalMs: config.REMOTE_PULL_SECONDS * 1_000 }
  const stack = new AsyncDisposableStack()
  stack.use(startSweeper({ ...deps, prefetch: config.PREFETCH, onSweep: metrics.countSwept }))
  stack.use(startDeadlines(deps))
  stack.use(
    startLeaseRecovery({
      ...rarely,
      worker: { setPaused },
      onRecovered: metrics.countRecovered,
    }),
  )
  stack.use(
    startRetention({
      ...rarely,
      passes: createPurgePasses(source),
      retention: {
        completedDays: config.RETENTION_COMPLETED_DAYS,
        failedDays: config.RETENTION_FAILED_DAYS,
        dedupeDays: config.DEDUPE_DAYS,
        entryDays: config.ENTRY_DAYS,
      },
      removeLeftovers: (signal) => deps.changeWaits.removeEnded(signal),
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
        onProgress: metrics.setResealing,
      }),
    )
  stack.use(
    startDeadLetterIntake({
      ...deps,
      queue: deps.deadLetters,
      processes: deps.processNames,
    }),
  )
  return stack
}
