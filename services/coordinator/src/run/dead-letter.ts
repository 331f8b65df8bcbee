import type { Act } from './action.ts'

/**
 * The store of dead letters, a part of the port `TransactionSource`. A message that could not be processed stays in the
 * store until an operator requeues or deletes it.
 *
 * D1  A dead letter is stored once, however often its message is delivered: `Process` and `MessageID` identify it.
 * D2  A dead letter is removed only by an action, and the entry of the action log is committed with the removal.
 * D3  No `ID` is used a second time, so an action on a removed dead letter never affects another dead letter.
 */
export interface DeadLetterStore {
  /** Stores a dead letter. A dead letter that is already stored is ignored. */
  addDeadLetter(letter: NewDeadLetter): Promise<void>
  /** Returns the dead letters of a process, newest first, each with at most `contentBytes` of its content. */
  deadLetters(process: string, filter: DeadLetterFilter): Promise<readonly DeadLetter[]>
  /** Counts the dead letters of each process that has some. */
  deadLetterCounts(): Promise<DeadLetterCounts>
  /**
   * Removes a dead letter, or all dead letters of a process (`null`), with one entry in the action log. Returns their
   * number. If there are none, no action is recorded.
   */
  removeDeadLetters(
    process: string,
    id: number | null,
    kind: 'requeue_dead_letter' | 'delete_dead_letter' | 'delete_dead_letters',
    act: Act,
  ): Promise<number>
}

export interface DeadLetterCounts {
  readonly byProcess: ReadonlyMap<string, number>
  /**
   * The number of dead letters of one process that the store should hold at most. Further dead letters should stay in
   * their queue.
   */
  readonly capacity: number
}

/** Returns a dead letter with all of its stored content; `null` if the dead letter does not exist. */
export async function readDeadLetter(
  store: Pick<DeadLetterStore, 'deadLetters'>,
  process: string,
  id: number,
): Promise<DeadLetter | null> {
  const filter = { before: id + 1, limit: 1, contentBytes: MAX_CONTENT_BYTES }
  const [letter] = await store.deadLetters(process, filter)
  return letter?.ID === id ? letter : null
}

export interface NewDeadLetter {
  /** The process from whose queue `dead.<Process>` the message was consumed. */
  readonly Process: string
  readonly MessageID: string
  readonly Reason: string
  /**
   * The run and the step that the message names. `TransactionID`, `ReplayID` and `StepName` are `null` if the message
   * names no run of this process.
   */
  readonly TransactionID: string | null
  readonly ReplayID: number | null
  readonly StepName: string | null
  /** The beginning of the content, at most `MAX_CONTENT_BYTES` bytes. */
  readonly Content: Buffer
  /** The length of the whole content. */
  readonly ContentBytes: number
}

export interface DeadLetter extends NewDeadLetter {
  /** Each new dead letter gets a higher `ID`. */
  readonly ID: number
  /** The time at which the dead letter was stored, ISO 8601. */
  readonly At: string
  /** Whether the transaction of the dead letter exists. */
  readonly isOfTransaction: boolean
  /** The realm of the transaction of the dead letter; `null` if the transaction has no realm or does not exist. */
  readonly Realm: string | null
}

/**
 * Returns the members of the action log entry for a dead letter. The entry contains the id of the transaction only if
 * the transaction exists. Otherwise the realm is unknown, and an entry without a realm is visible to the service keys
 * of all realms.
 */
export const namedBy = ({
  Process,
  TransactionID,
  ReplayID,
  Realm,
  isOfTransaction,
}: Pick<DeadLetter, 'Process' | 'TransactionID' | 'ReplayID' | 'Realm' | 'isOfTransaction'>) =>
  isOfTransaction
    ? { Process, TransactionID, ReplayID, Realm }
    : { Process, TransactionID: null, ReplayID: null, Realm: null }

export interface DeadLetterFilter {
  /** Returns only dead letters with a smaller `ID`. */
  readonly before?: number | undefined
  readonly limit: number
  readonly contentBytes: number
}

export const MAX_CONTENT_BYTES = 65_536
