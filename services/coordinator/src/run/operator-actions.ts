import type { Json } from './json-normalization.ts'
import type { Act } from './action.ts'
import type { Run } from './run.ts'
import type { ProcessOutline, RunTerms } from './transaction-source.ts'

/**
 * The result of an operator's inquiry about a step in doubt. `done` means that an attempt of the step took effect;
 * `Data` is then the data of the completed item.
 */
export type Settlement =
  | { readonly outcome: 'done'; readonly data: Json }
  | { readonly outcome: 'not_done' }

/**
 * An action on one run:
 *
 * - `cancel` ends an active run. A run that is being undone ends as `UndoFailed`, because it must not continue forward
 *   later. Otherwise: `transaction_not_active`.
 * - `resume` makes the latest run due again if it has failed or was cancelled. The run keeps its `DefinitionVersion`, and
 *   gets a new deadline. A run whose undo has failed goes on with the undo. Otherwise: `transaction_not_resumable`.
 * - `retry` makes a waiting run due at once. The run may wait for its next attempt, for its start time, or for a
 *   credential. Otherwise: `transaction_not_retryable`.
 * - `undo` begins the undo of the latest run if it has failed, was cancelled or is completed. Otherwise:
 *   `transaction_not_undoable`.
 */
export type OperatorAction = 'cancel' | 'resume' | 'retry' | 'undo'

/** The operator actions on one run; a part of the port `TransactionSource`. A `replayId` of `null` means the latest run. */
export interface OperatorActions {
  /**
   * Performs an action on a run.
   *
   * @param process its name, and the terms of a run that is resumed
   * @throws {IntegrationError} `transaction_not_found`, `version_moved`, `transaction_erased`, `transaction_purged`, or the
   *   error of the action
   */
  operate(
    action: OperatorAction,
    process: Pick<ProcessOutline, 'name'> & RunTerms,
    transactionId: string,
    replayId: number | null,
    act: Act,
  ): Promise<Run>
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
