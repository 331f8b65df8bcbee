import type { CompanyView } from '../../src/contracts/companies.ts'
import type { SandboxView } from '../../src/contracts/sandbox.ts'
import { companyPage } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { ActionButton } from '../parts/action-button.tsx'
import { useSession } from '../parts/blockable-button.tsx'
import { companyName, CompanyState } from '../parts/company.tsx'
import { ConnectButton } from '../parts/connect-button.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { Panel } from '../parts/elements.tsx'
import { useRead } from '../reads.ts'

const READ_AGAIN_MS = 5_000

const TARGETS = {
  api: 'calls to the accounting API',
  token: 'refreshes and authorizations',
}
const FAILURES = {
  unavailable: 'respond with 503',
  throttled: 'respond with 429 for 30 s',
  no_response: 'do the work, and send no response',
  slow: 'respond 5 s late',
}

/** Causes failures in the sandbox provider, and says where their effects are shown. */
export function SandboxPage() {
  const { Sandbox } = useSession()
  const sandbox = useRead<SandboxView>(['sandbox'], '/sandbox', {
    enabled: Sandbox,
    refetchInterval: READ_AGAIN_MS,
  })
  const view = sandbox.data
  if (!Sandbox)
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
      <Panel title="Connect a test company">
        <p className="muted">
          Open the link yourself, and choose a company of the sandbox. Then look at{' '}
          <Link to="/companies">Companies</Link>.
        </p>
        <div className="buttons">
          <ConnectButton />
        </div>
      </Panel>
      {view !== undefined && view.Companies.length > 0 && (
        <Panel title="Break the connection of a company">
          <ul className="rows">
            {view.Companies.map((company) => (
              <Company key={company.Realm} company={company} />
            ))}
          </ul>
        </Panel>
      )}
      {view !== undefined && <Faults view={view} />}
      <Panel title="Begin again">
        <p className="muted">
          The sandbox forgets its grants, books and faults. The credentials of token-service stay,
          and are rejected from then on.
        </p>
        <div className="buttons">
          <ActionButton
            verb="Reset"
            isDangerous
            object="the sandbox"
            consequence="No grant of the sandbox is valid then: every company must be connected again."
            reason="none"
            act="/sandbox/reset"
            done="The sandbox is as it was at its start. Connect a company again."
          />
        </div>
      </Panel>
    </>
  )
}

function Company({ company }: { readonly company: CompanyView }) {
  const name = companyName(company)
  const path = `/sandbox/companies/${encodeURIComponent(company.Realm)}`
  return (
    <li aria-label={name}>
      <span className="outside">
        <Link to={companyPage(company.Realm)} text={name} />
      </span>
      <CompanyState state={company.State} />
      <span className="buttons">
        <ActionButton
          verb="Revoke"
          object={`the grant of ${name}`}
          consequence="Its next refreshes are rejected, as if its owner had disconnected the application. Then Now says that it must be reconnected."
          reason="none"
          act={`${path}/revoke`}
          done="The grant is revoked. Open the company and refresh it, then look at Now."
        />
        <ActionButton
          verb="Expire"
          object={`the access token of ${name}`}
          consequence="The provider rejects its access token with 401. The gateway gets a new one and repeats the call."
          reason="none"
          act={`${path}/expire`}
          done="The token has expired. Queue a run of the company; it completes all the same."
        />
      </span>
    </li>
  )
}

function Faults({ view }: { readonly view: SandboxView }) {
  return (
    <Panel title="Let calls fail">
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
          <Choice label="Which" name="target" values={TARGETS} />
          <Choice label="How" name="failure" values={FAILURES} />
          <label>
            How many
            <input name="calls" type="number" min={1} max={1_000} defaultValue={3} required />
          </label>
        </ActionButton>
        <ActionButton
          verb="Stop"
          object="the failures"
          blocked={view.Faults.length === 0 ? 'No call is going to fail.' : undefined}
          consequence="No further call fails on purpose."
          reason="none"
          act="/sandbox/faults/clear"
          done="No further call fails on purpose."
        />
      </div>
    </Panel>
  )
}

interface ChoiceProps {
  readonly label: string
  readonly name: string
  /** The texts of the values. The first value is the default. */
  readonly values: Readonly<Record<string, string>>
}

const Choice = ({ label, name, values }: ChoiceProps) => (
  <label>
    {label}
    <select name={name}>
      {Object.entries(values).map(([value, text]) => (
        <option key={value} value={value}>
          {text}
        </option>
      ))}
    </select>
  </label>
)
