import { iso } from '../records/records.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { ENTRIES } from './book-entry.ts'
import { MARKS } from './marks.ts'

/**
 * The entries and the marks of a company; or at most `limit` entries that were recorded longer ago than this, and as many
 * marks whose call was sent longer ago.
 */
export type DeletedEntries =
  | { readonly realm: string }
  | { readonly olderThanMs: number; readonly limit: number }

/** Deletes entries and marks. Resolves with their number. */
export async function deleteEntries(
  source: Pick<TransactionSource, 'records'>,
  which: DeletedEntries,
): Promise<number> {
  const [entries, marks] = [source.records(ENTRIES), source.records(MARKS)]
  if ('realm' in which) {
    const where = { Realm: which.realm }
    return (await entries.remove({ where })) + (await marks.remove({ where }))
  }
  const old = { until: iso((await entries.now()) - which.olderThanMs) }
  const { limit } = which
  return (
    (await entries.remove({ where: { RecordedAt: old }, by: ['RecordedAt', 'EntryID'], limit })) +
    (await marks.remove({ where: { SentAt: old }, by: ['SentAt'], limit }))
  )
}
