import { keyName } from '../../src/isomorphic/texts.ts'
import { Fragment } from 'react'
import type { RunView } from '../../src/contracts/runs.ts'
import { type NumberedAttempt, numberedAttempts, withoutCall } from '../attempts.ts'
import { visible } from '../visible.ts'
import { fullMs, timeMs } from '../clock.ts'
import { EntryObject, EntryState, isFinding } from './entry-table.tsx'
import { RunStatus, shownStatus } from './run-status.tsx'
import { Outside, Panel, TableHead } from './elements.tsx'
import { exact } from './timeline.tsx'
import { useSession } from './blockable-button.tsx'

/** Shows the state of each step, even of a step that was not reached. */
export function RunSteps({ run }: { readonly run: RunView }) {
  const steps = [...new Set([...run.Steps, ...run.Items.map(({ StepName }) => StepName)])]
  const attempts = numberedAttempts(run)
  const findings = run.Entries.filter(
    (entry) => entry.ReplayID === run.ReplayID && isFinding(entry),
  )
  const isWhole = run.AttemptCount === run.Attempts.length
  return (
    <table>
      <TableHead columns={['Step', 'State', ['Attempts', 'narrow'], ['Idempotency key', 'wide']]} />
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
                  step === run.StepName && run.CompletedAt === null ? (
                    <RunStatus status={shownStatus(run)} />
                  ) : (
                    <span className="muted">not reached</span>
                  )
                ) : item.Status === 'InDoubt' || item.Status === 'Copied' ? (
                  { InDoubt: '? In doubt', Copied: 'Copied from the run before' }[item.Status]
                ) : (
                  <RunStatus status={item.Status} />
                )}
                {item?.Sender !== undefined && (
                  <span className="muted">
                    {' '}
                    · by <Outside text={senderText(item.Sender)} />
                    {item.Sender.Reason !== null && (
                      <>
                        : <Outside text={item.Sender.Reason} />
                      </>
                    )}
                  </span>
                )}
                {item !== undefined && item.ResponseStatus !== null && (
                  <span className="muted"> · response {item.ResponseStatus}</span>
                )}
                {item?.Round !== undefined && <span className="muted"> · round {item.Round}</span>}
                {findings
                  .filter(({ StepName }) => StepName === step)
                  .map((entry) => (
                    <div key={entry.EntryID}>
                      <EntryObject entry={entry} /> <EntryState entry={entry} />
                    </div>
                  ))}
                {item?.Report !== undefined && <ReportedProgress report={item.Report} />}
              </td>
              <td>
                {isWhole
                  ? attempts.filter(({ StepName }) => StepName === step).length
                  : (item?.Attempt ?? 0)}
              </td>
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

/** Shows the progress that a step has reported. */
function ReportedProgress({
  report: { Done, Of, Note },
}: {
  readonly report: NonNullable<RunView['Items'][number]['Report']>
}) {
  return (
    <div className="muted">
      {Done} of {Of}
      {Note !== null && (
        <>
          {' · '}
          <Outside text={Note} />
        </>
      )}
    </div>
  )
}

/** Shows the attempts of the run as a table, in the order of the steps. */
export function RunAttempts({ run }: { readonly run: RunView }) {
  const { AttemptCount: count } = run
  if (count === 0) return null
  const attempts = numberedAttempts(run)
  return (
    <Panel title="Attempts" id="attempts">
      {count > attempts.length && (
        <p className="muted">
          The newest {attempts.length} of {count} attempts.
        </p>
      )}
      {attempts.some(({ isCounted }) => !isCounted) && (
        <p className="muted">
          An attempt that is not counted, for example because of a cool-down, does not use up the
          attempts that the step may make.
        </p>
      )}
      <table>
        <TableHead
          columns={[['Attempt', 'narrow'], 'Outcome', ['Call', 'wide'], ['Began', 'time']]}
        />
        <tbody>
          {attempts.map((attempt, index) => (
            <tr key={`${attempt.StepName} ${attempt.number}`}>
              <td className="outside">
                <Outside text={attempt.StepName} /> {attempt.number}
                {!attempt.isCounted && <div className="muted">not counted</div>}
              </td>
              <td className="outside">
                <Outside text={attempt.Outcome} />
                {attempt.ResponseStatus !== null &&
                  attempt.Outcome !== `http_${attempt.ResponseStatus}` &&
                  ` · ${attempt.ResponseStatus}`}
                {attempt.Error !== null && (
                  <div className="muted">
                    <Outside text={withoutCall(attempt)} hasLines />
                  </div>
                )}
              </td>
              <td className="wide outside">
                {attempt.Request !== null && (
                  <Call request={attempt.Request} before={attempts[index - 1]?.Request ?? null} />
                )}
                {attempt.ResponseId !== null && (
                  <div className="muted">
                    response id <Outside text={attempt.ResponseId} />
                  </div>
                )}
                {attempt.TraceId !== null && (
                  <div className="muted">
                    trace <Trace id={attempt.TraceId} />
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
    </Panel>
  )
}

type Request = NonNullable<NumberedAttempt['Request']>

/** Shows a call by its path. The server is shown only if the call before went to another one. */
function Call({ request, before }: { readonly request: Request; readonly before: Request | null }) {
  const { origin, path } = partsOf(request)
  return (
    <span title={visible(request.Url)}>
      <Outside text={request.Method} />{' '}
      {path.split(/(?=\/)/).map((part, index) => (
        <Fragment key={index}>
          <wbr />
          <Outside text={part} />
        </Fragment>
      ))}
      {origin !== null && (before === null || partsOf(before).origin !== origin) && (
        <div className="muted">
          at <Outside text={origin} />
        </div>
      )}
    </span>
  )
}

function partsOf({ Url }: Request): { readonly origin: string | null; readonly path: string } {
  const url = URL.parse(Url)
  return url === null || url.origin === 'null'
    ? { origin: null, path: Url }
    : { origin: url.origin, path: Url.slice(Url.indexOf('/', url.protocol.length + 2)) }
}

function Trace({ id }: { readonly id: string }) {
  const { TracesUrl } = useSession()
  if (TracesUrl === null) return <Outside text={id} />
  return (
    <a
      href={TracesUrl.replaceAll('{traceId}', encodeURIComponent(id))}
      target="_blank"
      rel="noopener noreferrer"
    >
      <Outside text={id} />
    </a>
  )
}

type Sender = NonNullable<RunView['Items'][number]['Sender']>
/** The key shows whether a person has decided with an address or in the console. */
const senderText = ({ Person, KeyID }: Sender): string =>
  Person === null ? keyName(KeyID) : `${Person} (${KeyID})`
