/**
 * The book of entries: which object in the books of a company was written by which run.
 *
 * B1  An entry is written in the statement that records the attempt, so neither can be lost without the other.
 * B2  A write that is recorded again, by a repetition of the same call or by `find` in `confirm`, has the same `EntryID` and
 *     is stored once. An object has at most one entry with the operation `create`.
 * B3  The state belongs to the object: only its newest entry is compared with the books. Older ones are `Superseded`.
 *     The newest is the one with the greatest `SyncToken`, because a write may be recorded later than the next one.
 * B4  An entry contains no business data: names of fields, and hashes with a key that the installation keeps.
 */
import { iso, type RecordFilter, type RecordKind } from '../records/records.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import type { EntryFilter, EntryState, EntryView } from '@integration-host/shared/contracts/company'

/** An entry as it is stored in `"Book_Entry"`. `FieldsKey` identifies the key of the hashes. */
export interface EntryRow extends Readonly<EntryView> {
  readonly FieldsKey: string | null
}

export const ENTRIES: RecordKind<EntryRow> = { table: 'Book_Entry', key: ['EntryID'] }

/** A new entry, which gets its run, step, time and state when the attempt is recorded. */
export type NewEntry = Pick<
  EntryRow,
  'EntryID' | 'Realm' | 'Entity' | 'EntityID' | 'Operation' | 'SyncToken' | 'Fields' | 'FieldsKey'
>

/** The result of a comparison of an entry with the books. */
export interface EntryCheck {
  readonly EntryID: string
  readonly State: EntryState
  /** The paths of the fields that were changed; `null` if none is known. */
  readonly Changed: readonly string[] | null
}

/** An object in the books of a company. */
export interface BookObjectId {
  readonly entity: string
  readonly id: string
}

/** The members of a source that read or change many entries at once. Single entries are `Records`. */
export interface Entries {
  /** Returns the newest entry of each of these objects; none for an object without entries. */
  newestEntries(realm: string, objects: readonly BookObjectId[]): Promise<readonly EntryRow[]>
  /** Stores the results of comparisons made now. An entry that was superseded or erased meanwhile stays as it is. */
  checkEntries(checks: readonly EntryCheck[]): Promise<void>
}

/**
 * The objects of a company whose newest entry was recorded in a period, of which the times are ISO 8601 and `until` is
 * exclusive; or the objects that were found `checkedSinceMs` ago or later in a state that people should see.
 */
export type CountedEntries =
  | { readonly realm: string; readonly since?: string; readonly until?: string }
  | { readonly checkedSinceMs: number }

/** A number of objects. */
export interface EntryCount {
  readonly State: string
  readonly Entity: string
  readonly Count: number
}

/** The states of objects that were changed from outside, or are gone. */
export const OUTSIDE_STATES = [
  'ChangedOutside',
  'Voided',
  'Deleted',
  'Missing',
] as const satisfies readonly EntryState[]
export type OutsideState = (typeof OUTSIDE_STATES)[number]

export const isOutside = (state: string): state is OutsideState =>
  (OUTSIDE_STATES as readonly string[]).includes(state)

/** How new the object was that an entry has seen (B3). A deletion is final. */
export function rankOf({
  Operation,
  SyncToken,
}: Pick<EntryRow, 'Operation' | 'SyncToken'>): number {
  if (Operation === 'delete') return Infinity
  return SyncToken !== null && /^\d{1,15}$/.test(SyncToken) ? Number(SyncToken) : -1
}

/**
 * Returns the entries of an object that change when `added` are recorded, in their new form: the added ones, and known
 * ones that are superseded. An added entry that is already known changes nothing.
 */
export function withEntries(known: readonly EntryRow[], added: readonly EntryRow[]): EntryRow[] {
  const ids = new Set(known.map(({ EntryID }) => EntryID))
  const fresh = added.filter(
    ({ EntryID }, n) =>
      !ids.has(EntryID) && added.findIndex((entry) => entry.EntryID === EntryID) === n,
  )
  const top = Math.max(...fresh.map(rankOf))
  const newest = fresh.findLast((entry) => rankOf(entry) === top)
  const isOutdated = known.some((entry) => rankOf(entry) > top)
  const stateOf = (entry: EntryRow): EntryState =>
    entry === newest && !isOutdated ? 'Recorded' : 'Superseded'
  return [
    ...fresh.map((entry) => ({ ...entry, State: stateOf(entry) })),
    ...known
      .filter((entry) => entry.State !== 'Superseded' && rankOf(entry) <= top)
      .map((entry) => ({ ...entry, State: 'Superseded' })),
  ]
}

/** Returns the entry of an erased run: its ids stay. */
export const erasedEntry = (entry: EntryRow): EntryRow => ({
  ...entry,
  Fields: null,
  Changed: null,
  State: entry.State === 'Superseded' ? entry.State : 'Unproven',
})

/** `RecordedAt` and `EntryID` of an entry, by which entries are ordered. */
export type EntryPosition = [recordedAt: string, entryId: string]

/** Returns the entries that match a filter, newest first. */
export async function readEntries(
  source: Pick<TransactionSource, 'records'>,
  { realm, entity, id, process, transaction, state, since }: EntryFilter,
  { after, limit }: { readonly after?: EntryPosition | undefined; readonly limit: number },
): Promise<readonly EntryRow[]> {
  const where = {
    EntityID: id,
    Realm: realm,
    Entity: entity,
    Process: process,
    TransactionID: transaction,
    State: state,
  }
  const entries = await newestEntries(source, where, { after, limit })
  const from = since === undefined ? -Infinity : Date.parse(since)
  // All further entries are older.
  return entries.filter(({ RecordedAt }) => Date.parse(RecordedAt) >= from)
}

/** Returns the entries with these members, newest first. */
export const newestEntries = (
  source: Pick<TransactionSource, 'records'>,
  where: RecordFilter<EntryRow>,
  { after, limit }: { readonly after?: EntryPosition | undefined; readonly limit: number },
): Promise<readonly EntryRow[]> =>
  source.records(ENTRIES).page({
    where,
    by: ['RecordedAt', 'EntryID'],
    isNewestFirst: true,
    ...(after !== undefined && { after }),
    limit,
  })

/** Counts objects by state and entity. */
export async function countEntries(
  source: Pick<TransactionSource, 'records'>,
  which: CountedEntries,
): Promise<readonly EntryCount[]> {
  const entries = source.records(ENTRIES)
  const utc = (time: string | undefined) => (time === undefined ? time : iso(Date.parse(time)))
  const where: RecordFilter<EntryRow> =
    'realm' in which
      ? { Realm: which.realm, RecordedAt: { from: utc(which.since), until: utc(which.until) } }
      : {
          State: { in: OUTSIDE_STATES },
          CheckedAt: { from: iso((await entries.now()) - which.checkedSinceMs) },
        }
  const counts = await entries.count({ where, by: ['State', 'Entity'] })
  return counts.filter(({ State }) => State !== 'Superseded')
}

/** Which object an earlier run of the company has created. */
export interface EntryQuery {
  readonly realm: string
  readonly entity: string
  readonly process: string
  readonly transaction: string
  readonly step?: string | undefined
}

export type FoundEntry =
  | { readonly id: string }
  | { readonly errorClass: 'entry_not_found' | 'entry_ambiguous'; readonly error: string }

const MAX_ENTRIES = 500

/** Returns the object that the latest run of a transaction has created which has created one of this entity. */
export async function recordedEntry(
  source: Pick<TransactionSource, 'records'>,
  { realm, entity, process, transaction, step }: EntryQuery,
): Promise<FoundEntry> {
  const where = {
    Process: process,
    TransactionID: transaction,
    Realm: realm,
    Entity: entity,
    Operation: 'create' as const,
    StepName: step,
  }
  const found = await newestEntries(source, where, { limit: MAX_ENTRIES })
  const latest = Math.max(...found.map(({ ReplayID }) => ReplayID))
  const [newest, ...others] = found.filter(({ ReplayID }) => ReplayID === latest)
  const run = `${process}/${transaction}`
  if (newest === undefined) {
    const by = step === undefined ? '' : ` in the step ${step}`
    const error = `no run of ${run} has created an object of the kind ${entity}${by}`
    return { errorClass: 'entry_not_found', error }
  }
  if (others.length > 0 && step === undefined) {
    const steps = [...new Set([newest, ...others].map(({ StepName }) => StepName))].join(', ')
    const error = `${run}, replay ${latest}, has created ${others.length + 1} objects of the kind ${entity}, in: ${steps}; name the step`
    return { errorClass: 'entry_ambiguous', error }
  }
  return { id: newest.EntityID }
}
