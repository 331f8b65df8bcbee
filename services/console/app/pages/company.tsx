import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import type { CompanyPageView, Disconnected } from '../../src/contracts/companies.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { entriesPage } from '../../src/isomorphic/pages.ts'
import { call, Problem } from '../api.ts'
import { full } from '../clock.ts'
import { runbookSection } from '../documents.ts'
import { notify } from '../notice.ts'
import { ActionButton, reasonOf } from '../parts/action-button.tsx'
import { ActivityText } from '../parts/activity-text.tsx'
import { Ago } from '../parts/ago.tsx'
import { roleReason } from '../parts/blockable-button.tsx'
import { CompanyNameField } from '../parts/company-name-field.tsx'
import { CompanyState, companyName, Until } from '../parts/company.tsx'
import { ConnectButton } from '../parts/connect-button.tsx'
import { DocumentLink, Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { ResumeCompanyButton } from '../parts/resume-company-button.tsx'
import { Outside } from '../parts/text.tsx'
import { WaitingRuns } from '../parts/waiting-runs.tsx'
import { goTo } from '../router.ts'

export interface CompanyPageProps {
  readonly session: SessionView
  readonly realm: string
}

/**
 * Shows one company: its state and the remedy, when its token and its grant end, and what has
 * happened to it.
 */
export function CompanyPage({ session, realm }: CompanyPageProps) {
  const { data, error } = useQuery({
    queryKey: ['company', realm],
    queryFn: () => call<CompanyPageView>('GET', `/companies/${encodeURIComponent(realm)}`),
    refetchInterval: ({ state }) => (state.status === 'error' ? 5_000 : false),
  })
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
          {pause !== null && <Pause pause={pause} company={company} session={session} />}
          <State
            company={company}
            waiting={data?.WaitingRuns ?? 0}
            session={session}
            isPaused={pause !== null}
          />
          <WaitingRuns
            realm={company.Realm}
            count={data?.WaitingRuns ?? null}
            isPaused={pause !== null}
          />
          <section className="panel" aria-labelledby="history">
            <h2 id="history">History</h2>
            <History entries={data?.History ?? []} />
          </section>
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
  readonly session: SessionView
  readonly isPaused: boolean
}

/** Says that the runs of the company are paused, since when, by whom and why. */
function Pause({
  pause,
  company,
  session,
}: Pick<StateProps, 'company' | 'session'> & {
  readonly pause: NonNullable<CompanyPageView['Pause']>
}) {
  return (
    <section className="panel" aria-label="Pause">
      <p className="headline">
        <strong>Paused</strong>
        <span className="muted outside">
          {pause.At !== null && <Ago time={pause.At} />}
          {pause.By !== null && (
            <>
              {' '}
              by <Outside text={pause.By} />
            </>
          )}
        </span>
      </p>
      <p className="outside">
        {pause.Reason !== null && (
          <>
            “<Outside text={pause.Reason} />
            ”.{' '}
          </>
        )}
        Its runs start no step until it is resumed. Events and decisions are accepted, webhooks are
        delivered, and deadlines count.
      </p>
      <div className="buttons">
        <ResumeCompanyButton
          realm={company.Realm}
          name={companyName(company)}
          role={roleReason(session)}
        />
      </div>
    </section>
  )
}

function State({ company, waiting, session, isPaused }: StateProps) {
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
      <Actions company={company} session={session} isPaused={isPaused} />
      <dl className="figures">
        <Fact name="Id" value={<Outside text={company.Realm} />} />
        {company.State === 'must_reconnect' ? (
          <EndedGrant company={company} />
        ) : (
          <LivingGrant company={company} />
        )}
        {fault !== undefined && <Fact name="Fault" value={<Outside text={fault.Code} />} />}
        {fault?.TraceId !== undefined && (
          <Fact name="Trace id of the provider" value={<Outside text={fault.TraceId} />} />
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

/** The times of a grant that is refreshed. */
function LivingGrant({ company }: { readonly company: Company }) {
  return (
    <>
      <Fact name="Access token" value={<Until time={company.Expiry} past="expired" />} />
      {company.RefreshDueAt !== undefined && (
        <Fact name="Next refresh" value={<Until time={company.RefreshDueAt} past="now" />} />
      )}
      {company.NextTryAt !== undefined && (
        <Fact name="Next attempt" value={<Until time={company.NextTryAt} past="now" />} />
      )}
      {company.IdleExpiry !== undefined && (
        <Fact
          name="Grant ends, unless refreshed"
          value={<Until time={company.IdleExpiry} past="ended" />}
        />
      )}
      {company.HardExpiry !== undefined && (
        <Fact
          name="Grant ends at the latest"
          value={<Until time={company.HardExpiry} past="ended" />}
        />
      )}
    </>
  )
}

/** What is left of a grant that cannot be refreshed. Its planned end is not shown, because it has no meaning any more. */
function EndedGrant({
  company: { Fault: fault, RefreshedAt, Expiry },
}: {
  readonly company: Company
}) {
  return (
    <>
      <Fact
        name="Refreshes"
        value={
          <>
            ended <Ago time={fault?.At ?? RefreshedAt} />
          </>
        }
      />
      <Fact
        name={fault?.Code === 'disconnected' ? 'Last access token' : 'Last access token ends'}
        // token-service does not issue the token of a company that has disconnected the application.
        value={
          fault?.Code === 'disconnected' ? (
            'not issued any more'
          ) : (
            <Until time={Expiry} past="expired" />
          )
        }
      />
    </>
  )
}

function Fact({ name, value }: { readonly name: string; readonly value: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd className="outside">{value}</dd>
    </div>
  )
}

function Actions({ company, session, isPaused }: Omit<StateProps, 'waiting'>) {
  const path = `/companies/${encodeURIComponent(company.Realm)}`
  const role = roleReason(session)
  const name = companyName(company)
  return (
    <div className="buttons">
      <ConnectButton
        session={session}
        company={company}
        isPrimary={company.State === 'must_reconnect'}
      />
      <ActionButton
        verb="Refresh"
        blocked={
          role ??
          (company.State === 'must_reconnect'
            ? 'A refresh cannot end this fault. Reconnect the company.'
            : undefined)
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
        blocked={role}
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
          blocked={role}
          object={name}
          consequence="Its runs start no step until it is resumed. Steps in flight end. Calls of other programs go on."
          reason="required"
          act={(form, key) => call('POST', `${path}/runs/pause`, reasonOf(form), key)}
          done="The runs of the company are paused."
        />
      )}
      <ActionButton
        verb="Disconnect"
        isDangerous
        blocked={role}
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
