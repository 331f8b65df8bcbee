import { useCallback, useEffect, useState } from 'react'
import type { SessionView } from '../../src/contracts/session.ts'
import { BulkBar } from '../parts/bulk-bar.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { QueueButton } from '../parts/queue-button.tsx'
import { NoRuns } from '../parts/no-runs.tsx'
import { FilterChips, Filters, Groups } from '../parts/run-filters.tsx'
import { RunTable } from '../parts/run-table.tsx'
import { useQueryText } from '../router.ts'
import { keyOf, type ListedRun, useRunList, type VisibleRows } from '../run-list.ts'
import { runQuery, type RunQuery } from '../run-query.ts'

/** Further runs are read when fewer than this number of rows follow the visible ones. */
const READ_AHEAD = 100

/** Shows the list of runs. The address contains all filters and the order, so a link shows the same list. */
export function RunsPage({ session }: { readonly session: SessionView }) {
  const { query, wrong } = runQuery(useQueryText())
  const text = query.toString()
  return <RunList key={text} session={session} query={query} wrong={wrong} text={text} />
}

interface RunListProps extends RunQuery {
  readonly session: SessionView
  readonly text: string
}

function RunList({ session, query, wrong, text }: RunListProps) {
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
        <QueueButton session={session} {...(process !== null && { process })} />
      </div>
      <Groups query={query} />
      <Filters query={query} view={list.view} />
      <FilterChips query={query} wrong={wrong} companies={list.companies} />
      <ReadProblem error={list.error} hasData={list.view !== undefined} />
      {rows.length > 0 && (
        <RunTable
          session={session}
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
        <NoRuns session={session} query={query} companies={list.companies} />
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
            session={session}
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
