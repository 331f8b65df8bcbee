import { counted, numberText } from '../../src/isomorphic/texts.ts'
import { useRead } from '../reads.ts'
import { Fragment, useEffect } from 'react'
import type { ProcessPageView } from '../../src/contracts/processes.ts'
import type { RunsView } from '../../src/contracts/runs.ts'
import {
  deadLettersPage,
  processPage,
  runPage,
  scheduleFragment,
} from '../../src/isomorphic/pages.ts'
import { duration, full } from '../clock.ts'
import { useNow } from '../now.ts'
import { ActionButton } from '../parts/action-button.tsx'
import { Ago } from '../parts/ago.tsx'
import { useRole } from '../parts/blockable-button.tsx'
import { Until } from '../parts/company.tsx'
import { State } from '../parts/glyph.tsx'
import { JsonView } from '../parts/json-view.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { QueueButton } from '../parts/queue-button.tsx'
import { Pause, ResumeButton } from '../parts/pause.tsx'
import { RunStatus, shownStatus } from '../parts/run-status.tsx'
import { Fact, Outside, Panel, TableHead } from '../parts/elements.tsx'
import { usePageTitle } from '../attention.ts'
import { failureRate, runsOf, startsText } from '../process-texts.ts'
import { useFragment } from '../router.ts'
import { FAILED, IN_FLIGHT } from '../run-query.ts'
import { visible } from '../visible.ts'

type Schedule = ProcessPageView['Schedules'][number]

/** Shows a process: what starts it, its steps, limits, schedules and input, and its latest runs. */
export function ProcessPage({ process: name }: { readonly process: string }) {
  const { data, error } = useRead<ProcessPageView>(['processes', name], processPage(name))
  usePageTitle(visible(name))
  const fragment = useFragment()
  const isRead = data !== undefined
  useEffect(() => {
    const part = document.getElementById(fragment)
    if (!isRead || fragment === '' || part === null) return
    part.scrollIntoView()
    part.focus({ preventScroll: true })
  }, [fragment, isRead])
  return (
    <>
      <p className="crumbs">
        <Link to="/processes">Processes</Link>
      </p>
      <h1 tabIndex={-1} className="outside">
        <Outside text={name} />
      </h1>
      <ReadProblem error={error} hasData={isRead} />
      {isRead && <Parts view={data} />}
      <LatestRuns process={name} />
    </>
  )
}

function Parts({ view }: { readonly view: ProcessPageView }) {
  const { Process: process, Queues, Schedules } = view
  const unfinished = process.Versions?.Items.filter(({ Unfinished }) => Unfinished > 0) ?? []
  const versions = unfinished.some(({ Version }) => Version !== null) ? unfinished : []
  return (
    <>
      <ProcessState view={view} />
      <Panel title="Steps">
        {Queues.every(({ Due }) => Due === 0) ? (
          <p className="outside">
            {Queues.map(({ Step }, index) => (
              <Fragment key={Step}>
                {index > 0 && ' → '}
                <Outside text={Step} />
              </Fragment>
            ))}
          </p>
        ) : (
          <table>
            <TableHead columns={['Step', 'Due now', 'Oldest']} />
            <tbody>
              {Queues.map(({ Step, Due, OldestSeconds }) => (
                <tr key={Step}>
                  <td className="outside">
                    <Outside text={Step} />
                  </td>
                  <td>{Due === 0 ? '—' : numberText(Due)}</td>
                  <td>{Due === 0 ? '—' : duration(OldestSeconds)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Panel>
      {Schedules.length > 0 && (
        <Panel title="Schedules">
          <ul className="schedules">
            {Schedules.map((schedule) => (
              <li key={schedule.Name}>
                <SchedulePart schedule={schedule} />
              </li>
            ))}
          </ul>
        </Panel>
      )}
      <Panel title="Input">
        {process.Input === null ? (
          <p className="muted">The process accepts any data.</p>
        ) : (
          <details>
            <summary>JSON Schema of the initial data</summary>
            <JsonView text={JSON.stringify(process.Input)} />
          </details>
        )}
      </Panel>
      {versions.length > 0 && (
        <Panel title="Versions">
          <ul>
            {versions.map(({ Version, Unfinished }) => (
              <li key={Version} className="outside">
                <Outside text={Version ?? 'without a version'} />:{' '}
                {counted(Unfinished, 'unfinished run')}
              </li>
            ))}
          </ul>
        </Panel>
      )}
    </>
  )
}

function ProcessState({ view }: { readonly view: ProcessPageView }) {
  const { Process: process, Schedules: schedules, DeadLetters: letters } = view
  const { Process: name, Retry: retry, Concurrency: concurrency } = process
  const role = useRole()
  const counts = useNow()?.RunsOf.find(({ Process }) => Process === name)
  return (
    <section className="panel" aria-label="State">
      <p className="headline">
        {process.Paused ? <State tone="wait">Paused</State> : <State tone="good">Active</State>}
        {process.BuiltIn && <span className="muted">part of the coordinator</span>}
        {process.Version !== null && (
          <span className="muted">
            version <Outside text={process.Version} />
          </span>
        )}
      </p>
      <PauseLine of={process} />
      <div className="buttons">
        {process.Paused ? (
          <ResumeButton process={name} />
        ) : (
          <ActionButton
            verb="Pause"
            object={name}
            consequence="It accepts runs, but no step begins until it is resumed. Steps in flight end."
            reason="required"
            act={`${processPage(name)}/pause`}
            done={`${name} is paused.`}
          />
        )}
        {!process.BuiltIn && <QueueButton process={name} />}
        <Link to={runsOf(name, IN_FLIGHT)}>
          {counts === undefined ? 'Runs' : `${numberText(counts.InFlight)} in flight`}
        </Link>
        {counts !== undefined && counts.Waiting > 0 && (
          <Link to={runsOf(name, ['Waiting'])}>{numberText(counts.Waiting)} waiting</Link>
        )}
        {counts !== undefined && counts.Failed > 0 && (
          <Link to={runsOf(name, FAILED)}>{numberText(counts.Failed)} failed</Link>
        )}
        {role === undefined && (
          <Link to={deadLettersPage(name)}>
            {letters === 0 ? 'Dead letters' : counted(letters, 'dead letter')}
          </Link>
        )}
      </div>
      <dl className="figures">
        <Fact name="Started by">
          <Outside text={startsText(process, schedules)} />
        </Fact>
        {counts !== undefined && <Fact name="Last hour">{failureRate(counts.LastHour)}</Fact>}
        <Fact name="Attempts of a step">
          at most {retry.MaxAttempts}, with pauses of {duration(retry.BaseMs / 1_000)} to{' '}
          {duration(retry.CapMs / 1_000)}
        </Fact>
        <Fact name="Time limits">
          {duration(process.StepTimeoutSeconds)} for a step
          {process.DeadlineSeconds !== null && `, ${duration(process.DeadlineSeconds)} for a run`}
        </Fact>
        {concurrency !== null && (
          <Fact name="Runs at once">
            at most {numberText(concurrency)}
            {process.ConcurrencyByKey
              ? ' for each key'
              : process.ConcurrencyPerKey !== undefined &&
                `, ${numberText(process.ConcurrencyPerKey)} for each key`}
          </Fact>
        )}
        {process.RequireInternet && <Fact name="Internet">pauses while it cannot be reached</Fact>}
      </dl>
    </section>
  )
}

const SHOWN_RUNS = 10

function LatestRuns({ process }: { readonly process: string }) {
  // The key begins with `runs`, so this query is repeated when the event stream reports changed runs.
  const path = `${runsOf(process, [])}&limit=${SHOWN_RUNS}`
  const { data, error } = useRead<RunsView>(['runs', 'of-process', process], path)
  return (
    <Panel title="Latest runs">
      <ReadProblem error={error} hasData={data !== undefined} />
      {data?.Runs.length === 0 && <p className="muted">There is none yet.</p>}
      <ol className="changes">
        {data?.Runs.map((run) => (
          <li key={JSON.stringify([run.TransactionID, run.ReplayID])}>
            <Ago time={run.UpdatedAt} />
            <span>
              <RunStatus status={shownStatus(run)} />{' '}
              <Link
                to={runPage(process, run.TransactionID, run.ReplayID)}
                text={run.TransactionID}
              />{' '}
              <span className="muted">
                <Outside text={run.Why} />
              </span>
            </span>
          </li>
        ))}
      </ol>
      <p className="after">
        <Link to={runsOf(process, [])}>All runs</Link>
      </p>
    </Panel>
  )
}

/** Shows who paused a process or a schedule, since when it is paused, and why. */
const PauseLine = ({
  of: { Paused, PausedAt, PausedBy, Reason },
}: {
  readonly of: ProcessPageView['Process'] | Schedule
}) =>
  Paused && (
    <p className="outside">
      <Pause at={PausedAt} by={PausedBy} reason={Reason} />
    </p>
  )

function SchedulePart({ schedule }: { readonly schedule: Schedule }) {
  const { Process: process, Name: name } = schedule
  const path = `/schedules/${encodeURIComponent(process)}/${encodeURIComponent(name)}`
  const removed = schedule.RemovedAt === null ? undefined : 'The definition has no such schedule.'
  const [next] = schedule.NextTimes
  return (
    <article id={scheduleFragment(name)} tabIndex={-1} aria-label={visible(`${process} ${name}`)}>
      <p className="headline">
        {schedule.RemovedAt !== null ? (
          <State tone="quiet">Removed</State>
        ) : schedule.Paused ? (
          <State tone="wait">Paused</State>
        ) : (
          <State tone="good">Active</State>
        )}
        <strong className="outside">
          <Outside text={name} />
        </strong>
      </p>
      <PauseLine of={schedule} />
      <dl className="figures">
        <Fact name="Times">
          <code>
            <Outside text={schedule.Cron} />
          </code>{' '}
          <Outside text={schedule.TimeZone} />
        </Fact>
        <Fact name="Begins">
          {schedule.Each === 'company' ? 'a run for each company' : 'one run'}
        </Fact>
        <Fact name="Next">{next === undefined ? '—' : <Until time={next} past="now" />}</Fact>
        <Fact name="Last">
          {schedule.LastTime === null ? '—' : <Ago time={schedule.LastTime} />}
        </Fact>
        {schedule.LagSeconds > 60 && (
          <Fact name="Late by">
            <State tone="warn">{duration(schedule.LagSeconds)}</State>
          </Fact>
        )}
      </dl>
      <div className="buttons">
        {schedule.Paused ? (
          <ActionButton
            verb="Resume"
            blocked={removed}
            object={`${process} ${name}`}
            consequence="The schedule continues with its next time. Times during the pause are not made up for."
            reason="required"
            act={`${path}/resume`}
            done="The schedule is active again."
          />
        ) : (
          <ActionButton
            verb="Pause"
            blocked={removed}
            object={`${process} ${name}`}
            consequence="Its times begin no runs until it is resumed."
            reason="required"
            act={`${path}/pause`}
            done="The schedule is paused."
          />
        )}
        <ActionButton
          verb="Run now"
          blocked={removed}
          object={`${process} ${name}`}
          consequence={
            schedule.Each === 'company'
              ? 'A run begins for each connected company.'
              : 'One run begins now. The next times stay as they are.'
          }
          reason="required"
          act={`${path}/run`}
          done="The schedule has begun."
        />
        {next !== undefined && <span className="muted">next at {full(next)}</span>}
      </div>
    </article>
  )
}
