/**
 * The part of the port `TransactionSource` that stores, for each company, how far the change feed was read.
 *
 * A cursor never moves back. It moves to a new position only after the broker has confirmed the events of all changes
 * before that position.
 */
export interface ChangeCursors {
  /** Returns the cursor of a company. A company that has none gets a cursor at the present time. */
  beginCursor(realm: string): Promise<ChangeCursor>
  /** Returns the cursor of a company; `null` if it has none. */
  changeCursor(realm: string): Promise<ChangeCursor | null>
  /** Stores the result of a sweep. Changes nothing if the company no longer has a cursor. */
  moveCursor(realm: string, sweep: Sweep): Promise<void>
  removeCursor(realm: string): Promise<void>
  /** Returns at most `limit` cursors, the ones with the earliest positions first. */
  oldestCursors(limit: number): Promise<readonly ChangeCursor[]>
  /** Stores the present time as the time at which the provider has last delivered an event. */
  keepDelivery(): Promise<void>
  /** Returns the milliseconds since the last call of `keepDelivery`; `null` if there was none. */
  deliveryAgeMs(): Promise<number | null>
}

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
