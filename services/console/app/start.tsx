import { QueryClient, QueryClientProvider, useQuery, useQueryClient } from '@tanstack/react-query'
import { lazy, type ReactNode, StrictMode, useEffect } from 'react'
import { createRoot } from 'react-dom/client'
import { call, Problem } from './api.ts'
import {
  CONFIRM_CHECK_MS,
  confirmSession,
  followAttendance,
  isConfirmationDue,
} from './attendance.ts'
import { keepFocus } from './focus-keeper.ts'
import { followNetwork } from './reach.ts'
import { followAddress, match, usePath } from './router.ts'
import { followSettings, useSettings } from './settings.ts'
import type { SessionView } from '../src/contracts/session.ts'
import { followStream } from './live.ts'
import { CompaniesPage } from './pages/companies.tsx'
import { CompanyPage } from './pages/company.tsx'
import { DeadLettersPage } from './pages/dead-letters.tsx'
import { ProcessesPage } from './pages/processes.tsx'
import { RunPage } from './pages/run.tsx'
import { NowPage } from './pages/now.tsx'
import { ServicesPage } from './pages/services.tsx'
import { SettingsPage } from './pages/settings.tsx'
import { SignInPage } from './pages/sign-in.tsx'
import { Frame } from './parts/frame.tsx'
import { Later } from './parts/later.tsx'
import { ProblemHelp } from './parts/problem.tsx'
import { Outside } from './parts/elements.tsx'
import { setServerTime } from './server-clock.ts'
import { usePageTitle } from './attention.ts'
import { Link } from './parts/link.tsx'
import { pages } from '../src/isomorphic/pages.ts'
import { SessionContext } from './parts/blockable-button.tsx'

// The browser loads the code of the following pages only when a person opens one of them.
const RunsPage = lazy(async () => ({ default: (await import('./pages/runs.tsx')).RunsPage }))
const later = async () => import('./later.ts')
const BulkPage = lazy(async () => ({ default: (await later()).BulkPage }))
const ProcessPage = lazy(async () => ({ default: (await later()).ProcessPage }))
const ActivityPage = lazy(async () => ({ default: (await later()).ActivityPage }))
const EntriesPage = lazy(async () => ({ default: (await later()).EntriesPage }))
const LimitsPage = lazy(async () => ({ default: (await later()).LimitsPage }))
const CompanyLimitsPage = lazy(async () => ({ default: (await later()).CompanyLimitsPage }))
const ChartsPage = lazy(async () => ({ default: (await later()).ChartsPage }))
const SandboxPage = lazy(async () => ({ default: (await later()).SandboxPage }))

/** The pages by their addresses, with the parameters of the address. */
const PAGES: readonly (readonly [
  address: string,
  show: (of: Readonly<Record<string, string>>) => ReactNode,
])[] = [
  [pages.now, () => <NowPage />],
  [pages.runs, () => <RunsPage />],
  [pages.run, ({ process = '', id = '' }) => <RunPage process={process} id={id} />],
  [pages.bulk, ({ id = '' }) => <BulkPage id={id} />],
  [pages.entries, () => <EntriesPage />],
  [pages.companies, () => <CompaniesPage />],
  [pages.company, ({ realm = '' }) => <CompanyPage realm={realm} />],
  [pages.processes, () => <ProcessesPage />],
  [pages.process, ({ process = '' }) => <ProcessPage process={process} />],
  [pages.deadLetters, ({ process = '' }) => <DeadLettersPage process={process} />],
  [pages.health, () => <ServicesPage />],
  [pages.limits, () => <LimitsPage />],
  [pages.companyLimits, ({ realm = '' }) => <CompanyLimitsPage realm={realm} />],
  [pages.charts, () => <ChartsPage />],
  [pages.activity, () => <ActivityPage />],
  [pages.sandbox, () => <SandboxPage />],
  [pages.settings, () => <SettingsPage />],
]

function Page({ path }: { readonly path: string }) {
  for (const [address, show] of PAGES) {
    const parameters = match(address, path)
    if (parameters !== null) return show(parameters)
  }
  return <NoSuchPage path={path} />
}

/** Says that the console has no page at an address. */
function NoSuchPage({ path }: { readonly path: string }) {
  usePageTitle('No such page')
  return (
    <>
      <h1 tabIndex={-1}>There is no such page</h1>
      <p className="outside">
        The console has no page at <Outside text={path} />. <Link to="/">Open the first page</Link>
      </p>
    </>
  )
}

/** How often a page without a session tries to read it again. */
const SESSION_RETRY_MS = 3_000

async function readSession(): Promise<SessionView | null> {
  const sentAt = Date.now()
  try {
    const session = await call<SessionView>('GET', '/session')
    setServerTime(session.Now, sentAt)
    return session
  } catch (error) {
    if (error instanceof Problem && error.code === 'sign_in_check_needed') return confirmSession()
    if (error instanceof Problem && error.status === 401) return null
    throw error
  }
}

/** Shows the sign-in page while there is no session, and otherwise the page that the address names. */
function App() {
  const path = usePath()
  // All shown times depend on the settings, so this hook renders the page again when a setting changes.
  useSettings()
  const queries = useQueryClient()
  const session = useQuery({
    queryKey: ['session'],
    queryFn: readSession,
    retry: false,
    refetchInterval: ({ state }) => (state.status === 'error' ? SESSION_RETRY_MS : false),
  })
  const isSignedIn = session.data !== undefined && session.data !== null
  useEffect(() => (isSignedIn ? followStream(queries) : undefined), [isSignedIn, queries])

  const checkAt = session.data?.CheckAt ?? null
  useEffect(() => {
    if (checkAt === null) return undefined
    const timer = setInterval(() => {
      if (!isConfirmationDue(checkAt)) return
      // The session may have been confirmed in another tab.
      void readSession().then((fresh) => {
        queries.setQueryData(['session'], fresh)
        if (fresh?.CheckAt === checkAt) void confirmSession()
      })
    }, CONFIRM_CHECK_MS)
    return () => clearInterval(timer)
  }, [checkAt, queries])

  // While the console cannot be reached, the page keeps its content.
  if (session.data === undefined)
    return session.isError ? <NoSession error={session.error} /> : null
  if (session.data === null || path === '/sign-in') return <SignInPage session={session.data} />
  return (
    <SessionContext value={session.data}>
      <Frame path={path}>
        <Later key={path}>
          <Page path={path} />
        </Later>
      </Frame>
    </SessionContext>
  )
}

/** Says why a page has no session yet. The session is read until it arrives, and then the page is shown. */
function NoSession({ error }: { readonly error: Error }) {
  const isRunning = error instanceof Problem && error.status !== 0
  return (
    <main className="alone">
      <h1>{isRunning ? 'The console cannot read your session' : 'The console does not respond'}</h1>
      <p role="alert">
        {isRunning ? (
          <>
            <Outside text={error.message} />.
            <ProblemHelp error={error} />
          </>
        ) : (
          'Start it.'
        )}
      </p>
      <p className="muted">This page tries again by itself every few seconds.</p>
    </main>
  )
}

followSettings()
followAttendance()
followNetwork()
followAddress()

/**
 * Whether the console would reject the request again. It would not if a person signs in meanwhile (401), or if the run,
 * process or company comes (404).
 */
const isRejection = (error: unknown): boolean =>
  error instanceof Problem && [400, 403, 409, 422].includes(error.status)

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // The event stream keeps the pages up to date, so the queries need not be repeated.
      staleTime: Infinity,
      refetchOnWindowFocus: false,
      // While a service is unavailable, no event reports changes, so a failed read is repeated. A rejected one is not.
      refetchInterval: ({ state: { status, error } }) =>
        status === 'error' && !isRejection(error) ? 5_000 : false,
      // Only requests without a response are retried, because a restarted console is available within seconds. A
      // rejected request would be rejected again.
      retry: (failures, error) => error instanceof Problem && error.status === 0 && failures < 5,
    },
    // With the default mode, an action that a person begins without a network would wait, and would be sent as soon as
    // there is a network again.
    mutations: { networkMode: 'always' },
  },
})

const element = document.getElementById('app')
if (element === null) throw new Error('the page has no element #app')
keepFocus(element)
createRoot(element).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
)
