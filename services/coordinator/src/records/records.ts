import type { Action } from '../transaction/action.ts'

/**
 * A table of rows that are few and change rarely, such as schedules. A row has the documented columns of its table, so
 * that a replica of an earlier release, which has statements of its own for the table, sees the same rows.
 */
export interface RecordKind<Row extends object> {
  readonly table: string
  /** The columns of the primary key, in its order. Their values are strings. */
  readonly key: readonly (keyof Row & string)[]
}

/**
 * The rows of a table. A store reads rows, computes in TypeScript what follows, and replaces a row if it is unchanged
 * since it was read. So one store serves all transaction sources.
 *
 * Every method throws `store_unavailable` if the source cannot be reached. In this case, it is unknown whether the
 * change of the method was committed.
 */
export interface Records<Row extends object> {
  /** The present time of the source, in epoch ms. */
  now(): Promise<number>
  /** Returns the rows whose key begins with these values, all rows if there are none, in the order of their keys. */
  rows(...key: readonly string[]): Promise<readonly Row[]>
  /**
   * Stores `after`, and the entry of the action log, in one database transaction, if the stored row is still the one
   * that `rows` has returned as `before`. Otherwise, returns false without a change. `undefined` stands for a row that
   * does not exist.
   */
  replace(before: Row | undefined, after: Row, action?: Omit<Action, 'ID'>): Promise<boolean>
}
