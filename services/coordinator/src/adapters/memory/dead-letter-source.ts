import { entryOf } from '../../run/action.ts'
import {
  type DeadLetter,
  type DeadLetterStore,
  MAX_CONTENT_BYTES,
  namedBy,
} from '../../run/dead-letter.ts'
import type { StoredDeadLetter } from './dead-letters.ts'
import type { MemoryStore } from './store.ts'

/**
 * The maximum number of dead letters that are kept. It bounds the memory and the snapshot: 500 dead letters of 64 KiB
 * are 32 MB.
 */
const DEAD_LETTERS = 500

/** Returns the methods of the memory source that store, read and remove dead letters. */
export function createMemoryDeadLetters(store: MemoryStore, now: () => number): DeadLetterStore {
  const { table, log, deadLetters, commit } = store

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

  return {
    deadLetterCapacity: DEAD_LETTERS,
    async addDeadLetter(letter) {
      // The dead letter is stored in memory. The flush is needed because an earlier call may still be writing it to
      // disk.
      if (deadLetters.has(letter)) return store.flush()
      const Content = letter.Content.toString('base64')
      const At = new Date(now()).toISOString()
      await commit({ deadLetter: { ...letter, ID: deadLetters.nextId(), At, Content } })
    },
    deadLetters: async (process, { contentBytes, ...filter }) =>
      deadLetters.list(process, filter).map((letter) => shown(letter, contentBytes)),
    async deadLetter(process, id) {
      const letter = deadLetters.get(process, id)
      return letter === undefined ? null : shown(letter, MAX_CONTENT_BYTES)
    },
    deadLetterCounts: async () => deadLetters.counts(),
    async removeDeadLetter(process, id, kind, act) {
      const letter = deadLetters.get(process, id)
      if (letter === undefined) return false
      const action = log.next(entryOf(kind, act, namedBy(shown(letter, 0)), { now: now() }))
      await commit({ removedDeadLetters: [id], action })
      return true
    },
    async removeDeadLetters(process, act) {
      const ids = deadLetters.list(process, { limit: Infinity }).map(({ ID }) => ID)
      if (ids.length === 0) return 0
      const what = { Process: process }
      const action = log.next(entryOf('delete_dead_letters', act, what, { now: now() }))
      await commit({ removedDeadLetters: ids, action })
      return ids.length
    },
  }
}
