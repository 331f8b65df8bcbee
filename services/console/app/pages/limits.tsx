import type { CompanyLimits, CompanyLimitsView, LimitsView } from '../../src/contracts/limits.ts'
import type { ProcessesView } from '../../src/contracts/processes.ts'
import { limitedTargets } from '../process-texts.ts'
import { numberText } from '../../src/isomorphic/texts.ts'
import { companyPage, processPage } from '../../src/isomorphic/pages.ts'
import { DocumentLink, errorSection, Link, runbookSection } from '../parts/link.tsx'
import { State } from '../parts/glyph.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { Commas, Fact, Outside, Panel, TableHead } from '../parts/elements.tsx'
import { useRead } from '../reads.ts'
import { Ago } from '../parts/ago.tsx'
import { remaining, useSeconds } from '../clock.ts'

const READ_AGAIN_MS = 5_000

/**
 * Shows which companies are in a cool-down after a 429, whose calls wait, and how many calls of the month are metered.
 */
export function LimitsPage() {
  // The gateway sends no events, so the page is read again at intervals.
  const limits = useRead<LimitsView>(['limits'], '/limits', { refetchInterval: READ_AGAIN_MS })
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
  const { data } = useRead<ProcessesView>(['processes'], '/processes')
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
                  <Commas>
                    {processes.map((name) => (
                      <Link key={name} to={processPage(name)} text={name} />
                    ))}
                  </Commas>
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
      <Link to={`/limits/${encodeURIComponent(Realm)}`} text={Label ?? Realm} />
      {Label !== null && (
        <div className="muted">
          <Outside text={Realm} />
        </div>
      )}
    </>
  )
}

/** Shows what the gateways have recorded about one company, with its last failed calls. */
export function CompanyLimitsPage({ realm }: { readonly realm: string }) {
  const path = `/limits/${encodeURIComponent(realm)}`
  const limits = useRead<CompanyLimitsView>(['limits', realm], path, {
    refetchInterval: READ_AGAIN_MS,
  })
  const view = limits.data
  return (
    <>
      <p className="crumbs">
        <Link to="/limits">Limits</Link>
      </p>
      <h1 tabIndex={-1} className="outside">
        <Outside text={view?.Company.Label ?? realm} />
      </h1>
      <ReadProblem error={limits.error} hasData={view !== undefined} />
      {view !== undefined && (
        <>
          <SilentGateways addresses={view.Silent} />
          {view.Replicas > 0 && (
            <>
              <Now view={view} />
              <Panel title="Failed calls">
                {view.Calls.length === 0 ? (
                  <p className="muted">No call of this company has failed lately.</p>
                ) : (
                  <Calls calls={view.Calls} />
                )}
              </Panel>
            </>
          )}
        </>
      )}
    </>
  )
}

function Now({ view: { Company, Limits } }: { readonly view: CompanyLimitsView }) {
  return (
    <section className="panel" aria-label="Now">
      <p className="headline">
        <LimitState company={Company} />
        <Link to={companyPage(Company.Realm)}>The company and its connection</Link>
      </p>
      <dl className="figures">
        <Fact name="This minute">
          <LimitBar used={Company.LastMinute} limit={Limits?.PerMinute ?? null} />
        </Fact>
        <Fact name="This second">
          <LimitBar used={Company.LastSecond} limit={Limits?.PerSecond ?? null} />
        </Fact>
        <Fact name="Waiting calls">{Company.Waiting}</Fact>
        <Fact name="Metered this month">{Company.Metered ?? '—'}</Fact>
      </dl>
    </section>
  )
}

function Calls({ calls }: { readonly calls: CompanyLimitsView['Calls'] }) {
  return (
    <ol className="calls">
      {calls.map((one) => (
        <li key={one.RequestID}>
          <p className="headline">
            <State tone="bad">{String(one.Status)}</State>
            <code className="outside">
              <Outside text={`${one.Method} ${one.Path}`} />
            </code>
            <span className="muted">
              <Ago time={one.At} />
            </span>
          </p>
          {one.ProviderError !== null && (
            <p className="error outside">
              <Outside text={one.ProviderError} />
            </p>
          )}
          <dl className="figures">
            {one.Code !== null && (
              <Fact name="Rejected by the gateway">
                <DocumentLink to={errorSection(one.Code)}>
                  <Outside text={one.Code} />
                </DocumentLink>
              </Fact>
            )}
            <Fact name="Took">
              {one.DurationMs} ms{one.WaitedMs > 0 && `, of which ${one.WaitedMs} ms waiting`}
            </Fact>
            <Fact name="Attempts">{one.Attempts}</Fact>
            <Fact name="intuit_tid">
              {one.IntuitTid === null ? (
                '—'
              ) : (
                <code>
                  <Outside text={one.IntuitTid} />
                </code>
              )}
            </Fact>
            <Fact name="Request id">
              <code>
                <Outside text={one.RequestID} />
              </code>
            </Fact>
          </dl>
        </li>
      ))}
    </ol>
  )
}

/** Shows the used share of a limit as text and as a bar. */
function LimitBar({ used, limit }: { readonly used: number; readonly limit: number | null }) {
  const share = limit === null || limit === 0 ? 0 : Math.min(1, used / limit)
  return (
    <span className="limit">
      <span>
        {numberText(used)}
        {limit !== null && <span className="muted"> of {numberText(limit)}</span>}
      </span>
      {limit !== null && (
        <svg viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
          <rect className="base" width="100" height="4" />
          <rect className={share > 0.8 ? 'high' : 'part'} width={share * 100} height="4" />
        </svg>
      )}
    </span>
  )
}

/** Shows whether a company is in a cool-down after a 429 or has waiting calls. */
function LimitState({ company }: { readonly company: CompanyLimits }) {
  const seconds = useSeconds()
  const { HeldUntil, Waiting } = company
  const restsFor = HeldUntil === null ? 0 : Date.parse(HeldUntil) / 1_000 - seconds
  if (restsFor > 0) return <State tone="warn" glyph="‖">{`Rests, on ${remaining(restsFor)}`}</State>
  if (Waiting > 0) return <State tone="wait">{`${Waiting} waiting`}</State>
  return <State tone="good">Free</State>
}

/** Names the gateways that do not respond, because the counts on the page do not include their calls. */
const SilentGateways = ({ addresses }: { readonly addresses: readonly string[] }) =>
  addresses.map((address) => (
    <p key={address} className="failure" role="alert">
      The gateway {address} does not respond. What it knows is missing here.
    </p>
  ))
