/** Background work that must end before a shutdown continues. */
export interface PendingWork {
  /** The number of added promises that have not settled. */
  readonly count: number
  /** Adds work, and returns a promise of its result. The caller must handle a rejection of the returned promise. */
  add<Result>(work: Promise<Result>): Promise<Result>
  /** Resolves when all work has ended, including work that is added in the meantime. */
  ended(): Promise<void>
}

/** Counts the work instead of keeping it in a Set, because a Set keeps ended work in memory (see `linked-list.ts`). */
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
