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

/** The beginning of `WaitingFor` of a run that waits for an event. The name of the place follows. */
export const WAITS_FOR_EVENT = 'event:'

export const isWaitingForEvent = ({
  Status,
  WaitingFor,
}: {
  readonly Status: HeaderStatus
  readonly WaitingFor: string | null
}): boolean => Status === 'Waiting' && WaitingFor?.startsWith(WAITS_FOR_EVENT) === true

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
