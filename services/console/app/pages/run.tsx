import { useQuery } from '@tanstack/react-query'
import { useEffect } from 'react'
import type { RunView } from '../../src/contracts/runs.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { asksAgain } from '../../src/isomorphic/texts.ts'
import { entriesPage, runPage } from '../../src/isomorphic/pages.ts'
import { call, Problem } from '../api.ts'
import { full, remaining, useSeconds } from '../clock.ts'
import { usePageTitle } from '../page-title.ts'
import { Ago } from '../parts/ago.tsx'
import { EntryTable } from '../parts/entry-table.tsx'
import { Link } from '../parts/link.tsx'
import { MissingRun, WrongRun } from '../parts/missing-run.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { RunActions, type RunActionsProps } from '../parts/run-actions.tsx'
import { RunAttempts, RunSteps } from '../parts/run-attempts.tsx'
import { RunData } from '../parts/run-data.tsx'
import { RunDecision } from '../parts/run-decision.tsx'
import { RunFacts, RunHistory } from '../parts/run-facts.tsx'
import { lookOf, RunStatus, shownStatus } from '../parts/run-status.tsx'
import { Outside } from '../parts/text.tsx'
import { Timeline } from '../parts/timeline.tsx'
import { useFragment, useQueryText } from '../router.ts'
import { visible } from '../visible.ts'
import { placeOf } from '../waterfall.ts'

export interface RunPageProps {
  readonly session: SessionView
  readonly process: string
  readonly id: string
}

/** Shows one run: the reason of its state, the remedy, and what has happened so far. */
export function RunPage({ session, process, id }: RunPageProps) {
  const wanted = new URLSearchParams(useQueryText()).get('run')
  const number = wanted !== null && /^\d{1,10}$/.test(wanted) ? wanted : null
  const { data: run, error } = useQuery({
    queryKey: ['run', process, id, number],
    queryFn: () =>
      call<RunView>('GET', runPage(process, id) + (number === null ? '' : `?run=${number}`)),
    refetchInterval: ({ state }) => (state.status === 'error' ? 5_000 : false),
  })
  usePageTitle(
    run === undefined
      ? null
      : `${lookOf(shownStatus(run)).glyph} ${visible(id)} · ${visible(process)}`,
  )
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
      {wanted !== number && <WrongRun value={wanted ?? ''} />}
      {run === undefined && error instanceof Problem && error.status === 404 ? (
        <MissingRun process={process} id={id} number={number} error={error} />
      ) : (
        <ReadProblem error={error} hasData={run !== undefined} />
      )}
      {run !== undefined && <Run session={session} run={run} />}
    </>
  )
}

function Run({ run, session }: RunActionsProps) {
  return (
    <>
      <section className="panel" aria-label="State">
        <p className="headline">
          <RunStatus status={shownStatus(run)} />
          <span className="muted">
            {run.CompletedAt === null && 'changed '}
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
        {run.Decision !== null && (
          <RunDecision session={session} run={run} decision={run.Decision} />
        )}
        <RunActions session={session} run={run} />
        <RunFacts run={run} />
      </section>
      <Parts run={run} />
      <section className="panel" id="timeline" aria-labelledby="timeline-title">
        <h2 id="timeline-title">Timeline</h2>
        <Timeline run={run} />
      </section>
      <section className="panel" id="steps" aria-labelledby="steps-title">
        <h2 id="steps-title">Steps</h2>
        <RunSteps run={run} />
      </section>
      <RunEntries run={run} />
      <RunAttempts run={run} tracesUrl={session.TracesUrl} />
      <RunData session={session} run={run} />
      <section className="panel" id="history" aria-labelledby="history-title">
        <h2 id="history-title">Actions on this run</h2>
        <RunHistory run={run} />
      </section>
    </>
  )
}

/** Shows what the runs of the transaction have written to the books. */
function RunEntries({ run }: Pick<RunActionsProps, 'run'>) {
  if (run.Entries.length === 0) return null
  return (
    <section className="panel" id="entries" aria-labelledby="entries-title">
      <h2 id="entries-title">Entries</h2>
      <EntryTable entries={run.Entries} />
      <p className="links after">
        <Link to={entriesPage({ process: run.Process, transaction: run.TransactionID })}>
          All entries of this transaction
        </Link>
      </p>
    </section>
  )
}

const PARTS = [
  { id: 'timeline', name: 'Timeline' },
  { id: 'steps', name: 'Steps' },
  { id: 'entries', name: 'Entries' },
  { id: 'attempts', name: 'Attempts' },
  { id: 'data', name: 'Data' },
  { id: 'history', name: 'Actions on this run' },
] as const

/** Links to the parts of the page. The address contains the chosen part, so that a copied link opens the same part. */
function Parts({ run }: Pick<RunActionsProps, 'run'>) {
  const fragment = useFragment()
  useEffect(() => {
    // The browser looked for the part of the page before the run was read, so it has not scrolled to the part.
    if (fragment !== '') document.getElementById(fragment)?.scrollIntoView()
    // Later changes of the fragment come from the links below, and the browser scrolls by itself.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [])
  const counts: Readonly<Record<string, number>> = {
    attempts: run.AttemptCount,
    entries: run.Entries.length,
  }
  const parts = PARTS.filter(({ id }) => counts[id] !== 0)
  return (
    <nav aria-label="Parts of this page" className="parts">
      {parts.map(({ id, name }) => (
        <a key={id} href={`#${id}`} aria-current={fragment === id ? 'location' : undefined}>
          {name}
          {counts[id] !== undefined && <span className="muted"> {counts[id]}</span>}
        </a>
      ))}
    </nav>
  )
}

/** What happens at `NextAttemptAt`. */
function nextText(run: RunView): string {
  if (asksAgain(run)) return 'asks again'
  if (placeOf(run) !== null) return 'timeout'
  return run.Status === 'Running' ? 'next round' : 'next attempt'
}

function NextAttempt({ run }: { readonly run: RunView }) {
  const seconds = useSeconds()
  const { NextAttemptAt, LeaseOwner, CompletedAt, Broken } = run
  // A run whose company must be reconnected continues at once after that, whenever its next attempt is due.
  if (CompletedAt !== null || Broken !== null) return null
  if (LeaseOwner !== null)
    return (
      <span className="muted">
        run by <Outside text={LeaseOwner} />
      </span>
    )
  if (NextAttemptAt === null) return null
  return (
    <span title={full(NextAttemptAt)}>
      {nextText(run)} {remaining(Date.parse(NextAttemptAt) / 1_000 - seconds)}
    </span>
  )
}
