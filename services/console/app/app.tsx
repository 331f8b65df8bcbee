import { useQuery, useQueryClient } from '@tanstack/react-query'
import { lazy, useEffect } from 'react'
import type { SessionView } from '../src/contracts/session.ts'
import { call, Problem } from './api.ts'
import { CONFIRM_CHECK_MS, confirmSession, isConfirmationDue } from './confirm-session.ts'
import { followStream } from './live.ts'
import { CompaniesPage } from './pages/companies.tsx'
import { CompanyPage } from './pages/company.tsx'
import { DeadLettersPage } from './pages/dead-letters.tsx'
import { ProcessesPage } from './pages/processes.tsx'
import { RunPage } from './pages/run.tsx'
import { NoSuchPage } from './pages/no-such-page.tsx'
import { NowPage } from './pages/now.tsx'
import { ServicesPage } from './pages/services.tsx'
import { SettingsPage } from './pages/settings.tsx'
import { SignInPage } from './pages/sign-in.tsx'
import { Frame } from './parts/frame.tsx'
import { Later } from './parts/later.tsx'
import { ProblemHelp } from './parts/problem.tsx'
import { Outside } from './parts/text.tsx'
import { match, usePath } from './router.ts'
import { setServerTime } from './server-clock.ts'
import { useSettings } from './settings.ts'

// The browser loads the code of the following pages only when a person opens one of them.
const RunsPage = lazy(async () => ({ default: (await import('./runs.ts')).RunsPage }))
const BulkPage = lazy(async () => ({ default: (await import('./later.ts')).BulkPage }))
const ProcessPage = lazy(async () => ({ default: (await import('./later.ts')).ProcessPage }))
const ActivityPage = lazy(async () => ({ default: (await import('./later.ts')).ActivityPage }))
const EntriesPage = lazy(async () => ({ default: (await import('./later.ts')).EntriesPage }))
const LimitsPage = lazy(async () => ({ default: (await import('./later.ts')).LimitsPage }))
const CompanyLimitsPage = lazy(async () => ({
  default: (await import('./later.ts')).CompanyLimitsPage,
}))
const ChartsPage = lazy(async () => ({ default: (await import('./later.ts')).ChartsPage }))
const SandboxPage = lazy(async () => ({ default: (await import('./later.ts')).SandboxPage }))
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
export function App() {
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
    <Frame session={session.data} path={path}>
      <Later key={path}>
        <Page session={session.data} path={path} />
      </Later>
    </Frame>
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

function Page({ session, path }: { readonly session: SessionView; readonly path: string }) {
  if (path === '/settings') return <SettingsPage session={session} />
  if (path === '/services') return <ServicesPage session={session} />
  if (path === '/runs') return <RunsPage session={session} />
  const bulk = match('/bulk/:id', path)
  if (bulk !== null) return <BulkPage key={path} session={session} id={bulk['id'] ?? ''} />
  const run = match('/runs/:process/:id', path)
  if (run !== null)
    return (
      <RunPage key={path} session={session} process={run['process'] ?? ''} id={run['id'] ?? ''} />
    )
  if (path === '/companies') return <CompaniesPage session={session} />
  if (path === '/processes') return <ProcessesPage />
  const process = match('/processes/:process', path)
  if (process !== null)
    return <ProcessPage key={path} session={session} process={process['process'] ?? ''} />
  const letters = match('/dead-letters/:process', path)
  if (letters !== null)
    return <DeadLettersPage key={path} session={session} process={letters['process'] ?? ''} />
  const company = match('/companies/:realm', path)
  if (company !== null)
    return <CompanyPage key={path} session={session} realm={company['realm'] ?? ''} />
  if (path === '/entries') return <EntriesPage />
  if (path === '/limits') return <LimitsPage />
  const limits = match('/limits/:realm', path)
  if (limits !== null) return <CompanyLimitsPage realm={limits['realm'] ?? ''} />
  if (path === '/charts') return <ChartsPage />
  if (path === '/sandbox') return <SandboxPage session={session} />
  if (path === '/activity') return <ActivityPage />
  if (path === '/') return <NowPage session={session} />
  return <NoSuchPage path={path} />
}
