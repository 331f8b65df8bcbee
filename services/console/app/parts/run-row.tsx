import { memo, type ReactNode } from 'react'
import { asksAgain } from '../../src/isomorphic/texts.ts'
import { companyPage, runPage } from '../../src/isomorphic/pages.ts'
import type { ListedRun, RunOrder } from '../run-list.ts'
import { visible } from '../visible.ts'
import { Ago } from './ago.tsx'
import { Until } from './company.tsx'
import { Link } from './link.tsx'
import { RunStatus, shownStatus } from './run-status.tsx'
import { Outside } from './elements.tsx'

export interface RunRowProps {
  readonly run: ListedRun
  /** `lines` shows everything in one column, for narrow windows. */
  readonly form: 'columns' | 'lines'
  readonly index: number
  /** The height of the row in pixels. */
  readonly height: number
  readonly order: RunOrder
  readonly companies: ReadonlyMap<string, string>
  readonly isSelected: boolean
  readonly onSelect: (runs: readonly ListedRun[], isSelected: boolean) => void
  readonly menuId: string
  readonly onMenu: (run: ListedRun, button: HTMLElement) => void
}

/**
 * A row of the list of runs. The list renders with every key and every animation frame while a person moves through it,
 * so a row renders again only if one of its own properties changes.
 */
export const RunRow = memo(function RunRow(props: RunRowProps) {
  const { run, form, index, height, isSelected, onSelect, menuId, onMenu } = props
  const id = visible(run.TransactionID)
  return (
    <tr
      aria-rowindex={index + 2}
      className={run.isGone === true ? 'gone' : undefined}
      style={{ height }}
    >
      <td className="pick">
        <input
          type="checkbox"
          aria-label={`Select ${id}`}
          checked={isSelected}
          onChange={() => onSelect([run], !isSelected)}
        />
      </td>
      {form === 'lines' ? <Lines {...props} /> : <Columns {...props} />}
      <td className="menu-column">
        <button
          type="button"
          className="plain"
          popoverTarget={menuId}
          aria-label={`More about ${id}, run ${run.ReplayID}`}
          onClick={({ currentTarget }) => onMenu(run, currentTarget)}
        >
          ⋯
        </button>
      </td>
    </tr>
  )
})

function Columns({ run, order, companies }: RunRowProps) {
  return (
    <>
      <td>
        <RunStatus status={shownStatus(run)} />
      </td>
      <td className="id">
        <RunLink run={run} />
      </td>
      <td>
        <div className="line" title={visible(run.Why)}>
          <Remark run={run} order={order} /> <Cause run={run} />{' '}
          <span className="muted">
            <Place run={run} />
          </span>
        </div>
      </td>
      <td className="wider">
        {run.Realm === null ? (
          '—'
        ) : (
          <div className="line" title={visible(run.Realm)}>
            <CompanyLink realm={run.Realm} companies={companies} />
          </div>
        )}
      </td>
      <td>
        <Ago time={run.UpdatedAt} />
      </td>
    </>
  )
}

function Lines({ run, order, companies }: RunRowProps) {
  return (
    <td>
      <div className="id">
        <RunLink run={run} />
      </div>
      <div className="first-line">
        <RunStatus status={shownStatus(run)} />
        <span className="line" title={visible(run.Why)}>
          <Cause run={run} />
        </span>
      </div>
      <div className="last-line">
        <Remark run={run} order={order} />
        {run.Realm !== null && (
          <span className="line">
            <CompanyLink realm={run.Realm} companies={companies} />
          </span>
        )}
        <span className="muted line">
          <Place run={run} />
        </span>
        <Ago time={run.UpdatedAt} />
      </div>
    </td>
  )
}

/** The cause of the state of the run. Of a step that polls, the time of its next request matters most. */
const Cause = ({ run }: Pick<RunRowProps, 'run'>) =>
  asksAgain(run) && run.NextAttemptAt !== null ? (
    <>
      Waiting: asks again <Until time={run.NextAttemptAt} past="now" />
    </>
  ) : (
    <Outside text={run.Cause} />
  )

/** Says that the row no longer matches the filter, or that the run is in doubt. */
function Remark({ run, order }: Pick<RunRowProps, 'run' | 'order'>): ReactNode {
  if (run.isGone === true)
    return <span className="muted">{order === 'UpdatedAt' ? 'has changed' : 'matched before'}</span>
  return run.InDoubt && <span className="tone-warn">? in doubt</span>
}

const RunLink = ({ run }: Pick<RunRowProps, 'run'>) => (
  <Link to={runPage(run.Process, run.TransactionID, run.ReplayID)} text={run.TransactionID} />
)

/** The process, the step, and the number of the run if the transaction was replayed. */
const Place = ({ run }: Pick<RunRowProps, 'run'>) => (
  <>
    <Outside text={run.Process} /> · <Outside text={run.StepName} />
    {run.ReplayID > 0 && ` · run ${run.ReplayID}`}
  </>
)

interface CompanyLinkProps {
  readonly realm: string
  readonly companies: ReadonlyMap<string, string>
}

const CompanyLink = ({ realm, companies }: CompanyLinkProps) => (
  <Link to={companyPage(realm)} text={companies.get(realm) ?? realm} />
)
