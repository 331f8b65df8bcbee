import { useQueries } from '@tanstack/react-query'
import type { RunsView } from '../../src/contracts/runs.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { call } from '../api.ts'
import { goTo } from '../router.ts'
import { filtersOf, removableFilters } from '../run-query.ts'
import { Link } from './link.tsx'
import { QueueButton } from './queue-button.tsx'
import { QueueCommand } from './queue-command.tsx'
import { filterText } from './run-filters.tsx'
import { Outside } from './text.tsx'

/**
 * The maximum number of runs that are read to count them. The coordinator has no cheaper count: for each filter it runs
 * one statement, which reads a few rows for each run of the page.
 */
const MAX_COUNT = 20

export interface NoRunsProps {
  readonly session: SessionView
  readonly query: URLSearchParams
  readonly companies: ReadonlyMap<string, string>
}

/** Says why the list is empty: which filter hides how many runs, or how to queue the first run. */
export function NoRuns({ session, query, companies }: NoRunsProps) {
  return (
    <section className="panel" aria-label="No runs">
      {filtersOf(query).size > 0 ? (
        <Hidden query={query} companies={companies} />
      ) : (
        <>
          <p>There are no runs yet. Queue one here, or with this command:</p>
          <p>
            <QueueCommand session={session} />
          </p>
          <div className="buttons">
            <QueueButton session={session} />
          </div>
        </>
      )}
    </section>
  )
}

/** For each filter, shows how many runs the list would have without this filter, or `20 or more`. */
function Hidden({ query, companies }: Omit<NoRunsProps, 'session'>) {
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
