import { isCovered } from '@integration-host/shared/access/caller'
import { tagOf } from '@integration-host/shared/contracts/run-filter'
import {
  isOfProvider,
  providerCodesIn,
} from '@integration-host/shared/provider-profile/provider-fault'
import type postgres from 'postgres'
import { type Run, runKey } from '../../../run/run.ts'
import {
  possibleStatuses,
  type RunPage,
  type RunPosition,
  type RunSearch,
} from '../../../run/run-search.ts'
import { isOver } from '../../../run/status.ts'
import { runOf, type RunRow } from '../rows.ts'
import { endedRanges, processNames } from './process-names.ts'
import { ABANDONED, createSearchText, type SearchText } from './search-text.ts'

/**
 * The maximum number of rows that a scan or a collection examines. `MAX_EXAMINED` applies if the examined rows are
 * close together in the table, for example if an index by process and time yields them. `MAX_SCATTERED` applies if the
 * rows are scattered in the table, because each of them may then need a read from disk.
 */
const MAX_EXAMINED = 10_000
const MAX_SCATTERED = 2_000
/** The maximum number of unfinished runs that a collection reads. If there are more, the collection is abandoned. */
const MAX_UNFINISHED = 20_000
/**
 * The maximum number of failed and cancelled runs that a collection reads. If there are more, the collection is
 * abandoned.
 */
const MAX_ENDED = 4_000

const RUN = ['h."TransactionID"', 'h."ReplayID"']
const BY_CREATION = ['h."CreatedAt"', ...RUN]
const BY_COMPLETION = ['h."CompletedAt"', ...RUN]
const REALM_BY_CREATION = ['h."CreatedAt"', 'h."Process"', ...RUN]
const TAG_BY_CREATION = ['t."CreatedAt"', 't."Process"', 't."TransactionID"', 't."ReplayID"']
/**
 * OFFSET makes PostgreSQL read the tags first and look up the run of each tag. Without OFFSET, it may read all runs
 * first.
 */
const TAGGED = `"Order_Tag" t cross join lateral (
  select * from "Order_Header" h where h."Process" = t."Process"
    and h."TransactionID" = t."TransactionID" and h."ReplayID" = t."ReplayID" offset 0) h`

/**
 * Finds runs by a filter, newest first. The time is bounded, whatever the size of the table is.
 *
 * A search follows a plan, which reads runs from sources. Each source uses one index and is either a scan or a
 * collection. A scan reads runs in the order of the list, and stops when it has a page or has examined its share of
 * rows. If a scan stops without a full page, the page ends there. A collection reads all runs of its index ranges and
 * sorts them. If there are too many runs, the plan is abandoned, and the search continues with the next plan. The last
 * plan is never abandoned.
 *
 * The statements are not prepared. There are thousands of combinations of filters, and PostgreSQL should plan each
 * combination with its actual values.
 */
export async function searchRuns(sql: postgres.Sql, search: RunSearch): Promise<RunPage> {
  for (const plan of plansOf(sql, search)) {
    const page = await execute(sql, search, plan)
    if (page !== null) return page
  }
  return { runs: [], next: null }
}

/** Returns the SQL of a source of runs; `null` if the source would have too many index ranges. */
type Source = (text: SearchText) => string | null | Promise<string | null>

/** Returns the plans in the order in which the search tries them. A plan merges the runs of its sources. */
function plansOf(sql: postgres.Sql, search: RunSearch): readonly (readonly Source[])[] {
  const { process, filter, order, visible } = search
  const { version = [], realm = [], tag = [], idPrefix, waitingFor = [] } = filter
  const statuses = possibleStatuses(filter)
  const isInOrder = order === 'created'
  const isVisible = (name: string): boolean => isCovered(name, visible.processes)
  const hasCodes = providerCodesIn(filter.class ?? []).length > 0
  const isInClass = (name: string): boolean =>
    (filter.class?.includes(name) ?? true) || (hasCodes && isOfProvider(name))
  const processes = async () =>
    (process === null ? await processNames(sql) : [process])
      .filter(isVisible)
      .map((name) => ({ process: name }))

  const newest: Source = async (text) =>
    text.scan(await processes(), 'h."Process" = k.process', BY_CREATION, MAX_EXAMINED)
  const completed: Source = async (text) =>
    text.scan(
      await processes(),
      'h."Process" = k.process and h."CompletedAt" is not null',
      BY_COMPLETION,
      MAX_EXAMINED,
    )
  const unfinished =
    (most: number | null): Source =>
    (text) =>
      text.collect([{}], 'h."CompletedAt" is null', most)
  const waiting: Source = (text) =>
    text.collect(
      waitingFor.map((name) => ({ waiting: name })),
      'h."WaitingFor" = k.waiting',
      MAX_UNFINISHED,
    )
  const prefix: Source = async (text) =>
    text.collect(
      await processes(),
      `h."Process" = k.process and ${text.startsWith('h."TransactionID"', idPrefix ?? '')}`,
      MAX_SCATTERED,
    )
  const ofRealm: Source = (text) => {
    const ranges = realm.map((name) => ({ realm: name }))
    const range = 'h."Realm" = k.realm'
    return isInOrder
      ? text.scan(ranges, range, REALM_BY_CREATION, MAX_SCATTERED)
      : text.collect(ranges, range, MAX_SCATTERED)
  }
  const ofVersion: Source = async (text) => {
    const ranges = (await processes()).flatMap((range) =>
      version.map((name) => ({ ...range, version: name })),
    )
    const range = 'h."Process" = k.process and h."DefinitionVersion" = k.version'
    return isInOrder
      ? text.scan(ranges, range, BY_CREATION, MAX_EXAMINED)
      : text.collect(ranges, range, MAX_SCATTERED)
  }
  const tagged: Source = (text) => {
    const ranges = tag.slice(0, 1).map(tagOf)
    const range = 't."Name" = k.name and t."Value" = k.value'
    return isInOrder
      ? text.scan(ranges, range, TAG_BY_CREATION, MAX_SCATTERED, TAGGED)
      : text.collect(ranges, range, MAX_SCATTERED, TAGGED)
  }
  const ended: Source = async (text) => {
    if (!isInOrder)
      return text.collect(
        await processes(),
        'h."Process" = k.process and h."EndedAs" is not null',
        MAX_ENDED,
      )
    const ranges = (await endedRanges(sql, process))?.filter(
      (range) =>
        isVisible(range.process) &&
        statuses.has(range.ended) &&
        isInClass(range.class) &&
        (filter.inDoubt ?? range.doubt) === range.doubt,
    )
    return ranges === undefined ? null : text.scanEnded(ranges, BY_CREATION, MAX_SCATTERED)
  }

  const isUnfinishedOnly = ![...statuses].some(isOver)
  const hasUnfinished = [...statuses].some((status) => !isOver(status))
  const byVersion = version.length > 0 ? [[ofVersion]] : []
  const byEnd = statuses.has('Completed')
    ? []
    : [[ended, ...(hasUnfinished ? [unfinished(MAX_UNFINISHED)] : [])]]
  return [
    ...(statuses.size === 0 ? [[]] : []),
    ...(idPrefix === undefined ? [] : [[prefix]]),
    ...(waitingFor.length === 0 ? [] : [[waiting]]),
    ...(isUnfinishedOnly ? [[unfinished(MAX_UNFINISHED)]] : []),
    ...(tag.length > 0 ? [[tagged]] : realm.length > 0 ? [[ofRealm]] : []),
    // With a filter by error class, the plan that reads the failed runs of the class is tried first, because there are
    // few such runs. Without that filter, the plan that reads the runs of the definition version is tried first,
    // because these runs are closer together in the index than all failed and cancelled runs.
    ...(filter.class === undefined ? [...byVersion, ...byEnd] : [...byEnd, ...byVersion]),
    // No index has the order in which unfinished runs were changed, so all of them are sorted.
    isInOrder ? [newest] : [completed, unfinished(null)],
  ]
}

/** Returns the page, or `null` if the collection of a source was abandoned. */
async function execute(
  sql: postgres.Sql,
  search: RunSearch,
  plan: readonly Source[],
): Promise<RunPage | null> {
  const text = createSearchText(search)
  const sources: string[] = []
  for (const source of plan) {
    const part = await source(text)
    if (part === null) return null
    if (part !== '') sources.push(part)
  }
  if (sources.length === 0) return { runs: [], next: null }
  const statement = text.merge(sources)
  const rows = await sql.unsafe<FoundRow[]>(statement, text.parameters)
  return pageOf(rows, search.limit)
}

interface FoundRow extends RunRow {
  readonly at: string
  readonly matches: boolean | null
  /** Whether a scan stopped at this run, so that the runs after it are unknown. */
  readonly stops: boolean
}

function pageOf(rows: readonly FoundRow[], limit: number): RunPage | null {
  const runs: Run[] = []
  let next: RunPosition | null = null
  for (const row of rows) {
    if (row.at === ABANDONED) return null
    if (runs.length === limit) return { runs, next }
    next = { at: row.at, ...runKey(row) }
    if (row.matches === true) runs.push(runOf(row))
    if (row.stops) return { runs, next }
  }
  return { runs, next: null }
}
