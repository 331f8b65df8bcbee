/** The share of delayed runs that one service key may have. */
import type { NewTransaction } from './transaction-source.ts'
import { notBeforeMs } from './start-time.ts'

/** The maximum number of runs of one service key that wait for their start (`NotBefore` or `Debounce`). */
export const DELAYED_RUNS_PER_KEY = 10_000

export interface DelayedRuns {
  /**
   * Reserves places for delayed runs that a service key is about to queue. Ids that exist already need no place.
   * Returns the ids for which the key has no place left, and which must not be queued. The place of a transaction that
   * `queue` absorbs is free again.
   */
  reserveDelayed(
    process: string,
    keyId: string,
    ids: readonly string[],
  ): Promise<ReadonlySet<string>>
}

/** Returns whether the run of the transaction will wait for its start. A debounced run always waits. */
export const startsLater = (
  { NotBefore, Debounce }: Pick<NewTransaction, 'NotBefore' | 'Debounce'>,
  now: number,
): boolean => Debounce !== undefined || (notBeforeMs(NotBefore, now) ?? 0) > now
