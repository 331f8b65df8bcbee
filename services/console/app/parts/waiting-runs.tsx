import type { RunsView } from '../../src/contracts/runs.ts'
import { counted } from '../../src/isomorphic/texts.ts'
import { runPage, withQuery } from '../../src/isomorphic/pages.ts'
import { Ago } from './ago.tsx'
import { Link } from './link.tsx'
import { ReadProblem } from './problem.tsx'
import { Outside, Panel } from './elements.tsx'
import { useRead } from '../reads.ts'

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
  const list = withQuery('/runs', {
    status: 'Waiting',
    waitingFor: [`ACC-${realm}`, `paused:${realm}`],
    children: true,
  })
  // The key begins with `runs`, so this query is repeated when the event stream reports changed runs.
  const { data, error } = useRead<RunsView>(['runs', 'of-company', realm], `${list}&limit=${SHOWN}`)
  const runs = data?.Runs ?? []
  // The list may be newer than the count, and may therefore contain more runs.
  const total = Math.max(count ?? 0, runs.length)
  return (
    <Panel title="Waiting runs">
      <ReadProblem error={error} hasData={data !== undefined} />
      {data !== undefined && runs.length === 0 && (
        <p className="muted">No run waits for this company.</p>
      )}
      {data !== undefined && runs.length > 0 && (
        <>
          <p>
            <Link to={list}>
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
                  <Link to={runPage(Process, TransactionID, ReplayID)} text={TransactionID} />{' '}
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
              <Link to={list}>Show the others</Link>
            </p>
          )}
        </>
      )}
    </Panel>
  )
}
