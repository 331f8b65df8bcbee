import type { DeadLetterFilter, NewDeadLetter } from '../../run/dead-letter.ts'

/** A dead letter as it is stored in the files of the memory source. */
export interface StoredDeadLetter extends Omit<NewDeadLetter, 'Content'> {
  readonly ID: number
  readonly At: string
  /** The content in Base64. */
  readonly Content: string
}

/** The dead letters of the memory source. */
export interface DeadLetterTable {
  has(letter: Pick<NewDeadLetter, 'Process' | 'MessageID'>): boolean
  /** Returns an `ID` that is larger than all earlier ids. */
  nextId(): number
  /** The largest `ID` so far, even if the dead letter with this `ID` was removed. */
  readonly lastId: number
  /** Adds dead letters. Also used to undo a removal. */
  add(letters: readonly StoredDeadLetter[], lastId?: number): void
  remove(ids: readonly number[]): void
  get(process: string, id: number): StoredDeadLetter | undefined
  /** Returns the dead letters with these ids. */
  pick(ids: readonly number[]): readonly StoredDeadLetter[]
  all(): readonly StoredDeadLetter[]
  /** Returns the dead letters of a process, newest first. */
  list(process: string, filter: Pick<DeadLetterFilter, 'before' | 'limit'>): StoredDeadLetter[]
  counts(): ReadonlyMap<string, number>
}

export function createDeadLetterTable(): DeadLetterTable {
  const letters = new Map<number, StoredDeadLetter>()
  const messages = new Set<string>()
  let lastId = 0
  const keyOf = ({ Process, MessageID }: Pick<NewDeadLetter, 'Process' | 'MessageID'>): string =>
    JSON.stringify([Process, MessageID])
  return {
    has: (letter) => messages.has(keyOf(letter)),
    nextId: () => (lastId += 1),
    get lastId() {
      return lastId
    },
    add(added, largest = 0) {
      for (const letter of added) {
        letters.set(letter.ID, letter)
        messages.add(keyOf(letter))
      }
      lastId = Math.max(lastId, largest, ...added.map(({ ID }) => ID))
    },
    remove(ids) {
      for (const id of ids) {
        const letter = letters.get(id)
        if (letter === undefined) continue
        letters.delete(id)
        messages.delete(keyOf(letter))
      }
    },
    get(process, id) {
      const letter = letters.get(id)
      return letter?.Process === process ? letter : undefined
    },
    pick: (ids) => ids.map((id) => letters.get(id)).filter((letter) => letter !== undefined),
    all: () => [...letters.values()],
    list: (process, { before = Infinity, limit }) =>
      [...letters.values()]
        .filter(({ Process, ID }) => Process === process && ID < before)
        .toSorted((a, b) => b.ID - a.ID)
        .slice(0, limit),
    counts() {
      const counts = new Map<string, number>()
      for (const { Process } of letters.values())
        counts.set(Process, (counts.get(Process) ?? 0) + 1)
      return counts
    },
  }
}
