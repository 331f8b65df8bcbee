/**
 * The marks of `createOnce`: which step of which run creates the object with a value of a field that identifies it.
 *
 * M1  A mark is reserved before the call, so an object that a call has created always has a reserved mark.
 * M2  A mark belongs to one call, named by its idempotency key, until nothing can have come of this call: its run has ended
 *     without a doubt and without the object, or the object was deleted or voided since.
 * M3  The row has the time of the last call, because a new object is visible to queries only some time after it.
 */
import { iso, type RecordKind, updateRow } from '../records/records.ts'
import { isFinished } from '../run/item.ts'
import { ONLY_RUN } from '../run/run-detail.ts'
import { type RunKey, runKey } from '../run/run.ts'
import { isOver } from '../run/status.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { type EntryRow, newestEntries } from './book-entry.ts'
import type { EntryKeeper } from './entry-keeper.ts'

/** A row of `"Book_Mark"`. */
export interface MarkRow extends RunKey {
  readonly Realm: string
  readonly Entity: string
  readonly Field: string
  readonly Value: string
  readonly Holder: string
  readonly StepName: string
  readonly EntityID: string | null
  readonly ReservedAt: string
  readonly SentAt: string
}

/** The value of a field that identifies an object of a company. */
export interface Mark {
  readonly realm: string
  readonly entity: string
  readonly field: string
  readonly value: string
}

/** The call that reserves a mark. `holder` is its idempotency key. */
export interface MarkHolder {
  readonly run: RunKey & { readonly StepName: string }
  readonly holder: string
}

export type Reservation =
  /** The mark belongs to the call. `isNew`: since now, so no call was sent. */
  | { readonly kind: 'own'; readonly row: MarkRow; readonly isNew: boolean }
  /** It belongs to another call. `id` is the object that this call has created or adopted; `null` if it is not known. */
  | {
      readonly kind: 'taken'
      readonly row: MarkRow
      readonly id: string | null
      readonly entryId: string | null
    }

export const MARKS: RecordKind<MarkRow> = {
  table: 'Book_Mark',
  key: ['Realm', 'Entity', 'Field', 'Value'],
}
const MAX_ENTRIES = 100

export interface MarksDeps {
  readonly source: Pick<TransactionSource, 'get' | 'records'>
  readonly keeper: Pick<EntryKeeper, 'markOf'>
}

export type Marks = ReturnType<typeof createMarks>

export function createMarks({ source, keeper }: MarksDeps) {
  const marks = source.records(MARKS)
  const newest = (where: Partial<EntryRow>): Promise<readonly EntryRow[]> =>
    newestEntries(source, where, { limit: MAX_ENTRIES })

  /** Returns the entry of the object that the holder of a mark has created: its first since it has reserved the mark. */
  async function creationOf(row: MarkRow): Promise<EntryRow | undefined> {
    const { Process, TransactionID, Realm, Entity } = row
    const created = await newest({ Process, TransactionID, Realm, Entity, Operation: 'create' })
    return created.findLast(
      ({ ReplayID, StepName, RecordedAt }) =>
        ReplayID === row.ReplayID &&
        StepName === row.StepName &&
        Date.parse(RecordedAt) >= Date.parse(row.ReservedAt),
    )
  }

  /** Whether the object of a creation exists no longer, as far as its entries say. */
  async function isGone({ Realm, Entity, EntityID }: EntryRow): Promise<boolean> {
    const known = await newest({ EntityID, Realm, Entity })
    return known.some(
      ({ Operation, State }) =>
        State !== 'Superseded' &&
        (['delete', 'void'].includes(Operation) || ['Deleted', 'Voided'].includes(State)),
    )
  }

  /** Returns what the holder of a mark has created; `null` if nothing can have come of its call (M2). */
  async function heldBy(
    row: MarkRow,
  ): Promise<Omit<Extract<Reservation, { kind: 'taken' }>, 'kind'> | null> {
    if (row.EntityID !== null) return { row, id: row.EntityID, entryId: null }
    const { Process, TransactionID, ReplayID, StepName } = row
    const entry = await creationOf(row)
    if (entry !== undefined)
      return (await isGone(entry)) ? null : { row, id: entry.EntityID, entryId: entry.EntryID }
    const found = await source.get(Process, TransactionID, ReplayID, ONLY_RUN)
    if (found === null) return null
    const { Status, InDoubt } = found.run
    const isDone = found.items.some((item) => item.StepName === StepName && isFinished(item))
    const mayExist = !isOver(Status) || InDoubt || isDone || Status === 'Completed'
    return mayExist ? { row, id: null, entryId: null } : null
  }

  return {
    async reserve(
      { realm: Realm, entity: Entity, field: Field, value }: Mark,
      { run, holder: Holder }: MarkHolder,
    ): Promise<Reservation> {
      const Value = await keeper.markOf({ realm: Realm, entity: Entity, field: Field, value })
      for (;;) {
        const [row] = await marks.rows(Realm, Entity, Field, Value)
        if (row?.Holder === Holder) return { kind: 'own', row, isNew: false }
        const held = row === undefined ? null : await heldBy(row)
        if (held !== null) return { kind: 'taken', ...held }
        const now = iso(await marks.now())
        const own: MarkRow = {
          ...runKey(run),
          Realm,
          Entity,
          Field,
          Value,
          Holder,
          StepName: run.StepName,
          EntityID: null,
          ReservedAt: now,
          SentAt: now,
        }
        if (await marks.replace(row, own)) return { kind: 'own', row: own, isNew: true }
      }
    },
    /** Stores that the call is sent now, or that it has adopted an object. */
    async update(row: MarkRow, adopted = row.EntityID): Promise<void> {
      const key = [row.Realm, row.Entity, row.Field, row.Value]
      await updateRow(marks, key, ({ Holder, EntityID }, now) =>
        Holder === row.Holder ? { SentAt: iso(now), EntityID: adopted ?? EntityID } : null,
      )
    },
    /** Returns the id of the object that the holder of a mark is known to have created; `null` if none is. */
    createdBy: async (row: MarkRow): Promise<string | null> =>
      (await creationOf(row))?.EntityID ?? null,
    /** Returns those of the objects that another call has created, according to their entries. */
    async ofOthers(
      {
        realm,
        entity,
        ids,
      }: { readonly realm: string; readonly entity: string; readonly ids: readonly string[] },
      by: MarkHolder['run'],
    ): Promise<ReadonlySet<string>> {
      const others = new Set<string>()
      for (const EntityID of ids) {
        const known = await newest({ EntityID, Realm: realm, Entity: entity, Operation: 'create' })
        const isOther = known.some(
          (entry) =>
            entry.Process !== by.Process ||
            entry.TransactionID !== by.TransactionID ||
            entry.ReplayID !== by.ReplayID,
        )
        if (isOther) others.add(EntityID)
      }
      return others
    },
    now: () => marks.now(),
  }
}
