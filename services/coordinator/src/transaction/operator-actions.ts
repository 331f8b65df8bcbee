import type { Json } from '../process/json-normalization.ts'
import type { Act } from './action.ts'
import type { Run } from './run.ts'
import type { ProcessOutline } from './transaction-source.ts'

/**
 * What an operator has found out about a step in doubt: `done` if an attempt has done its work, with the data of the
 * item that the step would have completed.
 */
export type Settlement =
  | { readonly outcome: 'done'; readonly data: Json }
  | { readonly outcome: 'not_done' }

/** The actions by which an operator continues a run that waits or is in doubt. A part of the port `TransactionSource`. */
export interface OperatorActions {
  /**
   * Makes a run due at once that waits for its next attempt or for a credential.
   *
   * @throws {IntegrationError} `transaction_not_found`, `version_moved`, or `transaction_not_retryable`.
   */
  retry(process: string, transactionId: string, replayId: number | null, act: Act): Promise<Run>
  /**
   * Ends the doubt about the due step, if no attempt of it is in flight. If the step was done, its item is completed, and
   * the run moves on as after an outcome of the step; otherwise the step is due again. A failed or cancelled run in doubt
   * continues in the same way, unless the transaction has a later run: then only the doubt ends, and the item of a step
   * that was done is completed. The run stays as it ended, and its version too.
   *
   * @throws {IntegrationError} `transaction_not_found`, `version_moved`, `transaction_not_in_doubt`, `step_in_flight`, or
   * `step_not_found`.
   */
  settle(
    process: ProcessOutline,
    transactionId: string,
    replayId: number | null,
    settlement: Settlement,
    act: Act,
  ): Promise<Run>
}
