import type { HeaderView } from '@integration-host/shared/contracts/transaction'

/**
 * The names of a transaction's members are the tables' and the API's own (`TransactionID`, `ReplayID`):
 * one spelling from the row to the answer.
 */
export interface RunKey {
  readonly Process: string
  readonly TransactionID: string
  readonly ReplayID: number
}

/**
 * One run of a transaction. `Version` grows by one with each committed transition and is the fence: a
 * message, a lease and an outcome each name the version they belong to. `StepName` is the step that is due
 * next, the one in hand, or the last one; empty in a row somebody inserted without it (the first step).
 */
export interface Run extends Readonly<HeaderView> {
  /** A stable class of `LastError`, such as `http_4xx` or `step_threw`. */
  readonly ErrorClass: string | null
  /** The credential whose return wakes a `Waiting` run. */
  readonly WaitingFor: string | null
  /** An attempt of the due step may have done its work, and nobody knows: see `confirm`. */
  readonly InDoubt: boolean
}

export const runKey = ({ Process, TransactionID, ReplayID }: RunKey): RunKey => ({
  Process,
  TransactionID,
  ReplayID,
})

/** A map key: no two runs give the same text, because the parts are encoded. */
export const keyText = ({ Process, TransactionID, ReplayID }: RunKey): string =>
  JSON.stringify([Process, TransactionID, ReplayID])
