import type { RunView } from '../../src/contracts/runs.ts'
import { companyPage, runPage } from '../../src/isomorphic/pages.ts'
import { full } from '../clock.ts'
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
