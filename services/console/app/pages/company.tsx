import { useRead } from '../reads.ts'
import type { CompanyPageView, Disconnected } from '../../src/contracts/companies.ts'
import { companyPage, entriesPage } from '../../src/isomorphic/pages.ts'
import { call, Problem } from '../api.ts'
import { full } from '../clock.ts'
import { DocumentLink, Link, runbookSection } from '../parts/link.tsx'
import { notify } from '../notice.ts'
import { ActionButton, reasonOf } from '../parts/action-button.tsx'
import { ActivityText } from '../parts/activity-text.tsx'
import { Ago } from '../parts/ago.tsx'
import { companyName, CompanyNameField, CompanyState, Until } from '../parts/company.tsx'
import { ConnectButton } from '../parts/connect-button.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { Pause, ResumeButton } from '../parts/pause.tsx'
import { Fact, Outside, Panel } from '../parts/elements.tsx'
import { WaitingRuns } from '../parts/waiting-runs.tsx'
import { goTo } from '../router.ts'

/**
 * Shows one company: its state and the remedy, when its token and its grant end, and what has
 * happened to it.
 */
export function CompanyPage({ realm }: { readonly realm: string }) {
  const { data, error } = useRead<CompanyPageView>(['company', realm], companyPage(realm))
  const company = data?.Company
  const pause = data?.Pause ?? null
  return (
    <>
      <p className="crumbs">
        <Link to="/companies">Companies</Link>
      </p>
      <h1 tabIndex={-1} className="outside">
        <Outside text={company === undefined ? realm : companyName(company)} />
      </h1>
      {data === undefined && isMissing(error) ? (
        <p className="failure" role="alert">
          There is no company <Outside text={realm} />. If it was disconnected,{' '}
          <Link to={`/activity?realm=${encodeURIComponent(realm)}`}>Activity</Link> says when.
        </p>
      ) : (
        <ReadProblem error={error} hasData={data !== undefined} />
      )}
      {company !== undefined && (
        <>
          {pause !== null && <PausePanel pause={pause} company={company} />}
          <State company={company} waiting={data?.WaitingRuns ?? 0} isPaused={pause !== null} />
          <WaitingRuns
            realm={company.Realm}
            count={data?.WaitingRuns ?? null}
            isPaused={pause !== null}
          />
          <Panel title="History">
            <History entries={data?.History ?? []} />
          </Panel>
        </>
      )}
    </>
  )
}

/** Whether there is no company with the id in the address, or no company can have this id. */
const isMissing = (error: Error | null): boolean =>
  error instanceof Problem && (error.status === 404 || error.status === 400)

type Company = CompanyPageView['Company']

interface StateProps {
  readonly company: Company
  /** How many runs wait for the company. */
  readonly waiting: number
  readonly isPaused: boolean
}

/** Says that the runs of the company are paused, since when, by whom and why. */
function PausePanel({
  pause,
  company,
}: Pick<StateProps, 'company'> & { readonly pause: NonNullable<CompanyPageView['Pause']> }) {
  return (
    <section className="panel" aria-label="Pause">
      <p className="headline">
        <strong>Paused</strong>
        <span className="muted outside">
          <Pause at={pause.At} by={pause.By} reason={pause.Reason} />
        </span>
      </p>
      <p>
        Its runs start no step until it is resumed. Events and decisions are accepted, webhooks are
        delivered, and deadlines count.
      </p>
      <div className="buttons">
        <ResumeButton realm={company.Realm} name={companyName(company)} />
      </div>
    </section>
  )
}

function State({ company, waiting, isPaused }: StateProps) {
  const { Fault: fault } = company
  return (
    <section className="panel" aria-label="State">
      <p className="headline">
        <CompanyState state={company.State} />
        <span className="muted">
          {fault === undefined ? 'refreshed ' : 'first failure '}
          <Ago time={fault?.Since ?? fault?.At ?? company.RefreshedAt} />
        </span>
      </p>
      {fault === undefined ? (
        <p>
          {company.State === 'expiring'
            ? 'The grant ends soon, and a refresh cannot extend it. Reconnect the company before.'
            : 'Access tokens are refreshed by themselves. If the owner disconnects this application at the provider, only the next refresh shows it: Refresh finds out now.'}
        </p>
      ) : (
        <>
          <p className="outside">
            <Outside text={fault.Remedy ?? fault.Code} />
          </p>
          <p className="error outside">
            <Outside text={fault.Message} hasLines />
          </p>
          {company.State === 'must_reconnect' && (
            <p>
              The access token is not refreshed any more.{' '}
              {waiting > 0 ? 'Runs' : 'When it is no longer valid, runs'} that call this company
              wait until it is connected again.
            </p>
          )}
        </>
      )}
      <Actions company={company} isPaused={isPaused} />
      <dl className="figures">
        <Fact name="Id">
          <Outside text={company.Realm} />
        </Fact>
        {company.State === 'must_reconnect' ? (
          <EndedGrant company={company} />
        ) : (
          <LivingGrant company={company} />
        )}
        {fault !== undefined && (
          <Fact name="Fault">
            <Outside text={fault.Code} />
          </Fact>
        )}
        {fault?.TraceId !== undefined && (
          <Fact name="Trace id of the provider">
            <Outside text={fault.TraceId} />
          </Fact>
        )}
      </dl>
      <p className="links">
        <Link to={`/runs?realm=${encodeURIComponent(company.Realm)}`}>Runs of this company</Link>
        <Link to={entriesPage({ realm: company.Realm })}>Its entries in the books</Link>
        <Link to={`/limits/${encodeURIComponent(company.Realm)}`}>Its calls and limits</Link>
        <Link to={`/activity?realm=${encodeURIComponent(company.Realm)}`}>Its activity</Link>
        {fault !== undefined && (
          <DocumentLink to={runbookSection('A credential is faulted')}>
            What faults mean
          </DocumentLink>
        )}
      </p>
    </section>
  )
}

/** The times of a grant that is refreshed, and what is shown when they are over. */
const TIMES = [
  { name: 'Access token', member: 'Expiry', past: 'expired' },
  { name: 'Next refresh', member: 'RefreshDueAt', past: 'now' },
  { name: 'Next attempt', member: 'NextTryAt', past: 'now' },
  { name: 'Grant ends, unless refreshed', member: 'IdleExpiry', past: 'ended' },
  { name: 'Grant ends at the latest', member: 'HardExpiry', past: 'ended' },
] as const

const LivingGrant = ({ company }: { readonly company: Company }) =>
  TIMES.map(({ name, member, past }) => {
    const time = company[member]
    return (
      time !== undefined && (
        <Fact key={name} name={name}>
          <Until time={time} past={past} />
        </Fact>
      )
    )
  })

/** What is left of a grant that cannot be refreshed. Its planned end is not shown, because it has no meaning any more. */
function EndedGrant({
  company: { Fault: fault, RefreshedAt, Expiry },
}: {
  readonly company: Company
}) {
  return (
    <>
      <Fact name="Refreshes">
        ended <Ago time={fault?.At ?? RefreshedAt} />
      </Fact>
      {/* token-service does not issue the token of a company that has disconnected the application. */}
      {fault?.Code === 'disconnected' ? (
        <Fact name="Last access token">not issued any more</Fact>
      ) : (
        <Fact name="Last access token ends">
          <Until time={Expiry} past="expired" />
        </Fact>
      )}
    </>
  )
}

function Actions({ company, isPaused }: Omit<StateProps, 'waiting'>) {
  const path = companyPage(company.Realm)
  const name = companyName(company)
  return (
    <div className="buttons">
      <ConnectButton company={company} isPrimary={company.State === 'must_reconnect'} />
      <ActionButton
        verb="Refresh"
        blocked={
          company.State === 'must_reconnect'
            ? 'A refresh cannot end this fault. Reconnect the company.'
            : undefined
        }
        object={name}
        consequence="The provider is asked for a new access token now."
        reason="required"
        act={(form, key) =>
          call('POST', `${path}/refresh`, { Version: company.Version, ...reasonOf(form) }, key)
        }
        done="The access token is refreshed."
      />
      <ActionButton
        verb="Rename"
        object={name}
        consequence="The name is shown in all lists. The id stays."
        reason="none"
        act={(form) => {
          const label = form.get('label')
          const text = typeof label === 'string' ? label.trim() : ''
          return call('POST', `${path}/label`, { Label: text === '' ? null : text })
        }}
        done="The company is renamed."
      >
        <CompanyNameField company={company}>Name</CompanyNameField>
      </ActionButton>
      {!isPaused && (
        <ActionButton
          verb="Pause"
          object={name}
          consequence="Its runs start no step until it is resumed. Steps in flight end. Calls of other programs go on."
          reason="required"
          act={`${path}/runs/pause`}
          done="The runs of the company are paused."
        />
      )}
      <ActionButton
        verb="Disconnect"
        isDangerous
        object={name}
        consequence="The grant is revoked at the provider, and the company is removed. Its waiting runs do not continue. Only its owner can connect it again."
        reason="required"
        typed={company.Realm}
        act={async (form, key) => {
          const body = { Version: company.Version, ...reasonOf(form) }
          const { Revoked } = await call<Disconnected>('POST', `${path}/disconnect`, body, key)
          notify(
            Revoked
              ? 'The company is disconnected, and the provider has ended its grant.'
              : 'The company is disconnected. The provider has not confirmed the end of its grant.',
          )
          goTo('/companies')
        }}
        done=""
      />
    </div>
  )
}

function History({ entries }: { readonly entries: CompanyPageView['History'] }) {
  if (entries.length === 0) return <p className="muted">None.</p>
  return (
    <ol className="changes">
      {entries.map((entry) => (
        <li key={entry.Key}>
          <span title={full(entry.At)}>
            <Ago time={entry.At} />
          </span>
          <span>
            <ActivityText entry={entry} hasOutcome />
            {entry.TraceId !== null && (
              <span className="muted">
                {' '}
                trace <Outside text={entry.TraceId} />
              </span>
            )}
          </span>
        </li>
      ))}
    </ol>
  )
}
