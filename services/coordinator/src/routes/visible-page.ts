/**
 * The number of entries that are read for one page at most. If the key of the caller may see only some of the entries,
 * the page may have fewer than `limit` of them, although more follow.
 */
const MAX_READ = 10_000
const MIN_BATCH = 200

export interface VisiblePage<Entry> {
  readonly items: readonly Entry[]
  /** The next page begins after this `ID`; `null` if there is none. */
  readonly next: number | null
}

/**
 * Reads batches of entries, newest first, until the page is full of entries that the caller may see, no entry is left,
 * or `MAX_READ` entries were read.
 */
export async function readVisible<Entry extends { readonly ID: number }>(
  read: (range: {
    readonly before: number | undefined
    readonly limit: number
  }) => Promise<readonly Entry[]>,
  { limit, before: start }: { readonly limit: number; readonly before?: number | undefined },
  maySee: (entry: Entry) => boolean,
): Promise<VisiblePage<Entry>> {
  const items: Entry[] = []
  let before = start
  const size = Math.max(limit + 1, MIN_BATCH)
  for (let count = 0; count < MAX_READ;) {
    const batch = await read({ before, limit: size })
    for (const entry of batch) {
      if (items.length === limit) return { items, next: before ?? null }
      if (maySee(entry)) items.push(entry)
      before = entry.ID
    }
    if (batch.length < size) return { items, next: null }
    count += batch.length
  }
  return { items, next: before ?? null }
}
