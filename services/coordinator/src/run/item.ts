import type {
  AttemptView,
  ItemStatus,
  ItemView,
} from '@integration-host/shared/contracts/transaction'
import type { Json } from './json-normalization.ts'
import type { RunKey } from './run.ts'

/** The recorded state of one step in one run. Each attempt overwrites the item, until the item is `Completed`. */
export type Item = Readonly<ItemView>
/** The item of a finished step, with only the members that later steps can read. */
export type FinishedItem = Pick<
  Item,
  'StepName' | 'Status' | 'ResponseStatus' | 'ResponseBody' | 'Data' | 'Error'
>
/** The statuses of the items of finished steps. */
const finishedStatuses = ['Completed', 'Copied', 'Skipped'] as const satisfies readonly ItemStatus[]
export const isFinished = ({ Status }: Pick<Item, 'Status'>): boolean =>
  (finishedStatuses as readonly ItemStatus[]).includes(Status)

/** Whether an item has an effect that can be undone. */
export const hasEffect = ({ Status }: Pick<Item, 'Status'>): boolean =>
  Status === 'Completed' || Status === 'Copied'

/** The round in which a step is that has called `repeat`, and the state that it has passed to this round. */
export interface Round {
  /** The number of the round. Round 0 has no state, so the number is at least 1. */
  readonly number: number
  readonly state: Json
}

/** How an attempt that ended with `repeat` is stored. */
export const REPEATED = 'repeated'
/** The number of rounds whose attempts are kept. The attempts of rounds that have failed are kept as well. */
export const KEPT_ROUNDS = 10
/** An attempt that has ended, or whose worker was lost. Attempts are never changed. */
export type Attempt = Readonly<AttemptView>

/**
 * Returns the idempotency key of a step: `<process>/<TransactionID>/<ReplayID>/<step>` with each part percent-encoded.
 * The key is the same for every attempt of a step, and different for every replay. The rounds of a step that repeats
 * have different keys: `/round-<n>` is appended to the keys of all rounds but the first, which has the number 0.
 */
export const idempotencyKey = (run: RunKey, step: string, round = 0): string => {
  const key = [run.Process, run.TransactionID, String(run.ReplayID), step]
    .map(encodeURIComponent)
    .join('/')
  return round === 0 ? key : `${key}/round-${round}`
}
