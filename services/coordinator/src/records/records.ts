import type { Action } from '../run/action.ts'

/**
 * A table of rows that are read and replaced one by one or by the page, such as schedules or the book of entries. A row
 * has the documented columns of its table, so that a replica of an earlier release, which has statements of its own for
 * the table, sees the same rows.
 */
export interface RecordKind<Row extends object> {
  readonly table: string
  /** The columns of the primary key, in its order. Their values are strings. */
  readonly key: readonly (keyof Row & string)[]
  /** How the first column of the key begins, if the table has rows of several kinds. */
  readonly prefix?: string
  /**
   * The column whose value `page` shortens: a JSON object that may contain a long list. Instead of the list, `page`
   * returns its length, or `null` if the object does not have the list.
   */
  readonly short?: {
    readonly column: keyof Row & string
    readonly list: string
    readonly count: string
  }
}

/** Rows in the order of some columns, which together identify a row. */
export interface RecordPage<Row extends object> {
  /** The values that the columns must have. */
  readonly where?: Partial<Row>
  readonly by: readonly (keyof Row & string)[]
  readonly isNewestFirst?: boolean
  /** The values of the columns `by` in the last row of the page before. */
  readonly after?: readonly (string | number)[]
  readonly limit: number
}

/** A new entry of the action log. */
export type NewAction = Omit<Action, 'ID'>

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
  /** Returns a page of rows, whose long column is shortened. A row can be replaced without the long column. */
  page(page: RecordPage<Row>): Promise<readonly Row[]>
  /**
   * Stores `after`, and the entry of the action log, in one database transaction, if the stored row is still the one
   * that `rows` or `page` has returned as `before`. Otherwise, returns false without a change. `undefined` stands for a row that
   * does not exist: without `before` a row is added, without `after` it is removed.
   */
  replace(before: Row | undefined, after: Row | undefined, action?: NewAction): Promise<boolean>
}

/**
 * Replaces the row with this key, or the row that a function reads, by the one that `next` returns. If another program
 * changes the row meanwhile, `next` is called with the changed row. If it returns the row that it was given, nothing is
 * changed or recorded.
 */
export async function changeRow<Row extends object>(
  records: Records<Row>,
  which: readonly string[] | (() => Promise<Row | undefined>),
  next: (row: Row | undefined, now: number) => Row | undefined | Promise<Row | undefined>,
  actionOf?: (now: number, before: Row | undefined) => NewAction,
): Promise<Row | undefined> {
  for (;;) {
    const before = typeof which === 'function' ? await which() : (await records.rows(...which))[0]
    const now = await records.now()
    const after = await next(before, now)
    if (after === before || (await records.replace(before, after, actionOf?.(now, before))))
      return after
  }
}

/**
 * Changes members of a row. Returns the changed row; `null` if there is no row with this key, or if `next` returns `null`,
 * which leaves the row as it is.
 */
export async function updateRow<Row extends object>(
  records: Records<Row>,
  which: Parameters<typeof changeRow<Row>>[1],
  next: (row: Row, now: number) => Partial<Row> | null,
  actionOf?: (now: number, before: Row) => NewAction,
): Promise<Row | null> {
  let isChanged = false
  const after = await changeRow(
    records,
    which,
    (row, now) => {
      const change = row === undefined ? null : next(row, now)
      isChanged = change !== null
      return row && (change === null ? row : { ...row, ...change })
    },
    actionOf && ((now, before) => actionOf(now, before as Row)), // only an existing row is changed
  )
  return isChanged ? (after ?? null) : null
}

/** Returns a time, given in epoch ms, as the text that the columns of a row contain. */
export const iso = (at: number): string => new Date(at).toISOString()
