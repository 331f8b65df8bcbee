import { useInfiniteQuery } from '@tanstack/react-query'
import type { FormEvent } from 'react'
import type { CompaniesView, CompanyView } from '../../src/contracts/companies.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { faultText } from '../../src/isomorphic/texts.ts'
import { companyPage } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { Ago } from '../parts/ago.tsx'
import {
  COMPANY_STATES,
  companyName,
  CompanyState,
  companyStateText,
  GrantEnd,
  Until,
} from '../parts/company.tsx'
import { ConnectButton } from '../parts/connect-button.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { TableHead } from '../parts/table-head.tsx'
import { Outside } from '../parts/text.tsx'
import { setQuery, useQueryText } from '../router.ts'

/** Shows the list of companies, and the number of companies in each state. */
export function CompaniesPage({ session }: { readonly session: SessionView }) {
  const text = useQueryText()
  const query = new URLSearchParams(text)
  const companies = useInfiniteQuery({
    queryKey: ['companies', text],
    queryFn: ({ pageParam }) => {
      const page = new URLSearchParams(text)
      if (pageParam !== null) page.set('cursor', pageParam)
      return call<CompaniesView>('GET', `/companies?${page}`)
    },
    initialPageParam: null as string | null,
    getNextPageParam: ({ Next }) => Next,
    refetchInterval: ({ state }) => (state.status === 'error' ? 5_000 : false),
  })
  const counts = companies.data?.pages[0]?.Counts
  const rows = companies.data?.pages.flatMap((page) => page.Companies) ?? []
  const search = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault()
    const q = new FormData(event.currentTarget).get('q')
    const next = new URLSearchParams(query)
    if (typeof q === 'string' && q.trim() !== '') next.set('q', q.trim())
    else next.delete('q')
    setQuery(next)
  }
  const addressOf = (state: string | null): string => {
    const next = new URLSearchParams(query)
    if (state === null) next.delete('state')
    else next.set('state', state)
    return next.size === 0 ? '/companies' : `/companies?${next}`
  }
  return (
    <>
      <h1 tabIndex={-1}>Companies</h1>
      <nav aria-label="States of companies" className="chips">
        <Link to={addressOf(null)} isCurrent={!query.has('state')}>
          All{counts !== undefined && <span className="muted"> {counts.Total}</span>}
        </Link>
        {(Object.keys(COMPANY_STATES) as CompanyView['State'][]).map((state) => {
          const count = counts?.States[state] ?? 0
          return (
            <Link key={state} to={addressOf(state)} isCurrent={query.get('state') === state}>
              {companyStateText(state)}
              {count > 0 && <span className="muted"> {count}</span>}
            </Link>
          )
        })}
      </nav>
      <form className="filters" onSubmit={search} aria-label="Filter" key={text}>
        <label>
          Name or id
          <input name="q" defaultValue={query.get('q') ?? ''} autoComplete="off" />
        </label>
        <div className="buttons">
          <button type="submit">Filter</button>
        </div>
      </form>
      <div className="buttons">
        <ConnectButton session={session} />
      </div>
      <ReadProblem error={companies.error} hasData={companies.data !== undefined} />
      {rows.length > 0 && <CompanyTable session={session} rows={rows} />}
      {companies.isSuccess && rows.length === 0 && (
        <section className="panel" aria-label="No companies">
          {text === '' ? (
            <p>
              No company is connected yet. <em>Connect a company</em> makes a link, with which the
              owner of a company connects it{session.Sandbox && '; open it to try the sandbox'}.
            </p>
          ) : (
            <p>
              No company matches. <Link to="/companies">Show all companies</Link>
            </p>
          )}
        </section>
      )}
      {companies.hasNextPage && (
        <div className="more">
          <button type="button" onClick={() => void companies.fetchNextPage()}>
            Show more companies
          </button>
        </div>
      )}
    </>
  )
}

interface CompanyTableProps {
  readonly session: SessionView
  readonly rows: readonly CompanyView[]
}

function CompanyTable({ session, rows }: CompanyTableProps) {
  return (
    <div className="panel flush">
      <table>
        <TableHead
          columns={[
            'State',
            ['Company', 'company'],
            ['Access token', 'wider'],
            ['Grant ends', 'wider'],
            ['Refresh', 'narrow except-phone'],
          ]}
        />
        <tbody>
          {rows.map((company) => (
            <tr key={company.Name}>
              <td className="outside">
                <CompanyState state={company.State} />
                {company.IsPaused === true && <div className="muted">runs are paused</div>}
                {company.Fault !== undefined && (
                  <div className="muted">
                    <Outside text={faultText(company.Fault.Code)} />
                  </div>
                )}
              </td>
              <td className="outside">
                <Link to={companyPage(company.Realm)}>
                  <Outside text={companyName(company)} />
                </Link>
                {companyName(company) !== company.Realm && (
                  <div className="muted">
                    <Outside text={company.Realm} />
                  </div>
                )}
                {company.State === 'must_reconnect' && (
                  <div className="buttons">
                    <ConnectButton session={session} company={company} />
                  </div>
                )}
              </td>
              <td className="wider">
                <Until time={company.Expiry} past="expired" />
              </td>
              <td className="wider">
                <GrantEnd company={company} />
              </td>
              <td className="except-phone">
                {company.Fault !== undefined && 'first failed '}
                <Ago time={company.Fault?.Since ?? company.Fault?.At ?? company.RefreshedAt} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
