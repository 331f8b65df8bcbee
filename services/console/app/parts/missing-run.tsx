import { useQuery } from '@tanstack/react-query'
import type { ProcessesView } from '../../src/contracts/processes.ts'
import type { RunView } from '../../src/contracts/runs.ts'
import { runPage } from '../../src/isomorphic/pages.ts'
import { call, type Problem } from '../api.ts'
import { setQuery } from '../router.ts'
import { visible } from '../visible.ts'
import { Link } from './link.tsx'
import { ReadProblem } from './problem.tsx'
import { Outside } from './text.tsx'

export interface MissingRunProps {
  readonly process: string
  readonly id: string
  /** The number in the address; `null` for the latest run. */
  readonly number: string | null
  readonly error: Problem
}

/** Says that the run in the address does not exist, and which runs or processes exist. */
export function MissingRun({ process, id, number, error }: MissingRunProps) {
  const isOfUnknownProcess = error.code === 'process_not_found'
  const latest = useQuery({
    queryKey: ['run', process, id, null],
    queryFn: () => call<RunView>('GET', runPage(process, id)),
    enabled: number !== null && !isOfUnknownProcess,
    retry: false,
  })
  const processes = useQuery({
    queryKey: ['processes'],
    queryFn: () => call<ProcessesView>('GET', '/processes'),
    enabled: isOfUnknownProcess,
  })
  if (latest.data !== undefined) {
    const runs = latest.data.Runs.toReversed()
    return (
      <p className="failure" role="alert">
        No run {number} of <Outside text={id} />. There {runs.length === 1 ? 'is' : 'are'}{' '}
        {runs.map(({ ReplayID }, index) => (
          <span key={ReplayID}>
            {index > 0 && ', '}
            <Link to={runPage(process, id, ReplayID)}>{ReplayID}</Link>
          </span>
        ))}
        .
      </p>
    )
  }
  if (processes.data !== undefined)
    return (
      <p className="failure" role="alert">
        There is no process <Outside text={process} />.{' '}
        {processes.data.Processes.length > 0 && 'The loaded processes are: '}
        {processes.data.Processes.map(({ Process }, index) => (
          <span key={Process}>
            {index > 0 && ', '}
            <Link to={`/runs?process=${encodeURIComponent(Process)}`}>
              <Outside text={Process} />
            </Link>
          </span>
        ))}
      </p>
    )
  return <ReadProblem error={error} hasData={false} />
}

/** A chip for an invalid run number in the address. In this case, the page shows the latest run. */
export function WrongRun({ value }: { readonly value: string }) {
  return (
    <p>
      <button
        type="button"
        className="chip wrong outside"
        title="The page shows the latest run."
        onClick={() => {
          const next = new URLSearchParams(location.search)
          next.delete('run')
          setQuery(next)
        }}
      >
        <span className="unseen">Remove the wrong value </span>
        <span aria-hidden="true">✕</span> Run: <bdi>{visible(value)}</bdi> is not possible{' '}
        <span aria-hidden="true">×</span>
      </button>
    </p>
  )
}
