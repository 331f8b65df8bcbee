import { useEffect } from 'react'
import type { RunView } from '../../src/contracts/runs.ts'
import { asksAgain } from '../../src/isomorphic/texts.ts'
import { entriesPage, runPage, withQuery } from '../../src/isomorphic/pages.ts'
import { Problem } from '../api.ts'
import { full, remaining, useSeconds } from '../clock.ts'
import { usePageTitle } from '../attention.ts'
import { Ago } from '../parts/ago.tsx'
import { EntryTable } from '../parts/entry-table.tsx'
import { Link } from '../parts/link.tsx'
import { Chip } from '../parts/filters.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { RunActions } from '../parts/run-actions.tsx'
import { RunAttempts, RunSteps } from '../parts/run-attempts.tsx'
import { RunData } from '../parts/run-data.tsx'
import { RunDecision } from '../parts/run-decision.tsx'
import { RunFacts, RunHistory } from '../parts/run-facts.tsx'
import { lookOf, RunStatus, shownStatus } from '../parts/run-status.tsx'
import { Commas, Outside, Panel } from '../parts/elements.tsx'
import { Timeline } from '../parts/timeline.tsx'
import { setQuery, useFragment, useQueryText } from '../router.ts'
import { visible } from '../visible.ts'
import { placeOf } from '../waterfall.ts'
import type { ProcessesView } from '../../src/contracts/processes.ts'
import { useRead } from '../reads.ts'

export interface RunPageProps {
  readonly process: string
  readonly id: string
}

/** Shows one run: the reason of its state, the remedy, and what has happened so far. */
export function RunPage({ process, id }: RunPageProps) {
  const wanted = new URLSearchParams(useQueryText()).get('run')
  const number = wanted !== null && /^\d{1,10}$/.test(wanted) ? wanted : null
  const path = runPage(process, id)
  const { data: run, error } = useRead<RunView>(
    ['run', process, id, number],
    withQuery(path, { run: number }),
  )
  usePageTitle(
    run === undefined
      ? null
      : `${lookOf(shownStatus(run)).glyph} ${visible(id)} · ${visible(process)}`,
  )
  return (
    <>
      <p className="crumbs">
        <Link to="/runs">Runs</Link> ·{' '}
        <Link to={`/runs?process=${encodeURIComponent(process)}`} text={process} />
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
      {run !== undefined && <Run run={run} />}
    </>
  )
}

interface RunProps {
  readonly run: RunView
}

function Run({ run }: RunProps) {
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
        {run.Decision !== null && <RunDecision run={run} decision={run.Decision} />}
        <RunActions run={run} />
        <RunFacts run={run} />
      </section>
      <Parts run={run} />
      <Panel title="Timeline" id="timeline">
        <Timeline run={run} />
      </Panel>
      <Panel title="Steps" id="steps">
        <RunSteps run={run} />
      </Panel>
      <RunEntries run={run} />
      <RunAttempts run={run} />
      <RunData run={run} />
      <Panel title="Actions on this run" id="history">
        <RunHistory run={run} />
      </Panel>
    </>
  )
}

/** Shows what the runs of the transaction have written to the books. */
function RunEntries({ run }: RunProps) {
  if (run.Entries.length === 0) return null
  return (
    <Panel title="Entries" id="entries">
      <EntryTable entries={run.Entries} />
      <p className="links after">
        <Link to={entriesPage({ process: run.Process, transaction: run.TransactionID })}>
          All entries of this transaction
        </Link>
      </p>
    </Panel>
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
function Parts({ run }: RunProps) {
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

interface MissingRunProps {
  readonly process: string
  readonly id: string
  /** The number in the address; `null` for the latest run. */
  readonly number: string | null
  readonly error: Problem
}

/** Says that the run in the address does not exist, and which runs or processes exist. */
function MissingRun({ process, id, number, error }: MissingRunProps) {
  const isOfUnknownProcess = error.code === 'process_not_found'
  const latest = useRead<RunView>(['run', process, id, null], runPage(process, id), {
    enabled: number !== null && !isOfUnknownProcess,
    retry: false,
  })
  const processes = useRead<ProcessesView>(['processes'], '/processes', {
    enabled: isOfUnknownProcess,
  })
  if (latest.data !== undefined) {
    const runs = latest.data.Runs.toReversed()
    return (
      <p className="failure" role="alert">
        No run {number} of <Outside text={id} />. There {runs.length === 1 ? 'is' : 'are'}{' '}
        <Commas>
          {runs.map(({ ReplayID }) => (
            <Link key={ReplayID} to={runPage(process, id, ReplayID)}>
              {ReplayID}
            </Link>
          ))}
        </Commas>
        .
      </p>
    )
  }
  if (processes.data !== undefined)
    return (
      <p className="failure" role="alert">
        There is no process <Outside text={process} />.{' '}
        {processes.data.Processes.length > 0 && 'The loaded processes are: '}
        <Commas>
          {processes.data.Processes.map(({ Process }) => (
            <Link key={Process} to={withQuery('/runs', { process: Process })} text={Process} />
          ))}
        </Commas>
      </p>
    )
  return <ReadProblem error={error} hasData={false} />
}

/** A chip for an invalid run number in the address. In this case, the page shows the latest run. */
function WrongRun({ value }: { readonly value: string }) {
  return (
    <p>
      <Chip
        wrong="The page shows the latest run."
        onRemove={() => {
          const next = new URLSearchParams(location.search)
          next.delete('run')
          setQuery(next)
        }}
      >
        Run: <Outside text={value} />
      </Chip>
    </p>
  )
}
