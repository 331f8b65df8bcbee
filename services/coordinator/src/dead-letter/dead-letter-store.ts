/**
 * The store of dead letters. A message that could not be processed stays in the store until an operator requeues or
 * deletes it.
 *
 * D1  A dead letter is stored once, however often its message is delivered: `Process` and `MessageID` identify it.
 * D2  A dead letter is removed only by an action, and the entry of the action log is committed with the removal.
 * D3  No `ID` is used a second time, so an action on a removed dead letter never affects another dead letter.
 */
import type { RecordKind } from '../records/records.ts'
import { type Act, entryOf } from '../run/action.ts'
import { firstRunsOf } from '../run/run-detail.ts'
import type { TransactionSource } from '../run/transaction-source.ts'

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

/** A row of `"Order_DeadLetter"`. */
export interface DeadLetterRow extends NewDeadLetter {
  /** Each new dead letter gets a higher `ID`. */
  readonly ID: number
  /** The time at which the dead letter was stored, ISO 8601. */
  readonly At: string
}

export interface DeadLetter extends DeadLetterRow {
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

export const LETTERS = {
  table: 'Order_DeadLetter',
  key: ['Process', 'MessageID'],
  isNumbered: true,
  columns: [
    'ID',
    'Process',
    'MessageID',
    'Reason',
    'At',
    'TransactionID',
    'ReplayID',
    'StepName',
    'Content',
    'ContentBytes',
  ],
  bytes: { column: 'Content', limit: MAX_CONTENT_BYTES },
} as const satisfies RecordKind<DeadLetterRow>

export type DeadLetterStore = ReturnType<typeof createDeadLetterStore>

export function createDeadLetterStore(source: Pick<TransactionSource, 'records' | 'runsOf'>) {
  const letters = source.records<DeadLetterRow>(LETTERS)

  /** Returns the dead letters of a process, newest first, each with at most `contentBytes` of its content. */
  async function list(
    Process: string,
    { before, limit, contentBytes }: DeadLetterFilter,
  ): Promise<readonly DeadLetter[]> {
    const bytes = { ...LETTERS.bytes, limit: contentBytes }
    const rows = await source.records<DeadLetterRow>({ ...LETTERS, bytes }).page({
      where: { Process },
      by: ['ID'],
      isNewestFirst: true,
      ...(before !== undefined && { after: [before] }),
      limit,
    })
    const ids = rows.flatMap(({ TransactionID }) => TransactionID ?? [])
    const runs = ids.length === 0 ? [] : await firstRunsOf(source, Process, ids)
    const realms = new Map<string | null, string | null>(
      runs.map(({ TransactionID, Realm }) => [TransactionID, Realm]),
    )
    return rows.map((row) => ({
      ...row,
      isOfTransaction: realms.has(row.TransactionID),
      Realm: realms.get(row.TransactionID) ?? null,
    }))
  }

  return {
    /** Stores a dead letter. A dead letter that is already stored is ignored. */
    async add(letter: NewDeadLetter): Promise<void> {
      await letters.replace(undefined, letter as DeadLetterRow) // the source adds `ID` and `At`
    },
    list,
    /** Returns a dead letter with all of its stored content; `null` if the dead letter does not exist. */
    async find(process: string, id: number): Promise<DeadLetter | null> {
      const filter = { before: id + 1, limit: 1, contentBytes: MAX_CONTENT_BYTES }
      const [letter] = await list(process, filter)
      return letter?.ID === id ? letter : null
    },
    /** Counts the dead letters of each process that has some. */
    async counts(): Promise<ReadonlyMap<string, number>> {
      const counts = await letters.count({ by: ['Process'] })
      return new Map(counts.map(({ Process, Count }) => [Process, Count]))
    },
    /**
     * The number of dead letters of one process that the store should hold at most. Further dead letters should stay in
     * their queue.
     */
    capacity: letters.capacity,
    /** Removes a dead letter, with an entry in the action log. Returns false if it was removed meanwhile. */
    async remove(
      letter: DeadLetter,
      kind: 'requeue_dead_letter' | 'delete_dead_letter',
      act: Act,
    ): Promise<boolean> {
      const { Process, ID } = letter
      const entry = entryOf(kind, act, namedBy(letter))
      return (await letters.remove({ where: { Process, ID } }, entry)) > 0
    },
    /** Removes all dead letters of a process, with one entry if there are any. Returns their number. */
    removeAll: (Process: string, act: Act): Promise<number> =>
      letters.remove({ where: { Process } }, entryOf('delete_dead_letters', act, { Process })),
  }
}
