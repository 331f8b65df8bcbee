import type { Json } from './json-normalization.ts'
import type { Act } from './action.ts'
import type { Run } from './run.ts'
import type { ProcessOutline } from './transaction-source.ts'

/**
 * The result of an operator's inquiry about a step in doubt. `done` means that an attempt of the step took effect;
 * `Data` is then the data of the completed item.
 */
export type Settlement =
  | { readonly outcome: 'done'; readonly data: Json }
  | { readonly outcome: 'not_done' }

/** The operator actions that continue a run that waits or is in doubt; a part of the port `TransactionSource`. */
export interface OperatorActions {
  /**
   * Makes a waiting run due at once. The run may wait for its next attempt, for its start time, or for a credential.
   *
   * @throws {IntegrationError} `transaction_not_found`, `version_moved`, or `transaction_not_retryable`.
   */
  retry(process: string, transactionId: string, replayId: number | null, act: Act): Promise<Run>
  /**
   * Settles a run in doubt: the operator has decided whether the due step was done. No attempt of that step may be in
   * flight. If the step was done, its item is completed and the run continues with the next step. Otherwise the step
   * becomes due again. A failed or cancelled run continues in the same way.
   *
   * Only the latest run of a transaction continues. Any other run keeps its status and version, but is no longer in
   * doubt. If the step was done, the item of the step is completed in such a run too.
   *
   * @throws {IntegrationError} `transaction_not_found`, `version_moved`, `transaction_not_in_doubt`, `step_in_flight`,
   *   or `step_not_found`.
   */
  settle(
    process: ProcessOutline,
    transactionId: string,
    replayId: number | null,
    settlement: Settlement,
    act: Act,
  ): Promise<Run>
}
