import type { AttemptView, ItemView } from '@integration-host/shared/contracts/transaction'
import type { RunKey } from './run.ts'

/** The recorded state of one step in one run. Each attempt overwrites the item, until the item is `Completed`. */
export type Item = Readonly<ItemView>
/** The item of a finished step, with only the members that later steps can read. */
export type FinishedItem = Pick<Item, 'StepName' | 'ResponseStatus' | 'ResponseBody' | 'Data'>
export const isFinished = ({ Status }: Item): boolean =>
  Status === 'Completed' || Status === 'Copied'
/** An attempt that has ended, or whose worker was lost. Attempts are never changed. */
export type Attempt = Readonly<AttemptView>

/**
 * Returns the idempotency key of a step: `<process>/<TransactionID>/<ReplayID>/<step>` with each part percent-encoded.
 * The key is the same for every attempt of a step, and different for every replay.
 */
export const idempotencyKey = (run: RunKey, step: string): string =>
  [run.Process, run.TransactionID, String(run.ReplayID), step].map(encodeURIComponent).join('/')
