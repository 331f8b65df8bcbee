import type { RunView } from '../../src/contracts/runs.ts'
import { companyPage, runPage } from '../../src/isomorphic/pages.ts'
import { full } from '../clock.ts'
import type { Status } from '../run-query.ts'
import { ActivityText } from './activity-text.tsx'
import { Ago } from './ago.tsx'
import { Link } from './link.tsx'
import { Outside } from './text.tsx'
import { exact } from './timeline.tsx'

/** Shows the company, the times and the tags of a run, and the other runs of its transaction. */
export function RunFacts({ run }: { readonly run: RunView }) {
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
              <Outside text={run.Company ?? run.Realm} />
            </Link>
          )}
          {run.Company !== null && (
            <div className="muted">
              <Outside text={run.Realm ?? ''} />
            </div>
          )}
        </dd>
      </div>
      <div>
        <dt>Queued</dt>
        <dd>{full(run.CreatedAt)}</dd>
      </div>
      <div>
        <dt>Ended</dt>
        <dd>
          {ended === null
            ? '—'
            : `${full(ended)} (${exact(Date.parse(ended) - Date.parse(run.CreatedAt))})`}
        </dd>
      </div>
      {run.Parent !== undefined && (
        <div>
          <dt>Child of</dt>
          <dd>
            <Link to={runPage(run.Parent.Process, run.Parent.TransactionID, run.Parent.ReplayID)}>
              <Outside text={run.Parent.TransactionID} />
            </Link>
          </dd>
        </div>
      )}
      {(run.Children ?? []).map((family) => (
        <div key={family.Place}>
          <dt>
            Children of <Outside text={family.Place} />
          </dt>
          <dd>
            <Link to={childrenPage(family)}>
              {`${family.Completed} of ${family.Total} completed`}
            </Link>
            {family.Active > 0 && `, ${family.Active} active`}
            {family.Waiting > 0 && ` (${family.Waiting} wait for their turn)`}
            {family.Failed > 0 && (
              <>
                {', '}
                <Link to={childrenPage(family, NOT_COMPLETED)}>
                  {`${family.Failed} not completed`}
                </Link>
              </>
            )}
            {!family.IsLoaded && (
              <div className="muted">
                <Outside text={`The process ${family.Process} is not loaded: the children wait.`} />
              </div>
            )}
          </dd>
        </div>
      ))}
      {run.Priority === 'high' && (
        <div>
          <dt>Priority</dt>
          <dd>high</dd>
        </div>
      )}
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

/** The statuses of a child that has ended without being completed. */
const NOT_COMPLETED = ['Failed', 'Cancelled', 'UndoFailed', 'Undone'] as const satisfies Status[]

/** Returns the address of the list of the children of a place; of all of them if no `statuses` are given. */
function childrenPage(
  { Process: process, IdPrefix: idPrefix }: NonNullable<RunView['Children']>[number],
  statuses: readonly Status[] = [],
): string {
  const query = new URLSearchParams(statuses.map((status) => ['status', status]))
  for (const [name, value] of Object.entries({ children: 'true', process, idPrefix }))
    query.set(name, value)
  return `/runs?${query}`
}

/** Shows who acted on the transaction, when and why. */
export function RunHistory({ run }: { readonly run: RunView }) {
  if (run.History.length === 0) return <p className="muted">None.</p>
  return (
    <ol className="changes">
      {run.History.map((action) => (
        <li key={action.Key}>
          <Ago time={action.At} />
          <span>
            <ActivityText entry={action} hasOutcome />
          </span>
        </li>
      ))}
    </ol>
  )
}
