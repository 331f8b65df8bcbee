import { useQuery } from '@tanstack/react-query'
import type { RunsView } from '../../src/contracts/runs.ts'
import { counted } from '../../src/isomorphic/texts.ts'
import { runPage } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { Ago } from './ago.tsx'
import { Link } from './link.tsx'
import { ReadProblem } from './problem.tsx'
import { Outside } from './text.tsx'

const SHOWN = 5

interface WaitingRunsProps {
  readonly realm: string
  /** The number of waiting runs; `null` if the number is unknown. */
  readonly count: number | null
  /** Whether the runs of the company are paused. */
  readonly isPaused: boolean
}

/** Shows how many runs wait for a company, and the newest of them. */
export function WaitingRuns({ realm, count, isPaused }: WaitingRunsProps) {
  const query = new URLSearchParams([
    ['status', 'Waiting'],
    ['waitingFor', `ACC-${realm}`],
    ['waitingFor', `paused:${realm}`],
    ['children', 'true'],
  ]).toString()
  // The key begins with `runs`, so this query is repeated when the event stream reports changed runs.
  const { data, error } = useQuery({
    queryKey: ['runs', 'of-company', realm],
    queryFn: () => call<RunsView>('GET', `/runs?${query}&limit=${SHOWN}`),
    refetchInterval: ({ state }) => (state.status === 'error' ? 5_000 : false),
  })
  const runs = data?.Runs ?? []
  // The list may be newer than the count, and may therefore contain more runs.
  const total = Math.max(count ?? 0, runs.length)
  return (
    <section className="panel" aria-labelledby="waiting">
      <h2 id="waiting">Waiting runs</h2>
      <ReadProblem error={error} hasData={data !== undefined} />
      {data !== undefined && runs.length === 0 && (
        <p className="muted">No run waits for this company.</p>
      )}
      {data !== undefined && runs.length > 0 && (
        <>
          <p>
            <Link to={`/runs?${query}`}>
              {data.Next !== null && total === runs.length && 'More than '}
              {counted(total, 'run waits', 'runs wait')}
            </Link>{' '}
            for this company, and {total === 1 ? 'continues by itself' : 'continue by themselves'}{' '}
            when it {isPaused ? 'is resumed' : 'works again'}.
          </p>
          <ol className="changes">
            {runs.map(({ Process, TransactionID, ReplayID, StepName, UpdatedAt }) => (
              <li key={JSON.stringify([Process, TransactionID, ReplayID])}>
                <Ago time={UpdatedAt} />
                <span>
                  <Link to={runPage(Process, TransactionID, ReplayID)}>
                    <Outside text={TransactionID} />
                  </Link>{' '}
                  <span className="muted">
                    <Outside text={`${Process} · ${StepName}`} />
                    {ReplayID > 0 && ` · run ${ReplayID}`}
                  </span>
                </span>
              </li>
            ))}
          </ol>
          {total > runs.length && (
            <p className="muted">
              <Link to={`/runs?${query}`}>Show the others</Link>
            </p>
          )}
        </>
      )}
    </section>
  )
}
