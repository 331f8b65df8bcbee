/**
 * The SQL of a search. Every value from the request is a parameter of the statement. A source returns the columns
 * `Process`, `TransactionID`, `ReplayID`, `at` (the time that orders the list), `matches` and `stops`.
 */
import { tagOf } from '@integration-host/shared/contracts/run-filter'
import {
  PROVIDER_CLASS,
  PROVIDER_ERROR,
  providerCodesIn,
} from '@integration-host/shared/provider-profile/provider-fault'
import type { RunPosition, RunSearch } from '../../../run/run-search.ts'

/** A range of an index, given by the values of the first columns of the index. */
export interface Range {
  readonly process?: string
  readonly ended?: string
  readonly class?: string
  readonly doubt?: boolean
  readonly version?: string
  readonly realm?: string
  readonly waiting?: string
  readonly name?: string
  readonly value?: string
}

export interface SearchText {
  readonly parameters: string[]
  /** Returns a condition that an index on `column` can use. */
  startsWith(column: string, prefix: string): string
  /**
   * Reads each range in the order `by` and merges the ranges. `by` is the order of the index, and begins with a time.
   * At most `most` rows are read in total, and at most an equal share of them from each range.
   */
  scan(
    ranges: readonly Range[],
    condition: string,
    by: readonly string[],
    most: number,
    table?: string,
  ): string
  /**
   * Like `scan`, for failed and cancelled runs. Every range has a status, an error class and an in-doubt flag that the
   * filter allows.
   */
  scanEnded(ranges: readonly Range[], by: readonly string[], most: number): string
  /**
   * Reads all rows of the ranges and sorts them. If there are more than `most` rows, returns a single row at the
   * position `ABANDONED` instead.
   */
  collect(ranges: readonly Range[], condition: string, most: number | null, table?: string): string
  /** Returns the statement that merges the sources. */
  merge(sources: readonly string[]): string
}

/** A position before all runs in the order of every list. */
export const ABANDONED = 'infinity'

const HEADER = '"Order_Header" h'
const RANGE = `k(process text, ended text, class text, doubt boolean, version text, realm text, waiting text,
  name text, value text, at timestamptz, more int, id text, replay int)`
const DESCENDING = 'at desc, "Process" desc, "TransactionID" desc, "ReplayID" desc'

export function createSearchText(search: RunSearch): SearchText {
  const { filter, order, limit } = search
  const parameters: string[] = []
  const text = (value: string): string => `$${parameters.push(value)}::text`
  const json = (value: unknown): string => `${text(JSON.stringify(value))}::jsonb`
  const time = (value: string): string => `(${text(value)})::timestamptz`
  const start: RunPosition = search.after ?? {
    at: order === 'created' ? (filter.until ?? 'infinity') : 'infinity',
    Process: '',
    TransactionID: '',
    ReplayID: 0,
  }

  /**
   * Returns the SQL condition that is true if a service key permits the process name or realm in the column. A pattern
   * of the key is an exact name, or a prefix that ends in `*`.
   */
  const isCovered = (column: string, patterns: readonly string[]): string => {
    const exact = patterns.filter((pattern) => !pattern.endsWith('*'))
    const prefixes = patterns
      .filter((pattern) => pattern.endsWith('*'))
      .map((pattern) => `starts_with(${column}, ${text(pattern.slice(0, -1))})`)
    return `(${[`${json(exact)} ? ${column}`, ...prefixes].join(' or ')})`
  }
  const isOneOf = (column: string, values: readonly string[] | undefined): string[] =>
    values === undefined ? [] : [`${json(values)} ? ${column}`]

  const endedConditions = (): string[] => [
    ...isOneOf('h."Status"', filter.status),
    ...(filter.inDoubt === undefined ? [] : [`h."InDoubt" = ${String(filter.inDoubt)}`]),
  ]
  /** The error class of a run is one of these values, or its error begins with the code of a provider that is one. */
  const isOfClass = (values: readonly string[] | undefined): string[] => {
    const codes = providerCodesIn(values ?? [])
    const [isClass] = isOneOf('h."ErrorClass"', values)
    if (isClass === undefined || codes.length === 0) return isClass === undefined ? [] : [isClass]
    const code = `substring(substring(h."LastError" from ${text(PROVIDER_ERROR)}) from '^[0-9]+')`
    return [`(${isClass} or h."ErrorClass" ~ ${text(PROVIDER_CLASS)} and ${json(codes)} ? ${code})`]
  }
  const otherConditions = (): string[] => {
    const { process, visible } = search
    const { idPrefix, from, until, since } = filter
    return [
      ...(process === null ? [] : [`h."Process" = ${text(process)}`]),
      ...isOneOf('h."StepName"', filter.step),
      ...isOfClass(filter.class),
      ...isOneOf('h."DefinitionVersion"', filter.version),
      ...isOneOf('h."Realm"', filter.realm),
      ...isOneOf('h."WaitingFor"', filter.waitingFor),
      // The text is `high` or `normal`, and another number than 0 and 1 may have been inserted by SQL.
      ...isOneOf(`case when h."Priority" > 0 then 'high' else 'normal' end`, filter.priority),
      ...(filter.children === true ? [] : ['h."ParentProcess" is null']),
      ...(idPrefix === undefined ? [] : [`starts_with(h."TransactionID", ${text(idPrefix)})`]),
      ...(filter.tag ?? [])
        .map(tagOf)
        .map(({ name, value }) => `h."Tags" ->> ${text(name)} = ${text(value)}`),
      ...(from === undefined ? [] : [`h."CreatedAt" >= ${time(from)}`]),
      ...(until === undefined ? [] : [`h."CreatedAt" < ${time(until)}`]),
      ...(since === undefined
        ? []
        : [`coalesce(h."CompletedAt", h."UpdatedAt") >= ${time(since)}`]),
      ...(visible.realms.includes('*')
        ? []
        : [`(h."Realm" is null or ${isCovered('h."Realm"', visible.realms)})`]),
      ...(visible.processes.includes('*') ? [] : [isCovered('h."Process"', visible.processes)]),
    ]
  }
  const allConditions = (): string[] => [...endedConditions(), ...otherConditions()]
  /**
   * The ranges as rows of `k`. With the LIMIT, PostgreSQL estimates the number of rows correctly. Without the LIMIT, it
   * would assume a hundred rows.
   */
  const kOf = (ranges: readonly Range[]): string =>
    `(select * from jsonb_to_recordset(${json(ranges)}) as ${RANGE} limit ${ranges.length}) k`
  const all = (conditions: readonly string[]): string => conditions.join(' and ') || 'true'

  const scanRows = (
    ranges: readonly Range[],
    condition: string,
    by: readonly string[],
    most: number,
    {
      table = HEADER,
      conditions,
    }: { readonly table?: string | undefined; readonly conditions: () => string[] },
  ): string => {
    if (ranges.length === 0) return ''
    const share = Math.max(1, Math.floor(most / ranges.length))
    const [column = ''] = by
    const isOfAllProcesses = by.length === 4
    const begins = ranges.map((range) => ({
      ...range,
      ...(isOfAllProcesses || range.process === undefined
        ? { process: start.Process, more: 0, id: start.TransactionID, replay: start.ReplayID }
        : startOf(range.process, start)),
      at: start.at,
    }))
    const behind = [
      "k.at + k.more * interval '1 microsecond'",
      ...(isOfAllProcesses ? ['k.process'] : []),
      'k.id',
      'k.replay',
    ]
    // `from` is a time of creation, but it also limits a list by the time of completion: a run that was created at
    // `from` or later was also completed at `from` or later.
    const bounds = [filter.from, order === 'updated' ? filter.since : undefined]
      .filter((bound) => bound !== undefined)
      .map((bound) => `and ${column} >= ${time(bound)}`)
    return `(select b.* from ${kOf(begins)} cross join lateral (
      select "Process", "TransactionID", "ReplayID", at, matches, n = ${share} as stops from (
        select s.*, row_number() over () as n from (
          select h."Process", h."TransactionID", h."ReplayID", ${column} as at, (${all(conditions())}) as matches
          from ${table} where ${condition} and h."PurgedAt" is null
            and (${by.join(', ')}) < (${behind.join(', ')}) ${bounds.join(' ')}
          order by ${by.map((name) => `${name} desc`).join(', ')} limit ${share}) s) e
      where matches or n = ${share} limit ${limit + 1}) b)`
  }

  return {
    parameters,
    startsWith(column, prefix) {
      const end = endOfPrefix(prefix)
      const below = end === null ? '' : ` and ${column} < ${text(end)}`
      return `${column} >= ${text(prefix)}${below}`
    },
    scan: (ranges, condition, by, most, table) =>
      scanRows(ranges, condition, by, most, {
        table,
        conditions: allConditions,
      }),
    scanEnded: (ranges, by, most) =>
      scanRows(
        ranges,
        `h."Process" = k.process and h."EndedAs" = k.ended and h."EndedClass" = k.class
          and h."EndedInDoubt" = k.doubt`,
        by,
        most,
        { conditions: otherConditions },
      ),
    collect(ranges, condition, most, table = HEADER) {
      if (ranges.length === 0) return ''
      const at = order === 'created' ? 'h."CreatedAt"' : 'coalesce(h."CompletedAt", h."UpdatedAt")'
      const isTooMany = most === null ? 'false' : `n > ${most}`
      return `(select "Process", "TransactionID", "ReplayID",
          case when ${isTooMany} then '${ABANDONED}' else at end as at, matches, ${isTooMany} as stops from (
          select s.*, row_number() over () as n from (
            select h."Process", h."TransactionID", h."ReplayID", ${at} as at, (${all(allConditions())}) as matches
            from ${kOf(ranges)} cross join lateral (
              select h.* from ${table} where ${condition} and h."PurgedAt" is null offset 0) h
            ${most === null ? '' : `limit ${most + 1}`}) s) e
        where ${isTooMany} or matches and (at, "Process", "TransactionID", "ReplayID")
          < (${time(start.at)}, ${text(start.Process)}, ${text(start.TransactionID)}, ${start.ReplayID})
        order by ${DESCENDING} limit ${limit + 1})`
    },
    merge: (sources) => `
      with found as (select * from (${sources.join(' union all ')}) s order by ${DESCENDING} limit ${limit + 1})
      select h.*, f.at::text as at, f.matches, f.stops from found f left join lateral (
        select * from "Order_Header" h where h."Process" = f."Process"
          and h."TransactionID" = f."TransactionID" and h."ReplayID" = f."ReplayID") h on true
      order by f.at desc, f."Process" desc, f."TransactionID" desc, f."ReplayID" desc`,
  }
}

/**
 * Returns the position in one process at which a list over all processes continues after `start`. The list is ordered
 * by descending time and then by descending process name. Of the runs with the same time as `start`, those of a process
 * with a larger name come before `start`, and those of a process with a smaller name come after it.
 */
function startOf(process: string, start: RunPosition) {
  const order = Buffer.compare(Buffer.from(process), Buffer.from(start.Process))
  return order === 0
    ? { more: 0, id: start.TransactionID, replay: start.ReplayID }
    : { more: order < 0 ? 1 : 0, id: '', replay: 0 }
}

/** Returns the first text, in byte order, after all texts that begin with `prefix`; `null` if no such text exists. */
function endOfPrefix(prefix: string): string | null {
  const points = Array.from(prefix, (character) => character.codePointAt(0) ?? 0)
  for (let last = points.pop(); last !== undefined; last = points.pop())
    if (last < 0x10ffff)
      // The code points from D800 to DFFF are surrogates instead of characters.
      return String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1)
  return null
}
