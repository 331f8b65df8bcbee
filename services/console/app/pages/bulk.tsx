import { keyName, nameIn } from '../../src/isomorphic/texts.ts'
import { useState } from 'react'
import type { BulkAction, BulkObjects, BulkView } from '../../src/contracts/bulk.ts'
import { bulkPage, runPage, withQuery } from '../../src/isomorphic/pages.ts'
import { duration, full } from '../clock.ts'
import { DocumentLink, errorSection, Link } from '../parts/link.tsx'
import { copy } from '../notice.ts'
import { ActionButton } from '../parts/action-button.tsx'
import { Ago } from '../parts/ago.tsx'
import { BULK_VERBS } from '../parts/bulk-button.tsx'
import { State, type StateGlyph, type Tone } from '../parts/glyph.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { Fact, Outside, Panel, TableHead } from '../parts/elements.tsx'
import { useQueryText } from '../router.ts'
import { useRead } from '../reads.ts'

const READ_MS = 1_000
const SHOWN_FAILURES = 100

const STATES: Readonly<Record<string, { readonly tone: Tone; readonly glyph: StateGlyph }>> = {
  Running: { tone: 'info', glyph: '◐' },
  Paused: { tone: 'warn', glyph: '‖' },
  Completed: { tone: 'good', glyph: '✓' },
  Stopped: { tone: 'quiet', glyph: '⊘' },
}

const isOver = ({ Status }: BulkView): boolean => Status === 'Completed' || Status === 'Stopped'

/**
 * Shows the progress and the results of an action on many runs. Other persons can open the address of
 * this page, too.
 */
export function BulkPage({ id }: { readonly id: string }) {
  const path = bulkPage(id)
  const { data: bulk, error } = useRead<BulkView>(['bulk', id], path, {
    refetchInterval: ({ state }) =>
      state.data === undefined || !isOver(state.data) ? READ_MS : false,
  })
  return (
    <>
      <p className="crumbs">
        <Link to="/runs">Runs</Link>
      </p>
      <h1 tabIndex={-1} className="outside">
        {bulk === undefined ? (
          'Action on many runs'
        ) : (
          <>
            <Outside text={BULK_VERBS[bulk.Action as BulkAction] ?? bulk.Action} />:{' '}
            <Outside text={bulk.Process} />
          </>
        )}
      </h1>
      <ReadProblem error={error} hasData={bulk !== undefined} />
      {bulk !== undefined && (
        <>
          <Progress bulk={bulk} path={path} />
          {bulk.Action === 'take-back' && <Objects bulk={bulk} path={path} />}
          <Failures bulk={bulk} />
        </>
      )}
    </>
  )
}

interface ProgressProps {
  readonly bulk: BulkView
  readonly path: string
}

function Progress({ bulk, path }: ProgressProps) {
  const { tone, glyph } = STATES[bulk.Status] ?? { tone: 'quiet', glyph: '·' }
  const counted = Number(new URLSearchParams(useQueryText()).get('of'))
  const known = bulk.Done + bulk.Skipped + bulk.Failed
  const isEnded = isOver(bulk)
  const all = isEnded ? known : Math.max(known, bulk.IdCount ?? counted, 1)
  const left = all - known
  return (
    <section className="panel" aria-label="Progress">
      <p className="headline">
        <State tone={tone} glyph={glyph}>
          {bulk.Status}
        </State>
        <span className="muted">
          <Ago time={bulk.FinishedAt ?? bulk.CreatedAt} />
        </span>
        {bulk.Status === 'Running' && left > 0 && (
          <span className="muted">about {duration(Math.ceil(left / bulk.PerSecond))} left</span>
        )}
      </p>
      {bulk.Status === 'Paused' && (
        <p>
          It has paused because many runs in a row failed
          {bulk.StatusReason !== null && (
            <>
              {' '}
              with{' '}
              <DocumentLink to={errorSection(bulk.StatusReason)}>
                <Outside text={bulk.StatusReason} />
              </DocumentLink>
            </>
          )}
          . Continue it when the reason is gone: these runs are tried again.
        </p>
      )}
      <div className="progress">
        <svg viewBox={`0 0 ${all} 1`} preserveAspectRatio="none" aria-hidden="true">
          <rect className="completed" width={bulk.Done} height="1" />
          <rect className="skipped" x={bulk.Done} width={bulk.Skipped} height="1" />
          <rect className="failed" x={bulk.Done + bulk.Skipped} width={bulk.Failed} height="1" />
        </svg>
      </div>
      <dl className="numbers after">
        <Count name={bulk.Action === 'take-back' ? 'Looked at' : 'Changed'} value={bulk.Done} />
        <Count name="Left alone" value={bulk.Skipped} />
        <Count name="Failed" value={bulk.Failed} tone={bulk.Failed > 0 ? 'bad' : undefined} />
        <Count name={isEnded ? 'Not reached' : 'To do'} value={left} />
      </dl>
      {bulk.Skipped > 0 && (
        <p className="muted">Runs are left alone if their state does not allow the action.</p>
      )}
      <div className="buttons">
        {bulk.Status === 'Paused' && <BulkChange bulk={bulk} path={path} change="continue" />}
        {!isEnded && <BulkChange bulk={bulk} path={path} change="stop" />}
        <button type="button" onClick={() => copy(location.href)}>
          Copy link
        </button>
        <a href={`/api${path}/file`} download>
          Download as JSON lines
        </a>
      </div>
      <Facts bulk={bulk} />
    </section>
  )
}

function BulkChange({
  bulk,
  path,
  change,
}: ProgressProps & { readonly change: 'stop' | 'continue' }) {
  const isStop = change === 'stop'
  return (
    <ActionButton
      verb={isStop ? 'Stop' : 'Continue'}
      isDangerous={isStop}
      object={`the action on the runs of ${bulk.Process}`}
      consequence={
        isStop
          ? 'No further run is changed. What is already changed stays so. It cannot be continued.'
          : 'The runs that failed last are tried again, and then the others.'
      }
      reason="required"
      act={`${path}/${change}`}
      done={isStop ? 'The action is stopped.' : 'The action continues.'}
    />
  )
}

function Count({
  name,
  value,
  tone,
}: {
  readonly name: string
  readonly value: number
  readonly tone?: Tone | undefined
}) {
  return (
    <div>
      <dt className="muted">{name}</dt>
      <dd className={tone === undefined ? undefined : `tone-${tone}`}>{value}</dd>
    </div>
  )
}

function Facts({ bulk }: { readonly bulk: BulkView }) {
  return (
    <dl className="figures">
      <Fact name="By">
        <Outside text={bulk.Person ?? keyName(bulk.KeyID)} />
      </Fact>
      <Fact name="Reason">{bulk.Reason === null ? '—' : <Outside text={bulk.Reason} />}</Fact>
      <Fact name="Runs">
        {bulk.Filter === null ? (
          `${bulk.IdCount ?? 0} selected`
        ) : (
          <Link to={runsOf(bulk.Process, bulk.Filter)} text={filterText(bulk.Filter)} />
        )}
      </Fact>
      <Fact name="Rate">{bulk.PerSecond} a second</Fact>
      <Fact name="Began">{full(bulk.CreatedAt)}</Fact>
      {bulk.FinishedAt !== null && <Fact name="Ended">{full(bulk.FinishedAt)}</Fact>}
    </dl>
  )
}

const valuesOf = (value: unknown): readonly string[] => [value].flat().map(String)

const filterText = (filter: NonNullable<BulkView['Filter']>): string =>
  Object.entries(filter)
    .map(([name, value]) => `${name}: ${valuesOf(value).join(', ')}`)
    .join(' · ')

/** Returns the address of the list of runs with this filter. */
const runsOf = (process: string, filter: NonNullable<BulkView['Filter']>): string =>
  withQuery('/runs', { process, ...filter })

const OUTCOMES: Readonly<Record<string, string>> = {
  deleted: 'Deleted',
  inactivated: 'Made inactive',
  left: 'Left',
  failed: 'Failed',
  pending: 'To do',
}
const WOULD: Readonly<Record<string, string>> = {
  ...OUTCOMES,
  deleted: 'Would be deleted',
  inactivated: 'Would be made inactive',
  left: 'Would be left',
}
const REASONS: Readonly<Record<string, string>> = {
  books_closed: 'the books are closed for its date',
  changed_outside: 'changed since by a person or another program',
  gone: 'no longer there',
  linked: 'linked to another object',
  not_supported: 'objects of this kind cannot be taken back',
  paid: 'paid',
  refused: 'refused by the provider',
  run_active: 'a run of its transaction is active',
  run_in_doubt: 'a run of its transaction is in doubt',
  unproven: 'nothing to compare with',
}

function Objects({ bulk, path }: { readonly bulk: BulkView; readonly path: string }) {
  const [cursors, setCursors] = useState<readonly string[]>([''])
  const cursor = cursors.at(-1) ?? ''
  const objects = withQuery(`${path}/objects`, { cursor: cursor || undefined })
  const { data, error } = useRead<BulkObjects>(['bulk objects', bulk.ID, cursor], objects, {
    refetchInterval: ({ state }) =>
      bulk.Status === 'Running' ||
      state.data?.items.some(({ Outcome }) => Outcome === 'pending') !== false
        ? READ_MS
        : false,
  })
  const names = bulk.DryRun ? WOULD : OUTCOMES
  const next = data?.next_cursor ?? null
  return (
    <Panel title="Objects in the books">
      <ReadProblem error={error} hasData={data !== undefined} />
      {data?.items.length === 0 && <p className="muted">None yet.</p>}
      {data !== undefined && data.items.length > 0 && (
        <table>
          <TableHead columns={['Object', ['Company', 'except-phone'], 'Result', 'Why']} />
          <tbody>
            {data.items.map(
              ({ TransactionID, Realm, Entity, EntityID, Outcome, Reason, Fields }) => (
                <tr key={TransactionID}>
                  <td className="outside">
                    <Link to={runPage('TakeBack', TransactionID)} text={`${Entity} ${EntityID}`} />
                  </td>
                  <td className="outside except-phone">
                    <Outside text={nameIn(data.Companies, Realm) ?? Realm} />
                  </td>
                  <td>
                    <Outside text={names[Outcome] ?? Outcome} />
                  </td>
                  <td className="outside">
                    {Reason !== null && <Outside text={REASONS[Reason] ?? Reason} />}
                    {Fields !== null && Fields.length > 0 && (
                      <>
                        {': '}
                        <Outside text={Fields.join(', ')} />
                      </>
                    )}
                  </td>
                </tr>
              ),
            )}
          </tbody>
        </table>
      )}
      {(cursors.length > 1 || next !== null) && (
        <div className="buttons after">
          {cursors.length > 1 && (
            <button type="button" onClick={() => setCursors(cursors.slice(0, -1))}>
              Earlier
            </button>
          )}
          {next !== null && (
            <button type="button" onClick={() => setCursors([...cursors, next])}>
              More
            </button>
          )}
        </div>
      )}
    </Panel>
  )
}

function Failures({ bulk }: { readonly bulk: BulkView }) {
  const [isWhole, setWhole] = useState(false)
  const { Failures: failures, FailedByCode } = bulk
  if (bulk.Failed === 0) return null
  const shown = isWhole ? failures : failures.slice(0, SHOWN_FAILURES)
  return (
    <Panel title="Runs that failed">
      <ul className="links codes">
        {Object.entries(FailedByCode).map(([code, count]) => (
          <li key={code}>
            <DocumentLink to={errorSection(code)}>
              <Outside text={code} />
            </DocumentLink>{' '}
            <span className="muted">{count}</span>
          </li>
        ))}
      </ul>
      <table>
        <TableHead columns={['Transaction', 'Code']} />
        <tbody>
          {shown.map(({ TransactionID, ReplayID, Code }) => (
            <tr key={`${TransactionID} ${ReplayID}`}>
              <td className="outside">
                <Link
                  to={runPage(bulk.Process, TransactionID, ReplayID ?? undefined)}
                  text={TransactionID}
                />
              </td>
              <td className="outside">
                <Outside text={Code} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {shown.length < failures.length && (
        <div className="more after">
          <button type="button" onClick={() => setWhole(true)}>
            Show all {failures.length}
          </button>
        </div>
      )}
      {failures.length < bulk.Failed && (
        <p className="muted after">
          The first {failures.length} of {bulk.Failed} are listed.
        </p>
      )}
    </Panel>
  )
}
