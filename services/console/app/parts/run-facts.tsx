import type { RunView } from '../../src/contracts/runs.ts'
import { companyPage, runPage, withQuery } from '../../src/isomorphic/pages.ts'
import { full } from '../clock.ts'
import type { Status } from '../run-query.ts'
import { ActivityText } from './activity-text.tsx'
import { Ago } from './ago.tsx'
import { Link } from './link.tsx'
import { Commas, Fact, Outside } from './elements.tsx'
import { exact } from './timeline.tsx'

/** Shows the company, the times and the tags of a run, and the other runs of its transaction. */
export function RunFacts({ run }: { readonly run: RunView }) {
  const ended = run.CompletedAt
  return (
    <dl className="figures">
      <Fact name="Run">
        <Commas>
          {run.Runs.map(({ ReplayID }) =>
            ReplayID === run.ReplayID ? (
              <strong key={ReplayID}>{ReplayID}</strong>
            ) : (
              <Link key={ReplayID} to={runPage(run.Process, run.TransactionID, ReplayID)}>
                {ReplayID}
              </Link>
            ),
          )}
        </Commas>
      </Fact>
      <Fact name="Company">
        {run.Realm === null ? (
          '—'
        ) : (
          <Link to={companyPage(run.Realm)} text={run.Company ?? run.Realm} />
        )}
        {run.Company !== null && (
          <div className="muted">
            <Outside text={run.Realm ?? ''} />
          </div>
        )}
      </Fact>
      <Fact name="Queued">{full(run.CreatedAt)}</Fact>
      <Fact name="Ended">
        {ended === null
          ? '—'
          : `${full(ended)} (${exact(Date.parse(ended) - Date.parse(run.CreatedAt))})`}
      </Fact>
      {run.Parent !== undefined && (
        <Fact name="Child of">
          <Link
            to={runPage(run.Parent.Process, run.Parent.TransactionID, run.Parent.ReplayID)}
            text={run.Parent.TransactionID}
          />
        </Fact>
      )}
      {(run.Children ?? []).map((family) => (
        <Fact
          key={family.Place}
          name={
            <>
              Children of <Outside text={family.Place} />
            </>
          }
        >
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
        </Fact>
      ))}
      {run.Priority === 'high' && <Fact name="Priority">high</Fact>}
      {run.DefinitionVersion !== null && (
        <Fact name="Version of the process">
          <Outside text={run.DefinitionVersion} />
        </Fact>
      )}
      {Object.entries(run.Tags ?? {}).map(([name, value]) => (
        <Fact
          key={name}
          name={
            <>
              <Outside text={name} />
            </>
          }
        >
          <Outside text={value} />
        </Fact>
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
  return withQuery('/runs', { status: statuses, children: true, process, idPrefix })
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
