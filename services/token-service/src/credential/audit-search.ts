import type { AuditEntry, AuditPage } from '@integration-host/shared/contracts/audit'
import type { CredentialStore } from './credential-store.ts'

/** The maximum number of entries that one read of the log returns. */
const BATCH = 1_000
/** How many audit entries are searched for one page. The limit bounds the time of a page if few entries match. */
const MAX_SEARCHED = 5_000

/**
 * Returns at most `limit` matching audit entries with a number below `before`, the newest first. `next_before` is the
 * value of `before` for the next page; `null` if there are no older entries. A page has fewer than `limit` entries, or
 * none, if matching entries are rare.
 */
export async function newestAudit(
  log: Pick<CredentialStore, 'readAuditBackwards'>,
  {
    before = Number.MAX_SAFE_INTEGER,
    limit,
    isWanted,
  }: {
    readonly before: number | undefined
    readonly limit: number
    readonly isWanted: (entry: AuditEntry) => boolean
  },
): Promise<AuditPage> {
  const items: AuditEntry[] = []
  let next = before
  for (let searched = 0; ; searched += BATCH) {
    const batch = await log.readAuditBackwards(next, BATCH)
    for (const entry of batch.items) {
      next = entry.Seq
      if (isWanted(entry)) items.push(entry)
      if (items.length === limit) break
    }
    const isAtEnd = batch.items.length < BATCH && next === (batch.items.at(-1)?.Seq ?? next)
    if (isAtEnd || items.length === limit || searched + BATCH >= MAX_SEARCHED)
      return { items, head: batch.head, next_before: isAtEnd || next <= 1 ? null : next }
  }
}
