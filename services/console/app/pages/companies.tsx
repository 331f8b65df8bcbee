import { useReadPages } from '../reads.ts'
import { useSession } from '../parts/blockable-button.tsx'
import { FilterForm, FilterLinks } from '../parts/filters.tsx'
import { MoreButton, Outside, TableHead } from '../parts/elements.tsx'
import type { CompaniesView, CompanyView } from '../../src/contracts/companies.ts'
import { faultText } from '../../src/isomorphic/texts.ts'
import { companyPage } from '../../src/isomorphic/pages.ts'
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
import { useQueryText } from '../router.ts'

const STATES = Object.fromEntries(
  (Object.keys(COMPANY_STATES) as CompanyView['State'][]).map((state) => [
    state,
    companyStateText(state),
  ]),
)

/** Shows the list of companies, and the number of companies in each state. */
export function CompaniesPage() {
  const { Sandbox } = useSession()
  const text = useQueryText()
  const query = new URLSearchParams(text)
  const companies = useReadPages<CompaniesView>('/companies', text, ({ Next }) => Next)
  const counts = companies.data?.pages[0]?.Counts
  const rows = companies.data?.pages.flatMap((page) => page.Companies) ?? []
  return (
    <>
      <h1 tabIndex={-1}>Companies</h1>
      <FilterLinks
        label="States of companies"
        path="/companies"
        query={query}
        name="state"
        values={STATES}
        counts={counts?.States}
        total={counts?.Total}
      />
      <FilterForm key={text} fields={[{ name: 'q', label: 'Name or id' }]} query={query} />
      <div className="buttons">
        <ConnectButton />
      </div>
      <ReadProblem error={companies.error} hasData={companies.data !== undefined} />
      {rows.length > 0 && <CompanyTable rows={rows} />}
      {companies.isSuccess && rows.length === 0 && (
        <section className="panel" aria-label="No companies">
          {text === '' ? (
            <p>
              No company is connected yet. <em>Connect a company</em> makes a link, with which the
              owner of a company connects it{Sandbox && '; open it to try the sandbox'}.
            </p>
          ) : (
            <p>
              No company matches. <Link to="/companies">Show all companies</Link>
            </p>
          )}
        </section>
      )}
      <MoreButton list={companies}>Show more companies</MoreButton>
    </>
  )
}

function CompanyTable({ rows }: { readonly rows: readonly CompanyView[] }) {
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
                <Link to={companyPage(company.Realm)} text={companyName(company)} />
                {companyName(company) !== company.Realm && (
                  <div className="muted">
                    <Outside text={company.Realm} />
                  </div>
                )}
                {company.State === 'must_reconnect' && (
                  <div className="buttons">
                    <ConnectButton company={company} />
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
