/** Background work that must end before a shutdown continues. */
export interface PendingWork {
  /** The number of added promises that have not settled. */
  readonly count: number
  /** Adds work, and returns a promise of its result. The caller must handle a rejection of the returned promise. */
  add<Result>(work: Promise<Result>): Promise<Result>
  /** Resolves when all work has ended, including work that is added in the meantime. */
  ended(): Promise<void>
}

/** Counts the work instead of keeping it in a Set, because a Set keeps ended work in memory (see {@link LinkedList}). */
export function createPendingWork(): PendingWork {
  let count = 0
  let waiting: (() => void)[] = []
  const end = (): void => {
    count -= 1
    if (count > 0) return
    const resolved = waiting
    waiting = []
    for (const resolve of resolved) resolve()
  }
  return {
    get count() {
      return count
    },
    add(work) {
      count += 1
      return work.finally(end)
    },
    async ended() {
      while (count > 0) await new Promise<void>((resolve) => waiting.push(resolve))
    },
  }
}

/** The place of a value in a list. */
export interface Link<T> {
  readonly value: T
  /** Removes the value from its list. Returns false if it was removed earlier. */
  remove(): boolean
}

/**
 * A list in the order of addition. Use it instead of a Map or a Set whose content changes with each message.
 *
 * Such a Map or Set replaces its hash table often, and V8 keeps a pointer from each replaced table to its successor, for
 * iterators. A replaced table also keeps the values that it held. As soon as one replaced table is in the old generation,
 * young collections therefore copy all later tables with their values, although they are garbage (docs/adr/0048). A removed
 * link of this list points to no other link.
 */
export class LinkedList<T> implements Iterable<Link<T>> {
  readonly #ends: Node<T>

  constructor() {
    // The list is a ring of nodes. This node has no value, and is both before the first value and after the last one.
    this.#ends = new Node<T>(undefined as T)
  }

  add(value: T): Link<T> {
    return new Node(value, this.#ends)
  }

  /**
   * Iterates over the links. The loop may remove links.
   *
   * @throws {Error} if the loop removes both the link that it got last and the one after it, because the rest of the list
   * would be skipped
   */
  *[Symbol.iterator](): Generator<Link<T>, void> {
    let node = this.#ends.next
    while (node !== null && node !== this.#ends) {
      const { next } = node
      yield node
      node = node.next ?? next
      if (node?.next === null) throw new Error('the loop has removed two adjacent links')
    }
  }
}

class Node<T> implements Link<T> {
  readonly value: T
  previous: Node<T> | null
  next: Node<T> | null

  /** Inserts the node before `next`. Without `next`, the node is a ring of its own. */
  constructor(value: T, next?: Node<T>) {
    this.value = value
    this.next = next ?? this
    this.previous = next?.previous ?? this
    if (next !== undefined) {
      ;(next.previous as Node<T>).next = this
      next.previous = this
    }
  }

  remove(): boolean {
    const { previous, next } = this
    if (previous === null || next === null) return false
    previous.next = next
    next.previous = previous
    this.previous = this.next = null
    return true
  }
}
