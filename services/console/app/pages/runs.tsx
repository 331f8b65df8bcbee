import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import type { FormEvent } from 'react'
import type { NowView } from '../../src/contracts/now.ts'
import type { RunRow, RunsView } from '../../src/contracts/runs.ts'
import { call } from '../api.ts'
import { Ago } from '../parts/ago.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { RunStatus } from '../parts/run-status.tsx'
import { Outside } from '../parts/text.tsx'
import { companyPage, goTo, runPage, setQuery, useQueryText } from '../router.ts'

const IN_FLIGHT = ['Queued', 'Running', 'Retrying', 'Waiting'] as const

/** The groups of runs above the list. Each one is a filter by status, and `inDoubt` one by its own. */
const GROUPS = [
  { name: 'All', statuses: [] },
  { name: 'In flight', statuses: IN_FLIGHT },
  { name: 'Failed', statuses: ['Failed'] },
  { name: 'Waiting', statuses: ['Waiting'] },
  { name: 'Retrying', statuses: ['Retrying'] },
  { name: 'Completed', statuses: ['Completed'] },
  { name: 'Cancelled', statuses: ['Cancelled'] },
] as const satisfies readonly { name: string; statuses: readonly RunRow['Status'][] }[]

const FIELDS = [
  { name: 'process', label: 'Process' },
  { name: 'step', label: 'Step' },
  { name: 'class', label: 'Error class' },
  { name: 'realm', label: 'Company' },
  { name: 'idPrefix', label: 'Id begins with' },
] as const

/** The list of runs. All filters are in the address, so that a link shows the same list. */
export function RunsPage() {
  const text = useQueryText()
  const query = new URLSearchParams(text)
  const runs = useInfiniteQuery({
    queryKey: ['runs', text],
    queryFn: ({ pageParam }) => {
      const page = new URLSearchParams(text)
      if (pageParam !== null) page.set('cursor', pageParam)
      return call<RunsView>('GET', `/runs?${page}`)
    },
    initialPageParam: null as string | null,
    getNextPageParam: ({ Next }) => Next,
    // While the coordinator is unavailable, no event announces a change.
    refetchInterval: ({ state }) => (state.status === 'error' ? 5_000 : false),
  })
  const rows = runs.data?.pages.flatMap(({ Runs }) => Runs) ?? []
  return (
    <>
      <h1 tabIndex={-1}>Runs</h1>
      <Groups query={query} />
      <Filters key={text} query={query} />
      <ReadProblem error={runs.error} hasData={runs.data !== undefined} />
      {rows.length > 0 && <RunTable rows={rows} />}
      {runs.isSuccess && rows.length === 0 && !runs.hasNextPage && (
        <NoRuns isFiltered={text !== ''} />
      )}
      {runs.isPending && runs.error === null && <p className="muted">The runs are being read.</p>}
      {runs.hasNextPage && (
        <div className="more">
          <button
            type="button"
            aria-disabled={runs.isFetchingNextPage}
            onClick={() => !runs.isFetchingNextPage && void runs.fetchNextPage()}
          >
            {runs.isFetchingNextPage ? 'Reading…' : 'Show older runs'}
          </button>
        </div>
      )}
    </>
  )
}

function Groups({ query }: { readonly query: URLSearchParams }) {
  const now = useQuery({ queryKey: ['now'], queryFn: () => call<NowView>('GET', '/now') })
  const chosen = query.getAll('status').join()
  const isInDoubt = query.get('inDoubt') === 'true'
  const addressOf = (statuses: readonly string[], inDoubt = false): string => {
    const other = new URLSearchParams(query)
    other.delete('status')
    other.delete('inDoubt')
    for (const status of statuses) other.append('status', status)
    if (inDoubt) other.set('inDoubt', 'true')
    return other.size === 0 ? '/runs' : `/runs?${other}`
  }
  const counts = query.has('process') ? null : (now.data?.Runs ?? null)
  return (
    <nav aria-label="Groups of runs" className="chips">
      {GROUPS.map(({ name, statuses }) => {
        const count = statuses.reduce((sum, status) => sum + (counts?.[status] ?? 0), 0)
        return (
          <Link
            key={name}
            to={addressOf(statuses)}
            isCurrent={!isInDoubt && chosen === statuses.join()}
          >
            {name}
            {count > 0 && name !== 'Completed' && <span className="muted"> {count}</span>}
          </Link>
        )
      })}
      <Link to={addressOf([], true)} isCurrent={isInDoubt}>
        In doubt
      </Link>
    </nav>
  )
}

function Filters({ query }: { readonly query: URLSearchParams }) {
  const submit = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault()
    const form = new FormData(event.currentTarget)
    const next = new URLSearchParams(query)
    for (const { name } of FIELDS) {
      const value = form.get(name)
      if (typeof value === 'string' && value.trim() !== '') next.set(name, value.trim())
      else next.delete(name)
    }
    setQuery(next)
  }
  return (
    <form className="filters" onSubmit={submit} aria-label="Filter">
      {FIELDS.map(({ name, label }) => (
        <label key={name}>
          {label}
          <input name={name} defaultValue={query.get(name) ?? ''} autoComplete="off" />
        </label>
      ))}
      <div className="buttons">
        <button type="submit">Filter</button>
        {query.size > 0 && (
          <button type="button" className="plain" onClick={() => goTo('/runs')}>
            Remove all filters
          </button>
        )}
      </div>
    </form>
  )
}

function RunTable({ rows }: { readonly rows: readonly RunRow[] }) {
  return (
    <div className="panel flush">
      <table>
        <thead>
          <tr>
            <th scope="col" className="narrow">
              Status
            </th>
            <th scope="col">Transaction</th>
            <th scope="col" className="wide">
              Why
            </th>
            <th scope="col" className="wider">
              Company
            </th>
            <th scope="col" className="narrow">
              Changed
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((run) => (
            <tr key={`${run.Process}/${run.TransactionID}/${run.ReplayID}`}>
              <td>
                <RunStatus status={run.Status} />
                {run.InDoubt && <div className="tone-warn">? in doubt</div>}
              </td>
              <td className="outside">
                <Link to={runPage(run.Process, run.TransactionID, run.ReplayID)}>
                  <Outside text={run.TransactionID} />
                </Link>
                <div className="muted">
                  <Outside text={run.Process} /> · <Outside text={run.StepName} />
                  {run.ReplayID > 0 && ` · run ${run.ReplayID}`}
                </div>
              </td>
              <td className="wide outside">
                <Outside text={run.Why} />
              </td>
              <td className="wider outside">
                {run.Realm === null ? (
                  '—'
                ) : (
                  <Link to={companyPage(run.Realm)}>
                    <Outside text={run.Realm} />
                  </Link>
                )}
              </td>
              <td>
                <Ago time={run.UpdatedAt} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function NoRuns({ isFiltered }: { readonly isFiltered: boolean }) {
  return (
    <section className="panel" aria-label="No runs">
      {isFiltered ? (
        <p>
          No run matches these filters. <Link to="/runs">Show all runs</Link>
        </p>
      ) : (
        <>
          <p>There are no runs yet. This command queues one:</p>
          <p>
            <code>npx integration-host transactions queue 1 --process OrderProcess --data 1</code>
          </p>
        </>
      )}
    </section>
  )
}
