/**
 * The maximum number of entries that are read for one page. If the caller may see only some of them, a page may have
 * fewer than `limit` entries although more follow.
 */
const MAX_READ = 10_000
const MIN_BATCH = 200

export interface VisiblePage<Entry, Position> {
  readonly items: readonly Entry[]
  /** The position after which the next page begins; `null` if no page follows. */
  readonly next: Position | null
}

/**
 * Reads batches of entries, newest first. Stops when the page has enough entries that the caller may see, when all
 * entries were read, or after `MAX_READ` entries. `positionOf` returns the position of an entry.
 */
export async function readVisible<Entry, Position>(
  read: (range: {
    readonly before: Position | undefined
    readonly limit: number
  }) => Promise<readonly Entry[]>,
  { limit, before: start }: { readonly limit: number; readonly before?: Position | undefined },
  maySee: (entry: Entry) => boolean,
  positionOf: (entry: Entry) => Position,
): Promise<VisiblePage<Entry, Position>> {
  const items: Entry[] = []
  let before = start
  const size = Math.max(limit + 1, MIN_BATCH)
  for (let count = 0; count < MAX_READ;) {
    const batch = await read({ before, limit: size })
    for (const entry of batch) {
      if (items.length === limit) return { items, next: before ?? null }
      if (maySee(entry)) items.push(entry)
      before = positionOf(entry)
    }
    if (batch.length < size) return { items, next: null }
    count += batch.length
  }
  return { items, next: before ?? null }
}
