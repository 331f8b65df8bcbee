import { useQuery } from '@tanstack/react-query'
import type { CompanyView } from '../../src/contracts/companies.ts'
import type { SandboxView } from '../../src/contracts/sandbox.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { companyPage } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { ActionButton } from '../parts/action-button.tsx'
import { roleReason } from '../parts/blockable-button.tsx'
import { companyName, CompanyState } from '../parts/company.tsx'
import { ConnectButton } from '../parts/connect-button.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { Outside } from '../parts/text.tsx'

const READ_AGAIN_MS = 5_000

const TARGETS = [
  { value: 'api', text: 'calls to the accounting API' },
  { value: 'token', text: 'refreshes and authorizations' },
] as const
const FAILURES = [
  { value: 'unavailable', text: 'respond with 503' },
  { value: 'throttled', text: 'respond with 429 for 30 s' },
  { value: 'no_response', text: 'do the work, and send no response' },
  { value: 'slow', text: 'respond 5 s late' },
] as const

/** Causes failures in the sandbox provider, and says where their effects are shown. */
export default function SandboxPage({ session }: { readonly session: SessionView }) {
  const sandbox = useQuery({
    queryKey: ['sandbox'],
    queryFn: () => call<SandboxView>('GET', '/sandbox'),
    enabled: session.Sandbox,
    refetchInterval: READ_AGAIN_MS,
  })
  const blocked = roleReason(session)
  const view = sandbox.data
  if (!session.Sandbox)
    return (
      <>
        <h1 tabIndex={-1}>Sandbox</h1>
        <p>This installation works with a real provider, and has no sandbox.</p>
      </>
    )
  return (
    <>
      <h1 tabIndex={-1}>Sandbox</h1>
      <p className="lead">
        The sandbox plays the provider. Break something here, and watch what the system does.
      </p>
      <ReadProblem error={sandbox.error} hasData={view !== undefined} />
      <section className="panel" aria-labelledby="connect">
        <h2 id="connect">Connect a test company</h2>
        <p className="muted">
          Open the link yourself, and choose a company of the sandbox. Then look at{' '}
          <Link to="/companies">Companies</Link>.
        </p>
        <div className="buttons">
          <ConnectButton session={session} />
        </div>
      </section>
      {view !== undefined && view.Companies.length > 0 && (
        <section className="panel" aria-labelledby="break">
          <h2 id="break">Break the connection of a company</h2>
          <ul className="rows">
            {view.Companies.map((company) => (
              <Company key={company.Realm} company={company} blocked={blocked} />
            ))}
          </ul>
        </section>
      )}
      {view !== undefined && <Faults view={view} blocked={blocked} />}
      <section className="panel" aria-labelledby="reset">
        <h2 id="reset">Begin again</h2>
        <p className="muted">
          The sandbox forgets its grants, books and faults. The credentials of token-service stay,
          and are rejected from then on.
        </p>
        <div className="buttons">
          <ActionButton
            verb="Reset"
            isDangerous
            object="the sandbox"
            blocked={blocked}
            consequence="No grant of the sandbox is valid then: every company must be connected again."
            reason="none"
            act={() => call('POST', '/sandbox/reset')}
            done="The sandbox is as it was at its start. Connect a company again."
          />
        </div>
      </section>
    </>
  )
}

interface CompanyProps {
  readonly company: CompanyView
  readonly blocked: string | undefined
}

function Company({ company, blocked }: CompanyProps) {
  const name = companyName(company)
  const path = `/sandbox/companies/${encodeURIComponent(company.Realm)}`
  return (
    <li aria-label={name}>
      <span className="outside">
        <Link to={companyPage(company.Realm)}>
          <Outside text={name} />
        </Link>
      </span>
      <CompanyState state={company.State} />
      <span className="buttons">
        <ActionButton
          verb="Revoke"
          object={`the grant of ${name}`}
          blocked={blocked}
          consequence="Its next refreshes are rejected, as if its owner had disconnected the application. Then Now says that it must be reconnected."
          reason="none"
          act={() => call('POST', `${path}/revoke`)}
          done="The grant is revoked. Open the company and refresh it, then look at Now."
        />
        <ActionButton
          verb="Expire"
          object={`the access token of ${name}`}
          blocked={blocked}
          consequence="The provider rejects its access token with 401. The gateway gets a new one and repeats the call."
          reason="none"
          act={() => call('POST', `${path}/expire`)}
          done="The token has expired. Queue a run of the company; it completes all the same."
        />
      </span>
    </li>
  )
}

function Faults({
  view,
  blocked,
}: {
  readonly view: SandboxView
  readonly blocked: string | undefined
}) {
  return (
    <section className="panel" aria-labelledby="faults">
      <h2 id="faults">Let calls fail</h2>
      {view.Faults.length === 0 ? (
        <p className="muted">No call is going to fail.</p>
      ) : (
        <ul>
          {view.Faults.map(({ Target, Calls, Text }, index) => (
            <li key={index}>
              The next {Calls === 1 ? 'call' : `${Calls} calls`} of {Target}: {Text}
            </li>
          ))}
        </ul>
      )}
      <div className="buttons">
        <ActionButton
          verb="Fail"
          object="the next calls"
          blocked={blocked}
          consequence="They fail as chosen. Runs are retried, and Runs shows why they wait; Limits shows a company that rests after a 429."
          reason="none"
          act={(form) =>
            call('POST', '/sandbox/faults', {
              Target: form.get('target'),
              Failure: form.get('failure'),
              Calls: Number(form.get('calls')),
            })
          }
          done="The next calls fail. Look at Runs, Limits and Charts."
        >
          <label>
            Which
            <select name="target" defaultValue="api">
              {TARGETS.map(({ value, text }) => (
                <option key={value} value={value}>
                  {text}
                </option>
              ))}
            </select>
          </label>
          <label>
            How
            <select name="failure" defaultValue="unavailable">
              {FAILURES.map(({ value, text }) => (
                <option key={value} value={value}>
                  {text}
                </option>
              ))}
            </select>
          </label>
          <label>
            How many
            <input name="calls" type="number" min={1} max={1_000} defaultValue={3} required />
          </label>
        </ActionButton>
        <ActionButton
          verb="Stop"
          object="the failures"
          blocked={view.Faults.length === 0 ? 'No call is going to fail.' : blocked}
          consequence="No further call fails on purpose."
          reason="none"
          act={() => call('POST', '/sandbox/faults/clear')}
          done="No further call fails on purpose."
        />
      </div>
    </section>
  )
}
