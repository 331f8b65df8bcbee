/** The errors with which every transaction source rejects an operation on a transaction. */
import { IntegrationError } from '@integration-host/shared/errors'

/** @param replayId the requested run; `null` if the latest run was requested */
export const notFound = (
  process: string,
  transactionId: string,
  replayId: number | null,
): IntegrationError =>
  new IntegrationError(
    'transaction_not_found',
    replayId === null
      ? `${process} has no transaction ${transactionId}`
      : `${process} has no transaction ${transactionId} with a run ${replayId}`,
  )

/** Rejects a replay or a resume of a run whose data was removed because its retention time was over. */
export const purged = (): IntegrationError =>
  new IntegrationError('transaction_purged', 'the data of the run was purged')

export const notActive = (why = 'the run is over'): IntegrationError =>
  new IntegrationError('transaction_not_active', why)

export const notResumable = (): IntegrationError =>
  new IntegrationError(
    'transaction_not_resumable',
    'only a run that has failed or was cancelled can be resumed; a completed or undone one can be replayed',
  )

/**
 * @throws {IntegrationError} `transaction_not_resumable` or `transaction_not_undoable` if the transaction has a later run
 *   than this one.
 */
export function requireLatest(
  { ReplayID }: { readonly ReplayID: number },
  latest: number,
  kind: 'resume' | 'undo',
): void {
  if (latest <= ReplayID) return
  const [code, done] =
    kind === 'resume'
      ? (['transaction_not_resumable', 'resumed'] as const)
      : (['transaction_not_undoable', 'undone'] as const)
  throw new IntegrationError(code, `only the latest run can be ${done}, which is run ${latest}`)
}

export const notUndoable = (): IntegrationError =>
  new IntegrationError(
    'transaction_not_undoable',
    'only a failed, cancelled or completed run can be undone',
  )

export const notRetryable = (): IntegrationError =>
  new IntegrationError(
    'transaction_not_retryable',
    'only a run that waits for its next attempt, for its start or for a credential can be retried',
  )

export const notInDoubt = (): IntegrationError =>
  new IntegrationError('transaction_not_in_doubt', 'no attempt of the due step is in doubt')

export const stepInFlight = (): IntegrationError =>
  new IntegrationError('step_in_flight', 'an attempt of the step is in flight', {
    retryAfterSeconds: 30,
  })

/**
 * Rejects the settlement of a step that the process no longer has. The run could not continue, because its next step
 * would be unknown.
 */
export const stepUnknown = (): IntegrationError =>
  new IntegrationError('step_not_found', 'the process has no step of the name of the due step')

export const operationNotFound = (): IntegrationError =>
  new IntegrationError('operation_not_found', 'there is no operation with this id')

export const operationNotRunning = (): IntegrationError =>
  new IntegrationError('operation_not_running', 'the operation is over')

export const operationNotPaused = (): IntegrationError =>
  new IntegrationError('operation_not_paused', 'only a paused operation can be continued')

export const tooManyOperations = (limit: number): IntegrationError =>
  new IntegrationError('too_many_operations', `the key has ${limit} operations that are not over`, {
    retryAfterSeconds: 60,
    members: { limit },
  })

/** Thrown if the bulk operation has already changed the run, but was interrupted before it recorded its progress. */
export class DoneBefore extends Error {
  override readonly name = 'DoneBefore'

  constructor() {
    super('the operation has changed the run before')
  }
}

export const stillActive = (replayId: number): IntegrationError =>
  new IntegrationError('transaction_active', `run ${replayId} is still active`)

/** Rejects a replay of a child whose parent waits for it. */
export const parentActive = (): IntegrationError =>
  new IntegrationError('parent_active', 'the run is a child, and its parent has not ended')

/** @throws {IntegrationError} `transaction_erased` if the data with which the new run would start is erased */
export function requireData({ ErasedAt }: { readonly ErasedAt: string | null }): void {
  if (ErasedAt !== null)
    throw new IntegrationError(
      'transaction_erased',
      `the data of the run was erased at ${ErasedAt}`,
    )
}

/** Checks that each step before `fromStep` was completed, because a replay copies the items of these steps. */
export const earlierStepNotCompleted = (): IntegrationError =>
  new IntegrationError('invalid_request', 'a step before fromStep was never completed')

/** @param version the current version of the run. */
export const versionMoved = (version: number): IntegrationError =>
  new IntegrationError('version_moved', `the version of the run is ${version} now`, {
    members: { Version: version },
  })

/** @param latest the ReplayID of the latest run. */
export const anotherRunStarted = (latest: number): IntegrationError =>
  new IntegrationError('version_moved', `the latest run is run ${latest} now`)
