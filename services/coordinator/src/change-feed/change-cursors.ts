/**
 * The store of how far the change feed of each company was read.
 *
 * A cursor never moves back. It moves to a new position only after the broker has confirmed the events of all changes
 * before that position.
 */
import { installation, installationValues } from '../records/installation.ts'
import { changeRow, iso, type RecordKind, updateRow } from '../records/records.ts'
import type { TransactionSource } from '../run/transaction-source.ts'

/** What a sweep (one pass over the change feed of a company) has read. */
export interface Sweep {
  /** The time before which every change was read, ISO 8601. */
  readonly position: string
  /** The number of published events. */
  readonly events: number
  /** What could not be read, for operators; `null` if everything was read. */
  readonly incomplete: string | null
}

export interface ChangeCursor extends Sweep {
  readonly realm: string
  /** The time at which the last sweep ended, ISO 8601; `null` if there was none. */
  readonly sweptAt: string | null
  /** The milliseconds between the position of the cursor and the present time, by the clock of the store. */
  readonly lagMs: number
}

/** A row of `Realm_Cursor`. */
export interface CursorRow {
  readonly Realm: string
  readonly Position: string
  readonly SweptAt: string | null
  readonly Events: number
  readonly Incomplete: string | null
}

export const CURSORS: RecordKind<CursorRow> = { table: 'Realm_Cursor', key: ['Realm'] }
/** The time at which the provider has last delivered an event, ISO 8601. */
export const DELIVERY = installation<string>('delivery')

const ageMs = (at: string, now: number): number => Math.max(0, now - Date.parse(at))
const cursorOf = (row: CursorRow, now: number): ChangeCursor => ({
  realm: row.Realm,
  position: row.Position,
  sweptAt: row.SweptAt,
  events: row.Events,
  incomplete: row.Incomplete,
  lagMs: ageMs(row.Position, now),
})

export type ChangeCursors = ReturnType<typeof createChangeCursors>

export function createChangeCursors(source: Pick<TransactionSource, 'records'>) {
  const cursors = source.records(CURSORS)
  const delivery = installationValues<string>(source, 'delivery')
  return {
    /** Returns the cursor of a company. A company that has none gets a cursor at the present time. */
    async beginCursor(realm: string): Promise<ChangeCursor> {
      const begun = (now: number): CursorRow => ({
        Realm: realm,
        Position: iso(now),
        SweptAt: null,
        Events: 0,
        Incomplete: null,
      })
      const row = await changeRow(cursors, [realm], (known, now) => known ?? begun(now))
      return cursorOf(row as CursorRow, await cursors.now())
    },
    /** Returns the cursor of a company; `null` if it has none. */
    async changeCursor(realm: string): Promise<ChangeCursor | null> {
      const [row] = await cursors.rows(realm)
      return row === undefined ? null : cursorOf(row, await cursors.now())
    },
    /** Stores the result of a sweep. Changes nothing if the company no longer has a cursor. */
    async moveCursor(realm: string, { position, events, incomplete }: Sweep): Promise<void> {
      await updateRow(cursors, [realm], ({ Position }, now) => ({
        Position: Date.parse(position) > Date.parse(Position) ? position : Position,
        SweptAt: iso(now),
        Events: events,
        Incomplete: incomplete,
      }))
    },
    async removeCursor(realm: string): Promise<void> {
      await changeRow(cursors, [realm], () => undefined)
    },
    /** Returns at most `limit` cursors, the ones with the earliest positions first. */
    async oldestCursors(limit: number): Promise<readonly ChangeCursor[]> {
      const now = await cursors.now()
      return (await cursors.rows())
        .map((row) => cursorOf(row, now))
        .toSorted((a, b) => Date.parse(a.position) - Date.parse(b.position))
        .slice(0, limit)
    },
    /** Stores the present time as the time at which the provider has last delivered an event. */
    async keepDelivery(): Promise<void> {
      await delivery.change('', (_, now) => iso(now))
    },
    /** Returns the milliseconds since the last call of `keepDelivery`; `null` if there was none. */
    async deliveryAgeMs(): Promise<number | null> {
      const at = await delivery.get('')
      return at === undefined ? null : ageMs(at, await delivery.now())
    },
  }
}
