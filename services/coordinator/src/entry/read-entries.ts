import type { EntryFilter, EntryView } from '@integration-host/shared/contracts/company'
import type { TransactionSource } from '../run/transaction-source.ts'
import { ENTRIES, type EntryRow } from './book-entry.ts'

/** `RecordedAt` and `EntryID` of an entry, by which entries are ordered. */
export type EntryPosition = [recordedAt: string, entryId: string]

/** Returns the entries that match a filter, newest first. */
export async function readEntries(
  source: Pick<TransactionSource, 'records'>,
  { realm, entity, id, process, transaction, state, since }: EntryFilter,
  { after, limit }: { readonly after?: EntryPosition | undefined; readonly limit: number },
): Promise<readonly EntryRow[]> {
  const entries = await source.records(ENTRIES).page({
    where: {
      ...(id !== undefined && { EntityID: id }),
      ...(realm !== undefined && { Realm: realm }),
      ...(entity !== undefined && { Entity: entity }),
      ...(process !== undefined && { Process: process }),
      ...(transaction !== undefined && { TransactionID: transaction }),
      ...(state !== undefined && { State: state }),
    },
    by: ['RecordedAt', 'EntryID'],
    isNewestFirst: true,
    ...(after !== undefined && { after }),
    limit,
  })
  const from = since === undefined ? -Infinity : Date.parse(since)
  // All further entries are older.
  return entries.filter(({ RecordedAt }) => Date.parse(RecordedAt) >= from)
}

export const viewOf = ({ FieldsKey: _key, ...entry }: EntryRow): EntryView => entry
