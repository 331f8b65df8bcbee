import { useQuery } from '@tanstack/react-query'
import type { CompanyLimits, LimitsView } from '../../src/contracts/limits.ts'
import type { ProcessesView } from '../../src/contracts/processes.ts'
import { limitedTargets } from '../../src/isomorphic/limited-targets.ts'
import { numberText } from '../../src/isomorphic/texts.ts'
import { processPage } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { runbookSection } from '../documents.ts'
import { State } from '../parts/glyph.tsx'
import { LimitBar } from '../parts/limit-bar.tsx'
import { LimitState } from '../parts/limit-state.tsx'
import { DocumentLink, Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { SilentGateways } from '../parts/silent-gateways.tsx'
import { TableHead } from '../parts/table-head.tsx'
import { Outside } from '../parts/text.tsx'

const READ_AGAIN_MS = 5_000

/**
 * Shows which companies are in a cool-down after a 429, whose calls wait, and how many calls of the month are metered.
 */
export default function LimitsPage() {
  const limits = useQuery({
    queryKey: ['limits'],
    queryFn: () => call<LimitsView>('GET', '/limits'),
    // The gateway sends no events, so the page is read again at intervals.
    refetchInterval: READ_AGAIN_MS,
  })
  const view = limits.data
  return (
    <>
      <h1 tabIndex={-1}>Limits</h1>
      <p className="lead">
        The calls to the accounting API, company by company, as the gateways have seen them lately.
      </p>
      <ReadProblem error={limits.error} hasData={view !== undefined} />
      {view !== undefined && (
        <>
          <Fleet view={view} />
          <SilentGateways addresses={view.Silent} />
          {view.Companies.length > 0 && <Companies view={view} />}
          {view.Companies.length === 0 && view.Replicas > 0 && (
            <section className="panel" aria-label="No calls">
              <p>No company has made a call since the gateways were started.</p>
            </section>
          )}
        </>
      )}
      <Targets />
    </>
  )
}

/** The services with limits that processes call without the gateway. A shared target has one row. */
function Targets() {
  const { data } = useQuery({
    queryKey: ['processes'],
    queryFn: () => call<ProcessesView>('GET', '/processes'),
  })
  const targets = limitedTargets(data?.Processes ?? [])
  if (targets.length === 0) return null
  return (
    <section aria-label="Targets">
      <h2>Targets of processes</h2>
      <div className="panel flush">
        <table>
          <TableHead columns={['Target', 'Calls in a second', 'Calls at a time', 'Processes']} />
          <tbody>
            {targets.map(({ Name, PerSecond, Concurrent, processes }) => (
              <tr key={`${Name} ${processes.join()}`}>
                <td className="outside">
                  <Outside text={Name} />
                </td>
                <td>{PerSecond === null ? '—' : numberText(PerSecond)}</td>
                <td>{Concurrent === null ? '—' : numberText(Concurrent)}</td>
                <td>
                  {processes.map((name, index) => (
                    <span key={name}>
                      {index > 0 && ', '}
                      <Link to={processPage(name)}>
                        <Outside text={name} />
                      </Link>
                    </span>
                  ))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  )
}

function Fleet({ view }: { readonly view: LimitsView }) {
  const { Resting, Waiting, Metered, Budget, Month } = view
  return (
    <section className="panel" aria-label="All companies">
      <dl className="numbers three">
        <div>
          <dt>
            <State tone={Resting > 0 ? 'warn' : 'quiet'} glyph="‖">
              Cool-down after a 429
            </State>
          </dt>
          <dd className={Resting > 0 ? undefined : 'muted'}>{Resting}</dd>
        </div>
        <div>
          <dt>
            <State tone={Waiting > 0 ? 'wait' : 'quiet'}>Waiting calls</State>
          </dt>
          <dd className={Waiting > 0 ? undefined : 'muted'}>{Waiting}</dd>
        </div>
        <div>
          <dt className="muted">Metered calls in {Month}</dt>
          <dd>{Metered === null ? '—' : <LimitBar used={Metered} limit={Budget} />}</dd>
        </div>
      </dl>
      <p className="muted">
        {Budget === null
          ? 'MONTHLY_BUDGET of the gateway sets the calls that the plan allows. '
          : 'The provider blocks the application above the calls of its plan. '}
        <DocumentLink to={runbookSection('BudgetNearlyUsed')}>Runbook</DocumentLink>
      </p>
    </section>
  )
}

function Companies({ view }: { readonly view: LimitsView }) {
  const { Limits } = view
  return (
    <div className="panel flush">
      <table>
        <TableHead
          columns={[
            ['Company', 'company'],
            'State',
            ['This minute', 'wider'],
            ['This second', 'wider'],
            ['Metered this month', 'wider'],
            ['Failed lately', 'narrow'],
          ]}
        />
        <tbody>
          {view.Companies.map((company) => (
            <tr key={company.Realm}>
              <td className="outside">
                <CompanyLink company={company} />
              </td>
              <td>
                <LimitState company={company} />
              </td>
              <td className="wider">
                <LimitBar used={company.LastMinute} limit={Limits?.PerMinute ?? null} />
              </td>
              <td className="wider">
                <LimitBar used={company.LastSecond} limit={Limits?.PerSecond ?? null} />
              </td>
              <td className="wider">{company.Metered ?? '—'}</td>
              <td>
                {company.Failed === 0 ? (
                  <span className="muted">none</span>
                ) : (
                  <State tone="warn">{String(company.Failed)}</State>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function CompanyLink({ company: { Realm, Label } }: { readonly company: CompanyLimits }) {
  return (
    <>
      <Link to={`/limits/${encodeURIComponent(Realm)}`}>
        <Outside text={Label ?? Realm} />
      </Link>
      {Label !== null && (
        <div className="muted">
          <Outside text={Realm} />
        </div>
      )}
    </>
  )
}
