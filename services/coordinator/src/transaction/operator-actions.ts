import type { Json } from '../process/json-normalization.ts'
import type { Act } from './action.ts'
import type { Run } from './run.ts'
import type { ProcessOutline } from './transaction-source.ts'

/**
 * What an operator has found out about a step in doubt. `done` means that an attempt has done the work of the step;
 * `Data` is then the data of the completed item.
 */
export type Settlement =
  | { readonly outcome: 'done'; readonly data: Json }
  | { readonly outcome: 'not_done' }

/**
 * The actions with which an operator continues a run that waits or is in doubt, a part of the port `TransactionSource`.
 */
export interface OperatorActions {
  /**
   * Makes a waiting run due at once. The run may wait for its next attempt or for a credential.
   *
   * @throws {IntegrationError} `transaction_not_found`, `version_moved`, or `transaction_not_retryable`.
   */
  retry(process: string, transactionId: string, replayId: number | null, act: Act): Promise<Run>
  /**
   * Ends the doubt about the due step of a run. No attempt of the step may be in flight. If the step was done, its item
   * is completed and the run continues with the next step; otherwise the step becomes due again. A failed or cancelled
   * run in doubt continues in the same way, unless the transaction has a later run. If there is a later run, only the
   * doubt ends, and the item of a step that was done is completed; the status and the version of the run stay
   * unchanged.
   *
   * @throws {IntegrationError} `transaction_not_found`, `version_moved`, `transaction_not_in_doubt`, `step_in_flight`,
   * or `step_not_found`.
   */
  settle(
    process: ProcessOutline,
    transactionId: string,
    replayId: number | null,
    settlement: Settlement,
    act: Act,
  ): Promise<Run>
}
