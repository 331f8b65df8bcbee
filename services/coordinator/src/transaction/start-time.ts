/** The rules of runs that start later than they are queued, as pure functions. */
import type { NotBefore } from '@integration-host/shared/contracts/start-time'
import type { Run } from './run.ts'
import type { NewTransaction, StartOnArrival } from './transaction-source.ts'

/**
 * Returns the time before which a run does not start, in epoch ms; `null` if it is not delayed. Years that the store
 * cannot represent are in the past, and become 1970.
 */
export const notBeforeMs = (notBefore: NotBefore | undefined, now: number): number | null => {
  if (notBefore === undefined) return null
  return typeof notBefore === 'number'
    ? now + notBefore * 1_000
    : Math.max(0, Date.parse(notBefore))
}

/** Returns the transactions of a call whose runs are claimed when they are inserted: the first ones that are due now. */
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

/** Whether a queued run waits for the time at which it starts. */
export const isDelayed = ({ Status, NextAttemptAt }: Run, now: number): boolean =>
  Status === 'Queued' && NextAttemptAt !== null && Date.parse(NextAttemptAt) > now

/** The deadline of a delayed run begins at its start, so it moves when an operator starts the run earlier. */
export const deadlineOfStart = ({ DeadlineAt, NextAttemptAt }: Run, now: number) => ({
  DeadlineAt:
    DeadlineAt === null
      ? null
      : new Date(Date.parse(DeadlineAt) - (Date.parse(NextAttemptAt ?? '') - now)).toISOString(),
})
