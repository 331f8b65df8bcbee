/** The rules for runs that start later than they are queued, as pure functions. */
import type { NotBefore } from '@integration-host/shared/contracts/transaction'
import type { Run } from './run.ts'
import type { NewTransaction, StartOnArrival } from './transaction-source.ts'

/**
 * Returns the time (epoch ms) before which a run does not start; `null` if the run is not delayed. A time before 1970
 * is replaced by the beginning of 1970, because the store cannot represent very early years. Both times are in the
 * past, so the run starts at once.
 */
export const notBeforeMs = (notBefore: NotBefore | undefined, now: number): number | null => {
  if (notBefore === undefined) return null
  return typeof notBefore === 'number'
    ? now + notBefore * 1_000
    : Math.max(0, Date.parse(notBefore))
}

/**
 * Returns the transactions whose runs are claimed in the statement that inserts them: the first transactions of the
 * call that are not delayed.
 */
export const startingNow = (
  transactions: readonly NewTransaction[],
  start: StartOnArrival | undefined,
): ReadonlySet<NewTransaction> =>
  new Set(
    start === undefined
      ? []
      : transactions
          .filter(({ NotBefore, Debounce }) => NotBefore === undefined && Debounce === undefined)
          .slice(0, start.limit),
  )

/** Whether a queued run waits for its start time. */
export const isDelayed = ({ Status, NextAttemptAt }: Run, now: number): boolean =>
  Status === 'Queued' && NextAttemptAt !== null && Date.parse(NextAttemptAt) > now

/**
 * Returns the deadline of a delayed run that an operator starts earlier. The time limit of a run counts from its start,
 * so the deadline moves by the same time as the start.
 */
export const deadlineOfStart = ({ DeadlineAt, NextAttemptAt }: Run, now: number) => ({
  DeadlineAt:
    DeadlineAt === null
      ? null
      : new Date(Date.parse(DeadlineAt) - (Date.parse(NextAttemptAt ?? '') - now)).toISOString(),
})
