import type { AuditEntry, AuditPage } from '@integration-host/shared/contracts/audit'
import type { CredentialStore } from './credential-store.ts'

/** The maximum number of entries that one read of the audit log returns. */
const BATCH = 1_000
/** How many audit entries are searched for one page. This limits the time of a search with few matches. */
const MAX_SEARCHED = 5_000

/**
 * Returns at most `limit` matching audit entries with a number below `before`, newest first. If matches are rare, a
 * page may have fewer entries than `limit`, or none. `next_before` is the value of `before` for the next page; `null`
 * if there are no older entries.
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
