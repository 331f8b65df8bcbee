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
  /**
   * Whether the source gives each new row its `ID`, a number that is greater than that of every row before, and the time
   * `At`.
   */
  readonly isNumbered?: true
  /** The columns that are read; all by default. */
  readonly columns?: readonly (keyof Row & string)[]
  /** A column of bytes, of which at most `limit` are read. */
  readonly bytes?: { readonly column: keyof Row & string; readonly limit: number }
}

/**
 * The rows whose columns have these values. Instead of a value, `in` names several values, and `from` and `until`, which
 * is exclusive, the range of a time.
 */
export type RecordFilter<Row extends object> = {
  readonly [Name in keyof Row]?:
    | Row[Name]
    | { readonly in: readonly Row[Name][] }
    | { readonly from?: string | undefined; readonly until?: string | undefined }
    | undefined
}

/** Rows in the order of some columns, which together identify a row. */
export interface RecordPage<Row extends object> {
  readonly where?: RecordFilter<Row>
  readonly by: readonly (keyof Row & string)[]
  readonly isNewestFirst?: boolean
  /** The values of the columns `by` in the last row of the page before. */
  readonly after?: readonly (string | number)[]
  readonly limit: number
}

/** Groups of rows that have the same values in the columns `by`. */
export interface RecordCounting<Row extends object, By extends keyof Row & string> {
  readonly where?: RecordFilter<Row>
  readonly by: readonly By[]
  /** A column of times, whose least value in each group is returned. */
  readonly oldest?: keyof Row & string
}

export type RecordCount<Row extends object, By extends keyof Row> = Pick<Row, By> & {
  readonly Count: number
  readonly Oldest?: string
}

export type RecordRemoval<Row extends object> = Required<Pick<RecordPage<Row>, 'where'>> &
  (Pick<RecordPage<Row>, 'by' | 'limit'> | { readonly by?: never; readonly limit?: never })

/** A new entry of the action log. */
export type NewAction = Omit<Action, 'ID' | 'At'>

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
   * that `rows` or `page` has returned as `before`. Otherwise, returns false without a change. `undefined` stands for a
   * row that does not exist: without `before` a row is added, without `after` it is removed, without both only the entry
   * is stored.
   */
  replace(before: Row | undefined, after: Row | undefined, action?: NewAction): Promise<boolean>
  /** Counts the rows of each group, in the order of the values of the groups. */
  count<By extends keyof Row & string>(
    which: RecordCounting<Row, By>,
  ): Promise<readonly RecordCount<Row, By>[]>
  /**
   * Removes rows, or only the first ones in the order of `by`, and stores one entry of the action log if there were any,
   * in one database transaction. Returns their number.
   */
  remove(which: RecordRemoval<Row>, action?: NewAction): Promise<number>
  /**
   * The number of rows of 64 KiB that a group of rows should have at most, because of the space they take. It differs
   * between memory and disk, so a store cannot choose it. Only dead letters are that large.
   */
  readonly capacity: number
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
