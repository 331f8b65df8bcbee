import { useQuery } from '@tanstack/react-query'
import type { CompanyLimitsView } from '../../src/contracts/limits.ts'
import { companyPage } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { errorSection } from '../documents.ts'
import { Ago } from '../parts/ago.tsx'
import { State } from '../parts/glyph.tsx'
import { LimitBar } from '../parts/limit-bar.tsx'
import { LimitState } from '../parts/limit-state.tsx'
import { DocumentLink, Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { SilentGateways } from '../parts/silent-gateways.tsx'
import { Outside } from '../parts/text.tsx'

const READ_AGAIN_MS = 5_000

/** Shows what the gateways have recorded about one company, with its last failed calls. */
export default function CompanyLimitsPage({ realm }: { readonly realm: string }) {
  const limits = useQuery({
    queryKey: ['limits', realm],
    queryFn: () => call<CompanyLimitsView>('GET', `/limits/${encodeURIComponent(realm)}`),
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
              <section className="panel" aria-labelledby="failed">
                <h2 id="failed">Failed calls</h2>
                {view.Calls.length === 0 ? (
                  <p className="muted">No call of this company has failed lately.</p>
                ) : (
                  <Calls calls={view.Calls} />
                )}
              </section>
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
        <div>
          <dt>This minute</dt>
          <dd>
            <LimitBar used={Company.LastMinute} limit={Limits?.PerMinute ?? null} />
          </dd>
        </div>
        <div>
          <dt>This second</dt>
          <dd>
            <LimitBar used={Company.LastSecond} limit={Limits?.PerSecond ?? null} />
          </dd>
        </div>
        <div>
          <dt>Waiting calls</dt>
          <dd>{Company.Waiting}</dd>
        </div>
        <div>
          <dt>Metered this month</dt>
          <dd>{Company.Metered ?? '—'}</dd>
        </div>
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
              <div>
                <dt>Rejected by the gateway</dt>
                <dd>
                  <DocumentLink to={errorSection(one.Code)}>
                    <Outside text={one.Code} />
                  </DocumentLink>
                </dd>
              </div>
            )}
            <div>
              <dt>Took</dt>
              <dd>
                {one.DurationMs} ms{one.WaitedMs > 0 && `, of which ${one.WaitedMs} ms waiting`}
              </dd>
            </div>
            <div>
              <dt>Attempts</dt>
              <dd>{one.Attempts}</dd>
            </div>
            <div>
              <dt>intuit_tid</dt>
              <dd>
                {one.IntuitTid === null ? (
                  '—'
                ) : (
                  <code>
                    <Outside text={one.IntuitTid} />
                  </code>
                )}
              </dd>
            </div>
            <div>
              <dt>Request id</dt>
              <dd>
                <code>
                  <Outside text={one.RequestID} />
                </code>
              </dd>
            </div>
          </dl>
        </li>
      ))}
    </ol>
  )
}
