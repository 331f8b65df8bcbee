import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useEffect } from 'react'
import type { ProcessesView } from '../../src/contracts/processes.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { counted, numberText } from '../../src/isomorphic/count-text.ts'
import { deadLettersPage, scheduleFragment } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { duration, full } from '../clock.ts'
import { useRunCounts } from '../now.ts'
import { ActionButton, reasonOf } from '../parts/action-button.tsx'
import { Ago } from '../parts/ago.tsx'
import { roleReason } from '../parts/blockable-button.tsx'
import { Until } from '../parts/company.tsx'
import { State } from '../parts/glyph.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { ResumeProcessButton } from '../parts/resume-process-button.tsx'
import { Outside } from '../parts/text.tsx'
import { useFragment } from '../router.ts'
import { IN_FLIGHT, type Status } from '../run-query.ts'
import { visible } from '../visible.ts'

type Process = ProcessesView['Processes'][number]
type Schedule = ProcessesView['Schedules'][number]

/** Shows the processes with their queues, and the schedules that start runs. */
export function ProcessesPage({ session }: { readonly session: SessionView }) {
  const { data, error } = useQuery({
    queryKey: ['processes'],
    queryFn: () => call<ProcessesView>('GET', '/processes'),
    refetchInterval: ({ state }) => (state.status === 'error' ? 5_000 : false),
  })
  const role = roleReason(session)
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
      <h1 tabIndex={-1}>Processes</h1>
      <ReadProblem error={error} hasData={data !== undefined} />
      {data !== undefined && (
        <>
          {data.NotLoaded.map(({ Process: name, Unfinished }) => (
            <section key={name} className="panel" aria-label={visible(name)}>
              <h2>
                <Outside text={name} />
              </h2>
              <p>
                <State tone="bad">Not loaded</State>
              </p>
              <p>
                No coordinator has loaded this process.{' '}
                {counted(Unfinished, 'unfinished run does', 'unfinished runs do')} not continue.
                Deploy its definition.
              </p>
            </section>
          ))}
          {data.Processes.map((process) => (
            <ProcessPanel key={process.Process} process={process} role={role} />
          ))}
          <section className="panel" aria-labelledby="schedules">
            <h2 id="schedules">Schedules</h2>
            {data.Schedules.length === 0 ? (
              <p className="muted">
                No process has a schedule. The member <code>schedules</code> of a definition begins
                runs at times.
              </p>
            ) : (
              <ul className="schedules">
                {data.Schedules.map((schedule) => (
                  <li key={`${schedule.Process} ${schedule.Name}`}>
                    <SchedulePart schedule={schedule} role={role} />
                  </li>
                ))}
              </ul>
            )}
          </section>
        </>
      )}
    </>
  )
}

interface Blockable {
  /** The reason why the person may not act; `undefined` if the person may act. */
  readonly role: string | undefined
}

function ProcessPanel({ process, role }: Blockable & { readonly process: Process }) {
  const { Process: name } = process
  const counts = useRunCounts(name)
  const path = `/processes/${encodeURIComponent(name)}`
  return (
    <section className="panel" aria-label={visible(name)}>
      <h2 className="outside">
        <Outside text={name} />
      </h2>
      <p className="headline">
        {process.Paused ? <State tone="wait">Paused</State> : <State tone="good">Runs</State>}
        {process.BuiltIn && <span className="muted">part of the coordinator</span>}
        {process.Version !== null && (
          <span className="muted">
            version <Outside text={process.Version} />
          </span>
        )}
      </p>
      <Pause of={process} />
      <table>
        <thead>
          <tr>
            <th scope="col">Step</th>
            <th scope="col">Due now</th>
            <th scope="col">Oldest</th>
          </tr>
        </thead>
        <tbody>
          {process.Queues.map(({ Step, Due, OldestSeconds }) => (
            <tr key={Step}>
              <td className="outside">
                <Outside text={Step} />
              </td>
              <td>{numberText(Due)}</td>
              <td>{Due === 0 ? '—' : duration(OldestSeconds)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <div className="buttons">
        {process.Paused ? (
          <ResumeProcessButton process={name} role={role} />
        ) : (
          <ActionButton
            verb="Pause"
            blocked={role}
            object={name}
            consequence="It accepts runs, but no step begins until it is resumed. Steps in flight end."
            reason="required"
            act={(form, key) => call('POST', `${path}/pause`, reasonOf(form), key)}
            done={`${name} is paused.`}
          />
        )}
        <Link to={runsOf(name, IN_FLIGHT)}>
          {counts === undefined ? 'Runs' : `${numberText(counts.InFlight)} in flight`}
        </Link>
        {counts !== undefined && counts.Waiting > 0 && (
          <Link to={runsOf(name, ['Waiting'])}>{numberText(counts.Waiting)} waiting</Link>
        )}
        {counts !== undefined && counts.Failed > 0 && (
          <Link to={runsOf(name, ['Failed'])}>{numberText(counts.Failed)} failed</Link>
        )}
        {role === undefined && (
          <Link to={deadLettersPage(name)}>
            {process.DeadLetters === 0
              ? 'Dead letters'
              : counted(process.DeadLetters, 'dead letter')}
          </Link>
        )}
      </div>
    </section>
  )
}

/** Returns the address of the list of runs, filtered by process and by these statuses of the runs. */
const runsOf = (process: string, statuses: readonly Status[]): string =>
  `/runs?${new URLSearchParams([['process', process], ...statuses.map((status) => ['status', status])]).toString()}`

/** Shows who paused a process or a schedule, since when it is paused, and why. */
function Pause({
  of: { Paused, PausedAt, PausedBy, Reason },
}: {
  readonly of: Process | Schedule
}) {
  if (!Paused) return null
  return (
    <p className="outside">
      {PausedAt !== null && <Ago time={PausedAt} prefix="for " />}
      {PausedBy !== null && (
        <>
          {' '}
          by <Outside text={PausedBy} />
        </>
      )}
      {Reason !== null && (
        <>
          : “<Outside text={Reason} />”
        </>
      )}
    </p>
  )
}

function SchedulePart({ schedule, role }: Blockable & { readonly schedule: Schedule }) {
  const { Process: process, Name: name } = schedule
  const path = `/schedules/${encodeURIComponent(process)}/${encodeURIComponent(name)}`
  const removed = schedule.RemovedAt === null ? undefined : 'The definition has no such schedule.'
  const [next] = schedule.NextTimes
  return (
    <article
      id={scheduleFragment(process, name)}
      tabIndex={-1}
      aria-label={visible(`${process} ${name}`)}
    >
      <p className="headline">
        {schedule.RemovedAt !== null ? (
          <State tone="quiet">Removed</State>
        ) : schedule.Paused ? (
          <State tone="wait">Paused</State>
        ) : (
          <State tone="good">Active</State>
        )}
        <strong className="outside">
          <Outside text={`${process} · ${name}`} />
        </strong>
      </p>
      <Pause of={schedule} />
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
            blocked={role ?? removed}
            object={`${process} ${name}`}
            consequence="The schedule continues with its next time. Times during the pause are not made up for."
            reason="required"
            act={(form, key) => call('POST', `${path}/resume`, reasonOf(form), key)}
            done="The schedule is active again."
          />
        ) : (
          <ActionButton
            verb="Pause"
            blocked={role ?? removed}
            object={`${process} ${name}`}
            consequence="Its times begin no runs until it is resumed."
            reason="required"
            act={(form, key) => call('POST', `${path}/pause`, reasonOf(form), key)}
            done="The schedule is paused."
          />
        )}
        <ActionButton
          verb="Run now"
          blocked={role ?? removed}
          object={`${process} ${name}`}
          consequence={
            schedule.Each === 'company'
              ? 'A run begins for each connected company.'
              : 'One run begins now. The next times stay as they are.'
          }
          reason="required"
          act={(form, key) => call('POST', `${path}/run`, reasonOf(form), key)}
          done="The schedule has begun."
        />
        {next !== undefined && <span className="muted">next at {full(next)}</span>}
      </div>
    </article>
  )
}

function Fact({ name, children }: { readonly name: string; readonly children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd className="outside">{children}</dd>
    </div>
  )
}
