import type { HeaderStatus } from '@integration-host/shared/contracts/transaction'

/** Statuses that only Resume (Failed, Cancelled) or Replay (a new run) lead out of. */
const over = ['Completed', 'Failed', 'Cancelled'] as const satisfies readonly HeaderStatus[]
/** Statuses of a run that still has work to do. */
export const activeStatuses = [
  'Queued',
  'Running',
  'Retrying',
  'Waiting',
] as const satisfies readonly HeaderStatus[]

export const isOver = (status: HeaderStatus): boolean =>
  (over as readonly HeaderStatus[]).includes(status)

export const isResumable = (status: HeaderStatus): boolean =>
  status === 'Failed' || status === 'Cancelled'
