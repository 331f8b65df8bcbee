/**
 * A browser that shows the console. The browser records problems: things that no page of the console may do, such as a
 * request to another host.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import {
  type Browser,
  type BrowserContext,
  chromium,
  type Page,
  type Response,
} from 'playwright-core'
import { expect } from 'vitest'
import { chromiumProgram } from '../support/backends/server-binaries.ts'

/**
 * The features of Chromium that are switched off. This list replaces the list of Playwright, so it repeats the entries
 * of that list that the tests need: pages are drawn at once, and Chromium sends no requests of its own.
 */
const DISABLED_FEATURES = [
  // With these two features, Chromium draws the address bar of each window in a separate process. Each such process takes
  // more processor time than a page of the console.
  'WebUIOmniboxPopup',
  'WebUIOmniboxAimPopup',
  'AimEnabled',
  'AvoidUnnecessaryBeforeUnloadCheckSync',
  'DestroyProfileOnBrowserClose',
  'HttpsFirstBalancedModeAutoEnable',
  'HttpsUpgrades',
  'MediaRouter',
  'NetworkTimeServiceQuerying',
  'OptimizationHints',
  'PaintHolding',
  'PreconnectToSearch',
]

/** Starts the browser. @throws {Error} the browser is not installed. */
export async function launchChromium(): Promise<Browser> {
  const executablePath = process.env['CONSOLE_TEST_BROWSER'] ?? (await chromiumProgram())
  if (executablePath === null)
    throw new Error('Chromium is needed: install it, or set CONSOLE_TEST_BROWSER to its path')
  return chromium.launch({
    executablePath,
    args: [
      '--no-sandbox',
      // The tabs share one process. To start a process for each tab takes more time than to show its page.
      '--renderer-process-limit=1',
      `--disable-features=${DISABLED_FEATURES.join(',')}`,
    ],
  })
}

/** What the browser contexts of a test have received from the console, and what went wrong in them. */
interface Watched {
  /**
   * Violations of the Content-Security-Policy, uncaught errors, dialogs, responses of the console without the security
   * headers, and requests of its pages to another host.
   */
  readonly problems: string[]
  readonly received: Promise<string>[]
  /** The paths of the files of the browser program that have been read. */
  readonly files: Set<string>
}

export interface WatchedContext extends Pick<Watched, 'problems'> {
  readonly context: BrowserContext
  /**
   * The bodies of the responses of the console so far, without the event stream, and without responses that the browser
   * has discarded because their page was closed.
   */
  readonly bodies: () => Promise<readonly string[]>
  /** Opens an address in a new tab. */
  readonly open: (url: string) => Promise<Page>
  /** Closes the tabs of a test and ends its session, and expects that nothing went wrong. */
  readonly endTest: () => Promise<void>
  /** Opens another context for the same console. Both have the same problems and the same bodies. */
  readonly another: () => Promise<WatchedContext>
}

/** The security headers of every response, with their values. */
const HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "manifest-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), microphone=(), geolocation=()',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
}

/** Opens a browser context (separate cookies and storage) for the console at `consoleUrl`. */
export async function watchedContext(
  browser: Browser,
  consoleUrl: string,
  watched: Watched = { problems: [], received: [], files: new Set() },
): Promise<WatchedContext> {
  const { problems, received, files } = watched
  const context = await browser.newContext()
  // This is less than the timeout of a test, so that a failure names the missing element.
  context.setDefaultTimeout(20_000)
  const isOfConsole = (url: string): boolean => url.startsWith(`${consoleUrl}/`)

  context.on('response', (response) => {
    if (!isOfConsole(response.url())) return
    problems.push(...missingHeaders(response))
    const { pathname } = new URL(response.url())
    // A file of the browser program never changes, so the body of each file is read only once.
    if (pathname === '/api/stream' || files.has(pathname)) return
    if (pathname.startsWith('/assets/')) files.add(pathname)
    received.push(response.text().catch(() => ''))
  })
  context.on('request', (request) => {
    // A link of a page may lead to another host, but the page itself must request nothing from another host.
    if (request.isNavigationRequest() || request.url().startsWith('data:')) return
    if (isOfConsole(request.frame().url()) && !isOfConsole(request.url()))
      problems.push(`the console requested ${request.url()}`)
  })
  context.on('page', (page) => {
    page.on('console', (message) => {
      if (/Content Security Policy|Trusted/i.test(message.text())) problems.push(message.text())
    })
    page.on('pageerror', (error) => problems.push(error.message))
    page.on('dialog', (dialog) => {
      problems.push(`a dialog was opened: ${dialog.message()}`)
      void dialog.dismiss()
    })
  })
  return {
    context,
    problems,
    bodies: () => Promise.all(received),
    async open(url) {
      const page = await context.newPage()
      await page.goto(url)
      return page
    },
    async endTest() {
      for (const page of context.pages()) await page.close()
      await context.clearCookies()
      expect(problems).toEqual([])
    },
    another: () => watchedContext(browser, consoleUrl, watched),
  }
}

/**
 * Waits until `check` passes while the clock of all pages runs faster. The clock must have been installed before the
 * pages were opened.
 */
export const soon = (context: BrowserContext, check: () => Promise<void>): Promise<void> =>
  eventually(
    async () => {
      await context.clock.fastForward(500)
      await check()
    },
    { everyMs: 50 },
  )

function missingHeaders(response: Response): readonly string[] {
  const headers = response.headers()
  // A response that a test sends in place of the console has no header `Date`. It also has no security headers, so they
  // are not checked.
  if (headers['date'] === undefined) return []
  const expected = new URL(response.url()).pathname.startsWith('/api/')
    ? { ...HEADERS, 'cache-control': 'no-store' }
    : HEADERS
  return Object.entries(expected).flatMap(([name, value]) =>
    headers[name] === value ? [] : [`${response.url()} has not ${name}: ${value}`],
  )
}
