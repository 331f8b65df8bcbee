import type { Clock } from '@integration-host/shared/process/clock'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { RunningService } from '@integration-host/shared/process/lifecycle'
import type { Hono } from 'hono'
import type { LoadedProcesses } from './adapters/folder/processes.ts'
import type { WatchProcesses } from './adapters/folder/watch-processes.ts'
import type { WebhookPostOptions } from './adapters/http/webhook-post.ts'
import type { ConnectedCompanies } from './company/connected-companies.ts'
import type { ProcessDefinition } from './step/definition.ts'
import type { HttpCall } from './step/http-call.ts'
import type { TransactionSource, WebhooksOf } from './run/transaction-source.ts'
import type { WebhookTiming } from './webhook/deliver.ts'
import type { CoordinatorMetrics } from './metrics.ts'
import type { PauseStore } from './run/pause.ts'
import type { Lanes } from './worker/lanes.ts'
import type { Periodic } from './worker/polling.ts'
import type { StoreRetry } from './worker/store-retry.ts'
import type { TransitionPublisher } from './worker/transition-publisher.ts'
import type { Product } from '@integration-host/shared/http/page'
import type { AccessKeys } from '@integration-host/shared/access/access-keys'
import type { RunActions } from './worker/run-actions.ts'
import type { Auditor } from './worker/auditor.ts'
import type { Audit } from './run/audit.ts'
import type { DeadLetterOperations } from './dead-letter/dead-letter-operations.ts'
import type { DeadLetterStore } from './dead-letter/dead-letter-store.ts'
import type { OperationStore } from './bulk/bulk-operation-store.ts'
import type { OperationRunner } from './bulk/run-bulk-operations.ts'
import type { TakeBack } from './take-back/take-back.ts'
import type { ScheduleOperations } from './schedule/scheduler.ts'
import type { ChangeCursors } from './change-feed/change-cursors.ts'
import type { CompanyPauses } from './company-pause/company-pauses.ts'
import type { CompanyGate } from './company-pause/company-gate.ts'
import type { Decisions } from './decision/decisions.ts'
import type { Erase } from './erasure/erasure.ts'
import type { EventStreams } from './events/event-stream-routes.ts'
import type { RunEnds } from './routes/run-ends.ts'
import type { SealedCursors } from './routes/sealed-cursors.ts'
import type { RecordRead } from './routes/read-log.ts'
import type { Worker, WorkerDeps } from './worker/worker.ts'

/** What the coordinator is started with: its store and message bus, and replacements for its other adapters. */
export interface CoordinatorAdapters {
  readonly logger: Logger
  readonly health: Health
  readonly metrics?: Metrics
  /** Opens the store, which the coordinator closes. Without `webhooksOf`, transitions store no webhooks. */
  readonly openSource: (webhooksOf?: WebhooksOf) => TransactionSource | Promise<TransactionSource>
  readonly bus: MessageBus
  /**
   * The processes to run, or the result of loading them: processes together with failures to report. Default: the
   * built-in processes.
   */
  readonly processes?: readonly ProcessDefinition[] | LoadedProcesses
  /**
   * An option for development: replaces a running process when its file changes. Default: processes are not replaced.
   */
  readonly watchProcesses?: WatchProcesses
  /**
   * A clock that is used for durations, because the transaction source has its own clock; and for the time in the id of
   * a run that a person starts from a schedule. Default: the clock of the machine.
   */
  readonly clock?: Clock
  readonly waitForClock?: WorkerDeps['waitForClock']
  /** Returns a random number in [0, 1), for the jitter of delays. */
  readonly random?: () => number
  /**
   * Whether the coordinator reads the provider's change feed to find changes whose webhooks were missed. Default: true.
   */
  readonly readsChangeFeed?: boolean
  /** The list of connected companies. Default: the list of token-service. */
  readonly companies?: ConnectedCompanies
  /** A function that makes the HTTP calls of the steps. Default: calls over connections that the coordinator opens. */
  readonly call?: HttpCall
  /** A function that serves the HTTP interface. Default: listens on `HOST` and `PORT`. */
  readonly serve?: (app: Hono) => Promise<RunningService>
  /** The intervals and time limits that replace the defaults. Tests set shorter ones. */
  readonly timing?: Pick<WorkerDeps, 'renewMs' | 'rampMs' | 'drainMs'> & {
    readonly onlineIntervalMs?: number
    readonly offlineIntervalMs?: number
    readonly confirmMs?: number
    readonly webhooks?: WebhookTiming & WebhookPostOptions
  }
}

/** What the parts of the coordinator share. `intervalMs` is that of the sweeper, `LOCAL_PULL_SECONDS`. */
export interface Core extends Periodic, Pick<WorkerDeps, 'queue' | 'stepsInFlight'> {
  readonly source: TransactionSource
  readonly deadLetterStore: DeadLetterStore
  readonly bus: MessageBus
  readonly pauses: PauseStore
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly lanes: Lanes
  readonly publisher: TransitionPublisher
  readonly metrics: CoordinatorMetrics
  readonly retryStore: StoreRetry
  /** The name of this replica in leases and consumer tags. */
  readonly owner: string
}

/** What the HTTP app and its routes need. */
export interface AppDeps extends Pick<
  Core,
  'source' | 'deadLetterStore' | 'pauses' | 'processes' | 'queue'
> {
  readonly logger: Logger
  readonly health: Health
  readonly metrics: Metrics
  readonly keys: AccessKeys
  readonly product: Product
  readonly runActions: RunActions
  readonly worker: Worker
  readonly auditor: Auditor
  /** Returns the latest audit of this replica; `null` before the first one. */
  readonly lastAudit: () => Audit | null
  readonly countDeadLetters: () => Promise<ReadonlyMap<string, number>>
  readonly deadLetterOperations: DeadLetterOperations
  readonly bulkOperations: OperationStore
  readonly operationRunner: OperationRunner
  readonly takeBack: TakeBack
  readonly schedules: ScheduleOperations
  readonly changeCursors: ChangeCursors
  readonly companyPauses: CompanyPauses
  readonly companyGate: CompanyGate
  readonly decisions: Decisions
  readonly erase: Erase
  readonly streams: EventStreams
  readonly runEnds: RunEnds
  readonly cursors: SealedCursors
  readonly recordRead: RecordRead
  /** Aborted at shutdown to end the exports in progress. Otherwise the server would wait for them. */
  readonly shutdown: AbortSignal
}
