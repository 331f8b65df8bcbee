import { useQuery, useQueryClient } from '@tanstack/react-query'
import { type ReactNode, useCallback, useState } from 'react'
import { call, Problem } from '../api.ts'
import { urgentCount, useNow } from '../now.ts'
import { useDesktopNotices, useTabIcon, useTabTitle } from '../attention.ts'
import { DocumentLink, Link, runbookSection } from './link.tsx'
import { clockText, timeOfDay, useSeconds } from '../clock.ts'
import { type LiveState, useLiveState, useLostSince } from '../live.ts'
import { useNotice } from '../notice.ts'
import { goTo } from '../router.ts'
import { useReach } from '../reach.ts'
import { KeysDialog, useShortcuts } from './shortcuts.tsx'
import { SearchDialog } from './search-dialog.tsx'
import { State, type Tone } from './glyph.tsx'
import { Outside } from './elements.tsx'
import { useSession } from './blockable-button.tsx'

const PAGES = [
  { path: '/', name: 'Now' },
  { path: '/runs', name: 'Runs' },
  { path: '/entries', name: 'Entries' },
  { path: '/companies', name: 'Companies' },
  { path: '/processes', name: 'Processes' },
  { path: '/services', name: 'Health' },
  { path: '/limits', name: 'Limits' },
  { path: '/charts', name: 'Charts' },
  { path: '/activity', name: 'Activity' },
  { path: '/sandbox', name: 'Sandbox' },
] as const

/** The pages that are not in the navigation, but that the search finds. */
const FURTHER_PAGES = [{ path: '/settings', name: 'Settings' }] as const

const LIVE: Readonly<Record<LiveState, { readonly tone: Tone; readonly text: string }>> = {
  connecting: { tone: 'quiet', text: 'connecting' },
  live: { tone: 'good', text: 'live' },
  polling: { tone: 'warn', text: 'every 5 s' },
  lost: { tone: 'bad', text: 'no connection' },
}

const isWithin = (page: string, path: string): boolean =>
  path === page || path.startsWith(`${page}/`)

export interface FrameProps {
  readonly path: string
  readonly children: ReactNode
}

/** The frame of every page: the navigation, the state of the live connection, the clock and the person's menu. */
export function Frame({ path, children }: FrameProps) {
  const session = useSession()
  const now = useNow()
  const live = useLiveState()
  const notice = useNotice()
  const urgent = now === undefined ? 0 : urgentCount(now)
  const shownPages = PAGES.filter(({ path: of }) => of !== '/sandbox' || session.Sandbox)
  const shown = isWithin('/dead-letters', path)
    ? '/processes'
    : isWithin('/bulk', path)
      ? '/runs'
      : path
  const current =
    PAGES.find((page) => page.path !== '/' && isWithin(page.path, shown)) ??
    (path === '/' ? PAGES[0] : null)
  const name = current?.name ?? (path === '/settings' ? 'Settings' : 'No such page')
  const [opened, setOpened] = useState<'search' | 'keys' | null>(null)
  const search = useCallback(() => setOpened('search'), [])
  const keys = useCallback(() => setOpened('keys'), [])
  const close = useCallback(() => setOpened(null), [])
  useShortcuts({ onSearch: search, onKeys: keys })
  useTabTitle(name, urgent)
  useTabIcon(now?.Conditions.some(({ Severity }) => Severity === 'critical') === true)
  useDesktopNotices(now?.Conditions)
  return (
    <div className="frame">
      <a className="skip" href="#content">
        Skip to the content
      </a>
      <header className="bar">
        <button type="button" className="plain drawer" popoverTarget="pages">
          <span aria-hidden="true">☰</span>
          <span className="unseen">Pages</span>
        </button>
        <Link to="/" className="brand">
          <span className="mark" aria-hidden="true" />
          Integration Host
        </Link>
        <button
          type="button"
          className="find"
          aria-haspopup="dialog"
          aria-keyshortcuts="Control+K"
          onClick={search}
        >
          Search… <kbd aria-hidden="true">Ctrl K</kbd>
        </button>
        <output className="status">
          <State tone={LIVE[live].tone}>{LIVE[live].text}</State>
        </output>
        <Clock />
        <PersonMenu />
      </header>
      <LostNotice />
      <nav id="pages" popover="auto" aria-label="Pages">
        {shownPages.map((page) => (
          <Link key={page.path} to={page.path} isCurrent={page === current}>
            {page.name}
            {page.path === '/' && urgent > 0 && (
              <span className="count">
                {urgent}
                <span className="unseen"> need attention</span>
              </span>
            )}
          </Link>
        ))}
      </nav>
      <main id="content">{children}</main>
      {opened === 'search' && (
        <SearchDialog pages={[...shownPages, ...FURTHER_PAGES]} onClose={close} />
      )}
      {opened === 'keys' && <KeysDialog onClose={close} />}
      <output className="toast">{notice}</output>
    </div>
  )
}

function LostNotice() {
  const since = useLostSince()
  const isReachable = useReach()
  const { error: problem } = useQuery({ queryKey: ['session'], enabled: false })
  if (since === null) return null
  const text =
    problem instanceof Problem && problem.code === 'store_unavailable'
      ? `${problem.message}, so there is no connection to the console`
      : 'No connection to the console'
  return (
    <p className="notice" role="alert">
      <Outside text={text} /> since {timeOfDay(since)}. What you see is from then; it reconnects by
      itself.{!isReachable && ' Until then, actions are not possible.'}
    </p>
  )
}

function Clock() {
  const seconds = useSeconds()
  return <time className="clock">{clockText(seconds)}</time>
}

function PersonMenu() {
  const session = useSession()
  const queries = useQueryClient()
  const signOut = async (): Promise<void> => {
    await call('DELETE', '/session').catch(() => {})
    queries.clear()
    goTo('/sign-in')
    await queries.invalidateQueries({ queryKey: ['session'] })
  }
  return (
    <div className="person">
      <button type="button" className="plain" popoverTarget="person-menu">
        {session.User} <span aria-hidden="true">▾</span>
      </button>
      <div id="person-menu" popover="auto" className="menu">
        <p className="muted">
          Signed in as <strong>{session.User}</strong>
          {session.Role !== session.User && `, ${session.Role}`}
        </p>
        <Link to="/settings">Settings</Link>
        <DocumentLink to={runbookSection('Runbook')}>Runbook</DocumentLink>
        <button type="button" onClick={() => void signOut()}>
          Sign out
        </button>
      </div>
    </div>
  )
}
