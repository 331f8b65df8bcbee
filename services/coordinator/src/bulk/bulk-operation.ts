/**
 * A bulk operation performs one action on many transactions, in the background and on any replica.
 *
 * B1  A replica works on an operation under a lease that the replica renews. When the lease has expired, another
 *     replica continues from the recorded progress.
 * B2  An operation changes a transaction at most once, even if the operation is interrupted between a change and the
 *     record of its progress, or if two replicas work on it: see A4 in `action.ts`.
 * B3  An operation with a filter reads the runs that were created before the operation, newest first, and reads each
 *     run only once. The operation therefore ends, even if further runs start to match the filter. When the operation
 *     reads a run, it acts on the run only if the run matches the filter and is the latest run of its transaction.
 * B4  An operation is started with a service key, and acts only on runs that this key may use. It ends with this key,
 *     unless it was kept when the key was revoked.
 */
import {
  type BulkAction,
  MAX_LISTED_FAILURES,
  MAX_LISTED_MATCHES,
  type OperationDetail,
  type OperationStatus,
} from '@integration-host/shared/contracts/operations'
import type { HeaderStatus } from '@integration-host/shared/contracts/transaction'
import type { RunFilter } from '@integration-host/shared/contracts/run-filter'
import type { RunPosition } from '../run/run-search.ts'

/** The maximum number of open operations of one service key: those of all keys share the replicas. */
export const MAX_OPEN_OPERATIONS = 20

/** The request of an operation: its action and its runs. */
export interface OperationRequest {
  readonly Action: BulkAction
  readonly Process: string
  readonly DryRun: boolean
  readonly Request: {
    /** The filter that selects the runs. A request has either `Filter` or `Ids`. */
    readonly Filter?: RunFilter | undefined
    readonly Ids?: readonly string[] | undefined
    readonly FromStep?: string | undefined
    /**
     * With the action `take-back`: the process of the runs. `Process` is then the one that takes back, so that a replica of
     * a release that does not know the action leaves the operation to others.
     */
    readonly Of?: string | undefined
    readonly PerSecond: number
    /** The realms of the key that started the operation, in the format of the key file. */
    readonly Realms: readonly string[]
    /** Set if the operation was kept when its key was revoked. It then goes on without the key. */
    readonly IsKept?: true
  }
}

/** Returns the process of the runs on which an operation acts. */
export const processOf = ({
  Process,
  Request,
}: {
  readonly Process: string
  readonly Request: Pick<OperationRequest['Request'], 'Of'>
}): string => Request.Of ?? Process

/** The status reason of an operation that was stopped because its key has ended. */
export const KEY_ENDED = 'key_ended'
/** Returns the reason of this stop for the action log. */
export const keyEnded = (keyId: string): string => `the key ${keyId} has ended`

/** The progress of an operation. */
export interface OperationProgress {
  /**
   * The runs of the batch in flight, which are not counted yet. The batch is recorded before any of its runs is
   * changed. Otherwise another replica that continues the operation could not find the changed runs, because they may
   * no longer match the filter.
   */
  readonly Batch: readonly OperationTarget[]
  /** The position after the batch: in the list of ids or in the list of runs. `null` means the beginning. */
  readonly Position: number | RunPosition | null
  /** Whether the batch is the last one. */
  readonly IsLastBatch: boolean
  readonly Done: number
  readonly Skipped: number
  readonly FailedByCode: Readonly<Record<string, number>>
  readonly Failures: OperationDetail['Failures']
  readonly Matches: OperationDetail['Matches']
}

/** A run on which an operation acts. */
export interface OperationTarget {
  readonly TransactionID: string
  /** The run; `null` means the latest run of the transaction. */
  readonly ReplayID: number | null
  /** The status of the run when a search found it; `null` if the id is from the request of the operation. */
  readonly Status: HeaderStatus | null
}

export interface Operation extends OperationRequest {
  readonly ID: string
  readonly Status: OperationStatus
  readonly StatusReason: string | null
  readonly KeyID: string
  readonly Person: string | null
  readonly Reason: string | null
  readonly Progress: OperationProgress
  readonly CreatedAt: string
  readonly UpdatedAt: string
  readonly FinishedAt: string | null
}

/** An operation in a list. Its ids are replaced by their number, because an operation may have many ids. */
export interface OperationSummary extends Omit<Operation, 'Request'> {
  readonly Request: Omit<OperationRequest['Request'], 'Ids'> & { readonly IdCount: number | null }
}

/** The position after which a page of the list begins. The list is in descending order of time. */
export interface OperationPosition {
  readonly createdAt: string
  readonly id: string
}

/** The lease with which a replica may work on an operation. */
export interface OperationLease {
  readonly id: string
  readonly owner: string
}

/** How a replica stops working on an operation. After `release`, any replica can continue the operation at once. */
export type OperationEnd =
  | { readonly kind: 'completed' }
  | { readonly kind: 'paused'; readonly reason: string }
  | { readonly kind: 'release' }

export const noProgress: OperationProgress = {
  Batch: [],
  Position: null,
  IsLastBatch: false,
  Done: 0,
  Skipped: 0,
  FailedByCode: {},
  Failures: [],
  Matches: [],
}

/** The outcome of an operation for a single run. */
export type RunOutcome = { readonly TransactionID: string; readonly ReplayID: number | null } & (
  | { readonly kind: 'done' | 'skipped' }
  /** `isServerError` means that the store or a backend has failed, so another attempt may succeed. */
  | { readonly kind: 'failed'; readonly code: string; readonly isServerError: boolean }
  /** The operation is a dry run; a real operation would change this run. */
  | { readonly kind: 'matched'; readonly status: OperationDetail['Matches'][number]['Status'] }
)

/** Returns the progress of an operation after a batch whose runs had these outcomes. */
export function withOutcomes(
  progress: OperationProgress,
  outcomes: readonly RunOutcome[],
): OperationProgress {
  const count = (...kinds: RunOutcome['kind'][]): number =>
    outcomes.filter(({ kind }) => kinds.includes(kind)).length
  const FailedByCode = { ...progress.FailedByCode }
  const failures: OperationDetail['Failures'] = []
  const matches: OperationDetail['Matches'] = []
  for (const outcome of outcomes) {
    const { TransactionID, ReplayID } = outcome
    if (outcome.kind === 'failed') {
      FailedByCode[outcome.code] = (FailedByCode[outcome.code] ?? 0) + 1
      failures.push({ TransactionID, ReplayID, Code: outcome.code })
    }
    if (outcome.kind === 'matched')
      matches.push({ TransactionID, ReplayID, Status: outcome.status })
  }
  return {
    ...progress,
    Batch: [],
    Done: progress.Done + count('done', 'matched'),
    Skipped: progress.Skipped + count('skipped'),
    FailedByCode,
    Failures: [...progress.Failures, ...failures].slice(0, MAX_LISTED_FAILURES),
    Matches: [...progress.Matches, ...matches].slice(0, MAX_LISTED_MATCHES),
  }
}
