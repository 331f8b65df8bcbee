/** The rules for runs that start later than they are queued, and the share of them that one service key may have. */
import type { NotBefore } from '@integration-host/shared/contracts/transaction'
import type { Actor } from './action.ts'
import type { Run } from './run.ts'
import type { Limited, NewTransaction, QueueResult, StartOnArrival } from './transaction-source.ts'

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

/** The maximum number of runs of one service key that wait for their start (`NotBefore` or `Debounce`). */
export const DELAYED_RUNS_PER_KEY = 10_000

/** Returns whether the run of the transaction will wait for its start. A debounced run always waits. */
export const startsLater = (
  { NotBefore, Debounce }: Pick<NewTransaction, 'NotBefore' | 'Debounce'>,
  now: number,
): boolean => Debounce !== undefined || (notBeforeMs(NotBefore, now) ?? 0) > now

/** Returns the ids of the transactions that need a place in the share of the actor, if they are new. */
export const idsOfShare = (
  transactions: readonly NewTransaction[],
  by: Actor | undefined,
  now: number,
): readonly string[] =>
  by?.shareOf
    ? transactions.filter((one) => startsLater(one, now)).map(({ TransactionID }) => TransactionID)
    : []

/** Queues all transactions but the limited ones, for which the share of the actor has no place left. */
export async function queueUnlimited(
  transactions: readonly NewTransaction[],
  limited: ReadonlySet<string>,
  queue: (fitting: readonly NewTransaction[]) => Promise<readonly QueueResult[]>,
): Promise<(QueueResult | Limited)[]> {
  const isLimited = ({ TransactionID }: NewTransaction): boolean => limited.has(TransactionID)
  const results = (await queue(transactions.filter((one) => !isLimited(one)))).values()
  return transactions.map(
    (one) => (isLimited(one) ? { outcome: 'limited' } : (results.next().value as QueueResult)), // `queue` returns one for each
  )
}
