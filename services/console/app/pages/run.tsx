import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import type {
  ActedRun,
  Excerpt,
  RunAction,
  RunDataView,
  RunView,
} from '../../src/contracts/runs.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { call } from '../api.ts'
import { fullMs, remaining, timeMs, useSeconds } from '../clock.ts'
import { ActionButton, reasonOf } from '../parts/action-button.tsx'
import { Ago } from '../parts/ago.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { RunStatus } from '../parts/run-status.tsx'
import { Outside } from '../parts/text.tsx'
import { exact, Timeline } from '../parts/timeline.tsx'
import { companyPage, goTo, runPage, useQueryText } from '../router.ts'

export interface RunPageProps {
  readonly session: SessionView
  readonly process: string
  readonly id: string
}

const apiPath = ({ process, id }: RunPageProps): string =>
  `/runs/${encodeURIComponent(process)}/${encodeURIComponent(id)}`

/** One run: why it is in its state, what helps, and what has happened so far. */
export function RunPage(props: RunPageProps) {
  const { session, process, id } = props
  const number = new URLSearchParams(useQueryText()).get('run')
  const { data: run, error } = useQuery({
    queryKey: ['run', process, id, number],
    queryFn: () => call<RunView>('GET', apiPath(props) + (number === null ? '' : `?run=${number}`)),
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
      <ReadProblem error={error} hasData={run !== undefined} />
      {run !== undefined && <Run {...props} session={session} run={run} />}
    </>
  )
}

function Run(props: RunPageProps & { readonly run: RunView }) {
  const { run, session } = props
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
            <Outside text={run.LastError} />
          </p>
        )}
        <Actions {...props} />
        <Facts run={run} />
      </section>
      <section className="panel" aria-labelledby="timeline">
        <h2 id="timeline">Timeline</h2>
        <Timeline run={run} />
      </section>
      <section className="panel" aria-labelledby="steps">
        <h2 id="steps">Steps</h2>
        <Steps run={run} />
      </section>
      <Attempts run={run} />
      {session.Role === 'operator' && <Data {...props} />}
      <section className="panel" aria-labelledby="history">
        <h2 id="history">Actions of persons</h2>
        <History run={run} />
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

/** What each action does, for its confirmation. */
function consequenceOf(action: RunAction, run: RunView): string {
  const doubt = run.InDoubt
    ? ' The last call may have done its work: look into the target first.'
    : ''
  switch (action) {
    case 'resume':
      return `The run continues at ${run.StepName} with the same idempotency keys. A target that knows them does nothing twice.${doubt}`
    case 'retry':
      return `The run does not wait any longer: ${run.StepName} is due now.`
    case 'replay':
      return 'A new run begins with new idempotency keys, so that calls are made again that were already completed.'
    case 'settle':
      return `You say whether ${run.StepName} has done its work. If it has, the next step follows; if not, it is run again.`
    case 'cancel':
      return 'The run ends. A call in flight is aborted, and may nevertheless have done its work.'
  }
}

const ACTIONS = [
  { action: 'resume', verb: 'Resume', done: 'The run continues.' },
  { action: 'retry', verb: 'Retry now', done: 'The step is due now.' },
  { action: 'replay', verb: 'Replay', done: 'A new run has begun.' },
  { action: 'settle', verb: 'Settle', done: 'The doubt is settled.' },
  { action: 'cancel', verb: 'Cancel run', done: 'The run is cancelled.' },
] as const satisfies readonly { action: RunAction; verb: string; done: string }[]

function Actions(props: RunPageProps & { readonly run: RunView }) {
  const { run, session, process, id } = props
  const completed = run.Items.filter(({ Status }) => Status === 'Completed' || Status === 'Copied')
  const act = async (action: RunAction, form: FormData, key: string): Promise<void> => {
    const fromStep = form.get('fromStep')
    const outcome = form.get('outcome')
    const body = {
      Run: run.ReplayID,
      Version: run.Version,
      ...reasonOf(form),
      ...(typeof fromStep === 'string' && fromStep !== '' && { FromStep: fromStep }),
      ...(outcome !== null && { Outcome: outcome }),
    }
    // The same action on a newer version of the run is another request.
    const path = `${apiPath(props)}/${action}`
    const acted = await call<ActedRun>('POST', path, body, `${key}.${run.Version}`)
    if (action === 'replay') goTo(runPage(process, id, acted.ReplayID))
  }
  return (
    <div className="buttons">
      {ACTIONS.filter(({ action }) => action !== 'settle' || run.InDoubt).map(
        ({ action, verb, done }) => (
          <ActionButton
            key={action}
            verb={verb}
            blocked={
              session.Role === 'operator' ? run.Blocked[action] : 'This needs the role operator.'
            }
            object={`${id}, run ${run.ReplayID}`}
            consequence={consequenceOf(action, run)}
            reason={action === 'settle' ? 'required' : 'optional'}
            act={(form, key) => act(action, form, key)}
            done={done}
          >
            {action === 'replay' && completed.length > 0 && (
              <label>
                Begin with
                <select name="fromStep" defaultValue="">
                  <option value="">the first step</option>
                  {run.Steps.filter((_, index) =>
                    run.Steps.slice(0, index).every((before) =>
                      completed.some(({ StepName }) => StepName === before),
                    ),
                  )
                    .slice(1)
                    .map((step) => (
                      <option key={step} value={step}>
                        {step}
                      </option>
                    ))}
                </select>
              </label>
            )}
            {action === 'settle' && (
              <fieldset>
                <legend>Has the step done its work?</legend>
                <label>
                  <input type="radio" name="outcome" value="done" required /> Yes, it is done
                </label>
                <label>
                  <input type="radio" name="outcome" value="not_done" required /> No, run it again
                </label>
              </fieldset>
            )}
          </ActionButton>
        ),
      )}
    </div>
  )
}

function Facts({ run }: { readonly run: RunView }) {
  const ended = run.CompletedAt
  return (
    <dl className="figures">
      <div>
        <dt>Run</dt>
        <dd>
          {run.Runs.map(({ ReplayID }, index) => (
            <span key={ReplayID}>
              {index > 0 && ', '}
              {ReplayID === run.ReplayID ? (
                <strong>{ReplayID}</strong>
              ) : (
                <Link to={runPage(run.Process, run.TransactionID, ReplayID)}>{ReplayID}</Link>
              )}
            </span>
          ))}
        </dd>
      </div>
      <div>
        <dt>Company</dt>
        <dd>
          {run.Realm === null ? (
            '—'
          ) : (
            <Link to={companyPage(run.Realm)}>
              <Outside text={run.Realm} />
            </Link>
          )}
        </dd>
      </div>
      <div>
        <dt>Queued</dt>
        <dd>{fullMs(run.CreatedAt)}</dd>
      </div>
      <div>
        <dt>Ended</dt>
        <dd>
          {ended === null
            ? '—'
            : `${fullMs(ended)} (${exact(Date.parse(ended) - Date.parse(run.CreatedAt))})`}
        </dd>
      </div>
      {run.DefinitionVersion !== null && (
        <div>
          <dt>Version of the process</dt>
          <dd>
            <Outside text={run.DefinitionVersion} />
          </dd>
        </div>
      )}
      {Object.entries(run.Tags ?? {}).map(([name, value]) => (
        <div key={name}>
          <dt>
            <Outside text={name} />
          </dt>
          <dd className="outside">
            <Outside text={value} />
          </dd>
        </div>
      ))}
    </dl>
  )
}

function Steps({ run }: { readonly run: RunView }) {
  const steps = [...new Set([...run.Steps, ...run.Items.map(({ StepName }) => StepName)])]
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">Step</th>
          <th scope="col">State</th>
          <th scope="col" className="narrow">
            Attempts
          </th>
          <th scope="col" className="wide">
            Idempotency key
          </th>
        </tr>
      </thead>
      <tbody>
        {steps.map((step) => {
          const item = run.Items.find(({ StepName }) => StepName === step)
          return (
            <tr key={step}>
              <td className="outside">
                <Outside text={step} />
              </td>
              <td className="outside">
                {item === undefined ? (
                  <span className="muted">not reached</span>
                ) : item.Status === 'InDoubt' || item.Status === 'Copied' ? (
                  { InDoubt: '? In doubt', Copied: 'Copied from the run before' }[item.Status]
                ) : (
                  <RunStatus status={item.Status} />
                )}
                {item !== undefined && item.ResponseStatus !== null && (
                  <span className="muted"> · response {item.ResponseStatus}</span>
                )}
              </td>
              <td>{item?.Attempt ?? 0}</td>
              <td className="wide outside">
                {item !== undefined && (
                  <code>
                    <Outside text={item.IdempotencyKey} />
                  </code>
                )}
              </td>
            </tr>
          )
        })}
      </tbody>
    </table>
  )
}

function Attempts({ run }: { readonly run: RunView }) {
  const { Attempts: attempts, AttemptCount: count } = run
  if (count === 0) return null
  return (
    <section className="panel" aria-labelledby="attempts">
      <h2 id="attempts">Attempts</h2>
      {count > attempts.length && (
        <p className="muted">
          The newest {attempts.length} of {count} attempts.
        </p>
      )}
      <table>
        <thead>
          <tr>
            <th scope="col">Attempt</th>
            <th scope="col">Outcome</th>
            <th scope="col" className="wide">
              Call
            </th>
            <th scope="col" className="narrow">
              Began
            </th>
          </tr>
        </thead>
        <tbody>
          {attempts.toReversed().map((attempt) => (
            <tr key={`${attempt.StepName} ${attempt.Attempt} ${attempt.StartedAt}`}>
              <td className="outside">
                <Outside text={attempt.StepName} /> {attempt.Attempt}
              </td>
              <td className="outside">
                <Outside text={attempt.Outcome} />
                {attempt.ResponseStatus !== null &&
                  attempt.Outcome !== `http_${attempt.ResponseStatus}` &&
                  ` · ${attempt.ResponseStatus}`}
                {attempt.Error !== null && (
                  <div className="muted">
                    <Outside text={attempt.Error} />
                  </div>
                )}
              </td>
              <td className="wide outside">
                {attempt.Request !== null && (
                  <Outside text={`${attempt.Request.Method} ${attempt.Request.Url}`} />
                )}
                {attempt.ResponseId !== null && (
                  <div className="muted">
                    response id <Outside text={attempt.ResponseId} />
                  </div>
                )}
                {attempt.TraceId !== null && (
                  <div className="muted">
                    trace <Outside text={attempt.TraceId} />
                  </div>
                )}
              </td>
              <td>
                <time dateTime={attempt.StartedAt} title={fullMs(attempt.StartedAt)}>
                  {timeMs(attempt.StartedAt)}
                </time>
                {attempt.FinishedAt !== null && (
                  <div className="muted">
                    {exact(Date.parse(attempt.FinishedAt) - Date.parse(attempt.StartedAt))}
                  </div>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

/** The business data of the run, which is read only when the person wants to see it. */
function Data(props: RunPageProps & { readonly run: RunView }) {
  const { run, process, id } = props
  const [isShown, setShown] = useState(false)
  const data = useQuery({
    queryKey: ['run', process, id, String(run.ReplayID), 'data', run.Version],
    queryFn: () => call<RunDataView>('GET', `${apiPath(props)}/data?run=${run.ReplayID}`),
    enabled: isShown,
  })
  return (
    <section className="panel" aria-labelledby="data">
      <h2 id="data">Data</h2>
      {!isShown && (
        <>
          <p className="muted">The initial data of the run, and the responses of its steps.</p>
          <div className="buttons">
            <button type="button" onClick={() => setShown(true)}>
              Show data
            </button>
          </div>
        </>
      )}
      <ReadProblem error={data.error} hasData={data.data !== undefined} />
      {data.data !== undefined && (
        <>
          <Text name="Initial data" excerpt={data.data.InitialData} />
          {data.data.Items.map(({ StepName, Data: item, ResponseBody }) => (
            <div key={StepName}>
              <Text name={`Data of ${StepName}`} excerpt={item} />
              <Text name={`Response of ${StepName}`} excerpt={ResponseBody} />
            </div>
          ))}
        </>
      )}
    </section>
  )
}

function Text({ name, excerpt }: { readonly name: string; readonly excerpt: Excerpt }) {
  if (excerpt === null) return null
  return (
    <details className="text" open>
      <summary>
        <Outside text={name} />
      </summary>
      <pre>
        <Outside text={excerpt.Text} />
      </pre>
      {!excerpt.IsWhole && <p className="muted">The text is longer; this is its beginning.</p>}
    </details>
  )
}

function History({ run }: { readonly run: RunView }) {
  if (run.History.length === 0) return <p className="muted">None.</p>
  return (
    <ol className="changes">
      {run.History.map((action) => (
        <li key={action.ID}>
          <Ago time={action.At} />
          <span>
            <strong>
              <Outside text={action.Person ?? action.KeyID} />
            </strong>{' '}
            {action.Action.replaceAll('_', ' ')}
            {action.ReplayID !== null && ` run ${action.ReplayID}`}
            {action.Outcome !== 'done' && ` (${action.Outcome})`}
            {action.Reason !== null && (
              <span className="muted">
                {' '}
                “<Outside text={action.Reason} />”
              </span>
            )}
          </span>
        </li>
      ))}
    </ol>
  )
}
