/**
 * Compares an entry with its object as the books contain it now.
 *
 * @see docs/intuit.md, "Open": how the change feed shows a voided object
 */
import type { EntryState } from '@integration-host/shared/contracts/company'
import { type EntryRow, rankOf } from './book-entry.ts'

/** An object of the books, or the deletion of one. */
export interface SeenObject {
  readonly isDeleted: boolean
  readonly content: Readonly<Record<string, unknown>>
}

export interface Comparison {
  readonly state: EntryState
  /** The paths of the written fields that differ; `null` if none is known to differ. */
  readonly changed: readonly string[] | null
}

/**
 * Returns what an object says about its newest entry; `null` if it says nothing, because it is older than the entry, or
 * because the fields of the entry cannot be compared.
 *
 * @param changedFields returns the paths of the written fields that differ, or `null`
 */
export async function compareEntry(
  entry: EntryRow,
  { isDeleted, content }: SeenObject,
  changedFields: () => Promise<readonly string[] | null>,
): Promise<Comparison | null> {
  const is = (state: EntryState, changed: readonly string[] | null = null): Comparison => ({
    state,
    changed,
  })
  if (isDeleted) return is(entry.Operation === 'delete' ? 'Verified' : 'Deleted')
  const { SyncToken } = content
  const seen = rankOf({
    Operation: 'update',
    SyncToken: typeof SyncToken === 'string' ? SyncToken : null,
  })
  // A response may be older than the write. Nothing becomes of an object that was deleted.
  if (seen < rankOf(entry)) return null
  if (SyncToken === entry.SyncToken) return is('Verified')
  if (isVoided(content)) return is(entry.Operation === 'void' ? 'Verified' : 'Voided')
  const changed = await changedFields()
  if (changed === null) return null
  return changed.length === 0 ? is('Verified') : is('ChangedOutside', changed)
}

/** Intuit has no status for it: amounts are zero, and `Voided` is put before the note. */
const isVoided = ({ TotalAmt, PrivateNote }: SeenObject['content']): boolean =>
  TotalAmt === 0 && typeof PrivateNote === 'string' && /^voided\b/i.test(PrivateNote)
