import { useQuery } from '@tanstack/react-query'
import type { RunView } from '../../src/contracts/runs.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { call } from '../api.ts'
import { fullMs, remaining, useSeconds } from '../clock.ts'
import { notify } from '../notice.ts'
import { Ago } from '../parts/ago.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { RunActions, type RunActionsProps } from '../parts/run-actions.tsx'
import { RunAttempts, RunSteps } from '../parts/run-attempts.tsx'
import { RunData } from '../parts/run-data.tsx'
import { RunFacts, RunHistory } from '../parts/run-facts.tsx'
import { RunStatus } from '../parts/run-status.tsx'
import { Outside } from '../parts/text.tsx'
import { Timeline } from '../parts/timeline.tsx'
import { runApi, useQueryText } from '../router.ts'

export interface RunPageProps {
  readonly session: SessionView
  readonly process: string
  readonly id: string
}

/** Shows one run: the reason of its state, the remedy, and what has happened so far. */
export function RunPage({ session, process, id }: RunPageProps) {
  const number = new URLSearchParams(useQueryText()).get('run')
  const { data: run, error } = useQuery({
    queryKey: ['run', process, id, number],
    queryFn: () =>
      call<RunView>('GET', runApi(process, id) + (number === null ? '' : `?run=${number}`)),
    refetchInterval: ({ state }) => (state.status === 'error' ? 5_000 : false),
  })
  return (
    <>
      <p className="crumbs">
        <Link to="/runs">Runs</Link> ·{' '}
        <Link to={`/runs?process=${encodeURIComponent(process)}`}>
          <Outside text={process} />
        </Link>
      </p>
      <h1 tabIndex={-1} className="outside">
        <Outside text={id} />
      </h1>
      <p className="under-title">
        {/* The shown id may have code points in place of characters, so it cannot be selected and copied. */}
        <button
          type="button"
          className="plain"
          onClick={() =>
            void navigator.clipboard.writeText(id).then(() => notify('The id is copied.'))
          }
        >
          Copy id
        </button>
      </p>
      <ReadProblem error={error} hasData={run !== undefined} />
      {run !== undefined && <Run session={session} run={run} />}
    </>
  )
}

function Run({ run, session }: RunActionsProps) {
  return (
    <>
      <section className="panel" aria-label="State">
        <p className="headline">
          <RunStatus status={run.Status} />
          <span className="muted">
            <Ago time={run.UpdatedAt} />
          </span>
          <NextAttempt run={run} />
        </p>
        {run.Why !== '' && (
          <p className="outside">
            <Outside text={run.Why} />
          </p>
        )}
        {run.LastError !== null && (
          <p className="error outside">
            <Outside text={run.LastError} hasLines />
          </p>
        )}
        <RunActions session={session} run={run} />
        <RunFacts run={run} />
      </section>
      <section className="panel" aria-labelledby="timeline">
        <h2 id="timeline">Timeline</h2>
        <Timeline run={run} />
      </section>
      <section className="panel" aria-labelledby="steps">
        <h2 id="steps">Steps</h2>
        <RunSteps run={run} />
      </section>
      <RunAttempts run={run} tracesUrl={session.TracesUrl} />
      <RunData session={session} run={run} />
      <section className="panel" aria-labelledby="history">
        <h2 id="history">Actions of persons</h2>
        <RunHistory run={run} />
      </section>
    </>
  )
}

function NextAttempt({ run }: { readonly run: RunView }) {
  const seconds = useSeconds()
  const { NextAttemptAt, LeaseOwner, CompletedAt } = run
  if (CompletedAt !== null) return null
  if (LeaseOwner !== null)
    return (
      <span className="muted">
        run by <Outside text={LeaseOwner} />
      </span>
    )
  if (NextAttemptAt === null) return null
  return (
    <span title={fullMs(NextAttemptAt)}>
      next attempt {remaining(Date.parse(NextAttemptAt) / 1_000 - seconds)}
    </span>
  )
}
