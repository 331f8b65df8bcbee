import type { HeaderStatus } from '@integration-host/shared/contracts/transaction'

/** The final statuses of a run. A resume continues a Failed or Cancelled run; a replay starts another run. */
const over = [
  'Completed',
  'Failed',
  'Cancelled',
  'Undone',
  'UndoFailed',
] as const satisfies readonly HeaderStatus[]
/** The statuses of a run that has not ended. */
export const activeStatuses = [
  'Queued',
  'Running',
  'Retrying',
  'Waiting',
  'Undoing',
] as const satisfies readonly HeaderStatus[]

export const isOver = (status: HeaderStatus): boolean =>
  (over as readonly HeaderStatus[]).includes(status)

/**
 * Whether a run with this status waits for its next attempt, for a credential, or for a slot. An operator can retry
 * such a run.
 */
export const isRetryable = (status: HeaderStatus): boolean =>
  status === 'Retrying' || status === 'Waiting'

export const isResumable = (status: HeaderStatus): boolean =>
  status === 'Failed' || status === 'Cancelled'
