import type { Act } from './action.ts'

/**
 * The store of dead letters: the messages that could not be processed, until an operator requeues or deletes them. A part
 * of the port to the transaction source.
 *
 * D1  A dead letter is stored once, however often its message is delivered: `Process` and `MessageID` identify it.
 * D2  It is removed only by an action, and the entry of the action log is committed with the removal.
 * D3  No `ID` is used a second time, so an action on a dead letter that is gone never affects another one.
 */
export interface DeadLetterStore {
  /** The number of dead letters of a process from which on further ones should be left in the queue. */
  readonly deadLetterCapacity: number
  /** Stores a dead letter, unless it is stored already. */
  addDeadLetter(letter: NewDeadLetter): Promise<void>
  /** Returns the dead letters of a process, newest first, each with at most `contentBytes` of its content. */
  deadLetters(process: string, filter: DeadLetterFilter): Promise<readonly DeadLetter[]>
  /** Returns a dead letter with all of its stored content; `null` if there is no such one. */
  deadLetter(process: string, id: number): Promise<DeadLetter | null>
  /** Returns the number of dead letters of each process that has any. */
  deadLetterCounts(): Promise<ReadonlyMap<string, number>>
  /** Removes a dead letter. Returns false if there is no such one; nothing is recorded then. */
  removeDeadLetter(
    process: string,
    id: number,
    kind: 'requeue_dead_letter' | 'delete_dead_letter',
    act: Act,
  ): Promise<boolean>
  /** Removes all dead letters of a process, with one entry in the action log. Returns their number. */
  removeDeadLetters(process: string, act: Act): Promise<number>
}

export interface NewDeadLetter {
  /** The process whose queue `dead.<Process>` had the message. */
  readonly Process: string
  readonly MessageID: string
  readonly Reason: string
  /** The run that the message names; the three members are null if it names none of this process. */
  readonly TransactionID: string | null
  readonly ReplayID: number | null
  readonly StepName: string | null
  /** At most the first `MAX_CONTENT_BYTES` of the content. */
  readonly Content: Buffer
  /** The length of the whole content. */
  readonly ContentBytes: number
}

export interface DeadLetter extends NewDeadLetter {
  /** Grows from one dead letter to the next. */
  readonly ID: number
  /** The time at which it was stored, ISO 8601. */
  readonly At: string
  /** Whether the transaction that it names exists. */
  readonly isOfTransaction: boolean
  /** The realm of this transaction. */
  readonly Realm: string | null
}

/**
 * Returns what the action log names for a dead letter. A transaction that does not exist has no realm, and an entry that
 * names it would be shown to the keys of all realms.
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
  /** Only dead letters with a smaller `ID`. */
  readonly before?: number | undefined
  readonly limit: number
  readonly contentBytes: number
}

export const MAX_CONTENT_BYTES = 65_536
