/** The list of runs. The library for its virtual rows is large, so the browser loads this page as a separate file. */
import '../start.tsx'
import { useCallback, useEffect, useState } from 'react'
import { BulkBar } from '../parts/bulk-bar.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { QueueButton, QueueCommand } from '../parts/queue-button.tsx'
import { FilterChips, Filters, filterText, Groups } from '../parts/run-filters.tsx'
import { RunTable } from '../parts/run-table.tsx'
import { goTo, useQueryText } from '../router.ts'
import { keyOf, type ListedRun, useRunList, type VisibleRows } from '../run-list.ts'
import { filtersOf, removableFilters, runQuery, type RunQuery } from '../run-query.ts'
import { useQueries } from '@tanstack/react-query'
import type { RunsView } from '../../src/contracts/runs.ts'
import { call } from '../api.ts'
import { Link } from '../parts/link.tsx'
import { Outside } from '../parts/elements.tsx'

/** Further runs are read when fewer than this number of rows follow the visible ones. */
const READ_AHEAD = 100

/** Shows the list of runs. The address contains all filters and the order, so a link shows the same list. */
export function RunsPage() {
  const { query, wrong } = runQuery(useQueryText())
  const text = query.toString()
  return <RunList key={text} query={query} wrong={wrong} text={text} />
}

interface RunListProps extends RunQuery {
  readonly text: string
}

function RunList({ query, wrong, text }: RunListProps) {
  const [visible, setVisible] = useState<VisibleRows>({ first: 0, last: 0 })
  const [selected, setSelected] = useState<ReadonlyMap<string, ListedRun>>(new Map())
  const list = useRunList(text, visible)
  const process = query.get('process')
  const { rows, hasMore, newCount, hasFailedToReadMore, readMore, showNew } = list
  const isEndNear = hasMore && !hasFailedToReadMore && visible.last > rows.length - READ_AHEAD
  useEffect(() => {
    if (isEndNear) readMore()
  })
  // While the list is empty, new runs are shown at once, because no row that a person reads can
  // move.
  const isFirst = rows.length === 0 && newCount > 0
  useEffect(() => {
    if (isFirst) void showNew()
  }, [isFirst, showNew])
  const select = useCallback((runs: readonly ListedRun[], isSelected: boolean): void => {
    setSelected((before) => {
      const after = new Map(before)
      for (const run of runs)
        if (isSelected) after.set(keyOf(run), run)
        else after.delete(keyOf(run))
      return after
    })
  }, [])
  return (
    <>
      <div className="title">
        <h1 tabIndex={-1}>Runs</h1>
        <QueueButton {...(process !== null && { process })} />
      </div>
      <Groups query={query} />
      <Filters query={query} view={list.view} />
      <FilterChips query={query} wrong={wrong} companies={list.companies} />
      <ReadProblem error={list.error} hasData={list.view !== undefined} />
      {rows.length > 0 && (
        <RunTable
          rows={rows}
          order={query.get('order') === 'updated' ? 'UpdatedAt' : 'CreatedAt'}
          hasMore={hasMore}
          companies={list.companies}
          selected={selected}
          onSelect={select}
          onVisible={setVisible}
        />
      )}
      {list.view !== undefined && rows.length === 0 && (
        <NoRuns query={query} companies={list.companies} />
      )}
      {list.isPending && list.error === null && <p className="muted">The runs are being read.</p>}
      {hasMore && (
        <div className="more">
          <button type="button" aria-disabled={list.isReading} onClick={readMore}>
            {list.isReading ? 'Reading…' : 'Show older runs'}
          </button>
        </div>
      )}
      <div className="floating">
        {newCount > 0 && rows.length > 0 && (
          <button
            type="button"
            className="pill"
            onClick={() => {
              setSelected(new Map())
              void showNew().then(() => window.scrollTo(0, 0))
            }}
          >
            ↑ {newCount} new
          </button>
        )}
        {selected.size > 0 && (
          <BulkBar
            query={query}
            processes={list.view?.Processes ?? []}
            runs={[...selected.values()]}
            onClear={() => setSelected(new Map())}
          />
        )}
      </div>
    </>
  )
}

/**
 * The maximum number of runs that are read to count them. The coordinator has no cheaper count: for each filter it runs
 * one statement, which reads a few rows for each run of the page.
 */
const MAX_COUNT = 20

interface NoRunsProps {
  readonly query: URLSearchParams
  readonly companies: ReadonlyMap<string, string>
}

/** Says why the list is empty: which filter hides how many runs, or how to queue the first run. */
function NoRuns({ query, companies }: NoRunsProps) {
  return (
    <section className="panel" aria-label="No runs">
      {filtersOf(query).size > 0 ? (
        <Hidden query={query} companies={companies} />
      ) : (
        <>
          <p>There are no runs yet. Queue one here, or with this command:</p>
          <p>
            <QueueCommand />
          </p>
          <div className="buttons">
            <QueueButton />
          </div>
        </>
      )}
    </section>
  )
}

/** For each filter, shows how many runs the list would have without this filter, or `20 or more`. */
function Hidden({ query, companies }: NoRunsProps) {
  const filters = removableFilters(query)
  const counts = useQueries({
    queries: filters.map(({ rest }) => ({
      queryKey: ['run-count', rest.toString()],
      queryFn: () => call<RunsView>('GET', `/runs?${withLimit(rest)}`),
    })),
  })
  const hidden = filters.flatMap((filter, index) => {
    const view = counts[index]?.data
    return view === undefined || view.Runs.length === 0
      ? []
      : [{ ...filter, count: view.Runs.length, isAll: view.Next === null }]
  })
  return (
    <>
      <p>
        No run matches. <Link to="/runs">Show all runs</Link>
      </p>
      {hidden.length > 0 && (
        <ul className="hidden-runs">
          {hidden.map(({ name, value, rest, count, isAll }) => (
            <li key={`${name} ${value}`}>
              <span>
                {count}
                {isAll ? '' : ' or more'} {count === 1 && isAll ? 'does' : 'do'} without “
                <Outside text={filterText(name, value, companies)} />”
              </span>
              <button
                type="button"
                onClick={() => goTo(rest.size === 0 ? '/runs' : `/runs?${rest}`)}
              >
                Remove it
              </button>
            </li>
          ))}
        </ul>
      )}
    </>
  )
}

function withLimit(query: URLSearchParams): URLSearchParams {
  const limited = new URLSearchParams(query)
  limited.set('limit', String(MAX_COUNT))
  return limited
}
