import type { HeaderStatus } from '@integration-host/shared/contracts/transaction'

/**
 * The final statuses of a run. A resume continues a Failed, Cancelled or UndoFailed run; a replay starts another run.
 */
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
/** The beginning of `WaitingFor` of a run that waits for a change in the books. The name of the place follows. */
export const WAITS_FOR_CHANGE = 'change:'

/** The beginning of `WaitingFor` of a run that closed books of its company keep waiting. The realm follows. */
export const WAITS_FOR_BOOKS = 'books:'

/** The beginning of `WaitingFor` of a run whose company is paused. The realm follows. */
export const WAITS_FOR_RESUME = 'paused:'

/** Whether a run waits at a place: for an event, or for a change in the books. */
export const isWaitingForEventOrChange = ({
  Status,
  WaitingFor,
}: {
  readonly Status: HeaderStatus
  readonly WaitingFor: string | null
}): boolean =>
  Status === 'Waiting' &&
  WaitingFor !== null &&
  (WaitingFor.startsWith(WAITS_FOR_EVENT) || WaitingFor.startsWith(WAITS_FOR_CHANGE))

/** The beginning of `WaitingFor` of a run that waits for its children. The name of the place follows. */
export const WAITS_FOR_CHILDREN = 'children:'
/** The beginning of `WaitingFor` of a child that waits for its turn. The name of the place of its parent follows. */
export const WAITS_FOR_TURN = 'turn:'

/** Whether a run waits for its children. A run that is being undone has the status `Undoing` meanwhile. */
export const isWaitingForChildren = ({
  Status,
  WaitingFor,
}: {
  readonly Status: HeaderStatus
  readonly WaitingFor: string | null
}): boolean =>
  (Status === 'Waiting' || Status === 'Undoing') &&
  WaitingFor?.startsWith(WAITS_FOR_CHILDREN) === true

/** Whether a run waits for its children, or for its turn as a child. The sweeper looks at its family instead. */
export const isWaitingForFamily = (run: {
  readonly Status: HeaderStatus
  readonly WaitingFor: string | null
}): boolean =>
  isWaitingForChildren(run) ||
  (run.Status === 'Waiting' && run.WaitingFor?.startsWith(WAITS_FOR_TURN) === true)

/** Whether a run waits at a place without a message: for an event, a change, its children, or its turn as a child. */
export const isWaitingAtPlace = (run: {
  readonly Status: HeaderStatus
  readonly WaitingFor: string | null
}): boolean => isWaitingForEventOrChange(run) || isWaitingForFamily(run)

export const isOver = (status: HeaderStatus): boolean =>
  (over as readonly HeaderStatus[]).includes(status)

/** Whether the steps of a run still go forward: it has not ended, and its undo has not begun. */
export const goesForward = (status: HeaderStatus): boolean =>
  !isOver(status) && status !== 'Undoing'

/**
 * Whether a run with this status waits for its next attempt, for a credential, or for a slot. An operator can retry
 * such a run.
 */
export const isRetryable = (status: HeaderStatus): boolean =>
  status === 'Retrying' || status === 'Waiting'

export const resumableStatuses = [
  'Failed',
  'Cancelled',
  'UndoFailed',
] as const satisfies readonly HeaderStatus[]
export const isResumable = (status: HeaderStatus): boolean =>
  (resumableStatuses as readonly HeaderStatus[]).includes(status)

/** The statuses of the runs whose finished steps can be undone. */
export const undoableStatuses = [
  'Failed',
  'Cancelled',
  'Completed',
] as const satisfies readonly HeaderStatus[]

/** Whether a run with this status is due at its `NextAttemptAt`, unless it waits for something. */
export const isDueStatus = (status: HeaderStatus): boolean =>
  !isOver(status) && status !== 'Waiting'

/** Whether the undo of a run has begun and not succeeded. */
export const isUndo = (status: HeaderStatus): boolean =>
  status === 'Undoing' || status === 'UndoFailed'

/** Returns the status of a run that fails. A run that is being undone must not continue forward when it is resumed. */
export const failedStatus = ({
  Status,
}: {
  readonly Status: HeaderStatus
}): 'Failed' | 'UndoFailed' => (Status === 'Undoing' ? 'UndoFailed' : 'Failed')
