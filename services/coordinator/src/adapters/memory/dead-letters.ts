/** The dead letters of the memory source. They are rows, like those of the table `"Order_DeadLetter"`. */
import { entryOf } from '../../run/action.ts'
import {
  type DeadLetter,
  type DeadLetterStore,
  namedBy,
  type NewDeadLetter,
} from '../../run/dead-letter.ts'
import { INSTALLATION, keyOf, type RecordChange } from './records.ts'
import type { MemoryStore } from './store.ts'

/**
 * The maximum number of dead letters that are kept. It bounds the memory and the snapshot: 500 dead letters of 64 KiB
 * are 32 MB.
 */
const CAPACITY = 500
const TABLE = 'Order_DeadLetter'
/** The largest `ID` so far, even if the dead letter with this `ID` was removed. */
const LAST_ID = { table: INSTALLATION, key: keyOf(['LastDeadLetterID']) }

/** A dead letter as it is stored in the files. */
export interface StoredDeadLetter extends Omit<NewDeadLetter, 'Content'> {
  readonly ID: number
  readonly At: string
  /** The content in Base64. */
  readonly Content: string
}

const placeOf = ({ Process, MessageID }: Pick<NewDeadLetter, 'Process' | 'MessageID'>) => ({
  table: TABLE,
  key: keyOf([Process, MessageID]),
})
export const added = (letter: StoredDeadLetter): readonly RecordChange[] => [
  { ...placeOf(letter), row: letter },
  lastIdIs(letter.ID),
]
export const removed = (letter: StoredDeadLetter): RecordChange => ({
  ...placeOf(letter),
  row: null,
})
export const lastIdIs = (Value: number): RecordChange => ({
  ...LAST_ID,
  row: { Name: 'LastDeadLetterID', Value },
})
export const storedLetters = ({ records }: Pick<MemoryStore, 'records'>): StoredDeadLetter[] =>
  [...records.values(TABLE)] as StoredDeadLetter[]

/** Returns the methods of the memory source that store, read and remove dead letters. */
export function createMemoryDeadLetters(store: MemoryStore, now: () => number): DeadLetterStore {
  const { table, log, records, commit } = store
  const last = records.get(LAST_ID.table, LAST_ID.key) as { readonly Value: number } | undefined
  // It also grows if a dead letter cannot be written, so that no `ID` is used a second time.
  let lastId = last?.Value ?? 0

  /** Returns a dead letter with the realm of its transaction and at most `contentBytes` of its content. */
  const shown = (letter: StoredDeadLetter, contentBytes: number): DeadLetter => {
    const { Process, TransactionID } = letter
    const run = TransactionID === null ? undefined : table.find(Process, TransactionID, 0)
    return {
      ...letter,
      Content: Buffer.from(letter.Content, 'base64').subarray(0, contentBytes),
      isOfTransaction: run !== undefined,
      Realm: run?.header.Realm ?? null,
    }
  }
  /** Returns the dead letters of a process, the newest first. */
  const lettersOf = (process: string): StoredDeadLetter[] =>
    storedLetters(store)
      .filter(({ Process }) => Process === process)
      .toSorted((a, b) => b.ID - a.ID)

  return {
    async addDeadLetter(letter) {
      const { table: name, key } = placeOf(letter)
      // The dead letter is stored in memory. The flush is needed because an earlier call may still be writing it to
      // disk.
      if (records.get(name, key) !== undefined) return store.flush()
      lastId += 1
      const Content = letter.Content.toString('base64')
      const At = new Date(now()).toISOString()
      await commit({ records: added({ ...letter, ID: lastId, At, Content }) })
    },
    deadLetters: async (process, { contentBytes, before = Infinity, limit }) =>
      lettersOf(process)
        .filter(({ ID }) => ID < before)
        .slice(0, limit)
        .map((letter) => shown(letter, contentBytes)),
    async deadLetterCounts() {
      const groups = Map.groupBy(storedLetters(store), ({ Process }) => Process)
      const byProcess = Array.from(groups, ([name, letters]) => [name, letters.length] as const)
      return { byProcess: new Map(byProcess), capacity: CAPACITY }
    },
    async removeDeadLetters(process, id, kind, act) {
      const letters = lettersOf(process).filter(({ ID }) => id === null || ID === id)
      const [first] = letters
      if (first === undefined) return 0
      const what = id === null ? { Process: process } : namedBy(shown(first, 0))
      const action = log.next(entryOf(kind, act, what, { now: now() }))
      await commit({ records: letters.map(removed), action })
      return letters.length
    },
  }
}
