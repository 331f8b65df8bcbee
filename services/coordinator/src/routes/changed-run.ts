import type { Caller } from '@integration-host/shared/access/caller'
import { RunResponse } from '@integration-host/shared/contracts/run'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import type { Run } from '../run/run.ts'

/** The members of a run that every key may see which may change the run: its key, its status and its times. */
const WITHOUT_DATA = {
  Process: true,
  TransactionID: true,
  ReplayID: true,
  Status: true,
  Version: true,
  NextAttemptAt: true,
  NotBefore: true,
  DeadlineAt: true,
  CreatedAt: true,
  UpdatedAt: true,
  CompletedAt: true,
  ErasedAt: true,
  PurgedAt: true,
} as const

/** The run as a key without `transactions:read` sees it, with what the request itself has brought. */
const RunWithoutData = RunResponse.pick(WITHOUT_DATA)
  .extend(RunResponse.pick({ InitialData: true, Realm: true, Tags: true }).partial().shape)
  .meta({
    ref: 'RunWithoutData',
    description:
      'The run for a key without `transactions:read`. `InitialData`, `Realm` and `Tags` are those of the request.',
  })

/** The response of a request that has queued or changed a run. */
export const ChangedRun = z.union([RunResponse, RunWithoutData]).meta({ ref: 'ChangedRun' })

/** What a request that queues or changes a run has brought. */
export interface Brought {
  readonly InitialData?: QueueTransaction['InitialData'] | undefined
  readonly Realm?: QueueTransaction['Realm']
  readonly Tags?: QueueTransaction['Tags']
}

/** Returns the members of `from` that `members` names. */
export const picked = <T extends object, K extends keyof T>(
  from: T,
  members: Readonly<Record<K, true>>,
): Pick<T, K> =>
  Object.fromEntries(
    Object.keys(members).map((name) => [name, from[name as keyof T]]),
  ) as unknown as Pick<T, K>

/**
 * Returns the run as its response may show it to the caller. Without `transactions:read` the response contains no stored
 * data, because another request may have brought it: a debounced run, for example, has the data of the last request
 * that it has absorbed.
 *
 * @param brought what the request itself has brought
 */
export function changedRun(
  caller: Caller,
  run: Run,
  brought: Brought = {},
): z.output<typeof ChangedRun> {
  if (caller.has('transactions:read')) return run
  const { InitialData, Realm, Tags } = brought
  return {
    ...picked(run, WITHOUT_DATA),
    ...(InitialData !== undefined && { InitialData }),
    ...(Realm !== undefined && { Realm }),
    ...(Tags !== undefined && { Tags }),
  }
}
