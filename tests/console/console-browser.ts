/** An embedded host with the web console, and a browser that shows this console. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { BrowserContext, Page } from 'playwright-core'
import { type Host, hostReady, startHost } from '../../host/src/host.ts'
import { launchChromium, watchedContext } from './browser.ts'

export interface ConsoleBrowser extends AsyncDisposable {
  readonly host: Host
  readonly console: NonNullable<Host['console']>
  readonly context: BrowserContext
  /** The log of the embedded host. */
  readonly log: () => string
  /**
   * The problems that `WatchedContext.problems` describes, such as violations of the Content-Security-Policy. Empty in
   * a successful test.
   */
  readonly problems: string[]
  /** Opens a page of the console in a new tab. */
  open(path: string): Promise<Page>
  /** Opens a tab, and signs in with a new one-time link. */
  signIn(): Promise<Page>
  /** Sends a request to the control API of the sandbox provider. */
  sandbox(path: string): Promise<void>
}

/**
 * Starts an embedded host with the console, and a browser for this console.
 *
 * @throws {Error} the browser is not installed, or the console did not start.
 */
export async function startConsoleBrowser(
  env: Readonly<Record<string, string>> = {},
): Promise<ConsoleBrowser> {
  await using opened = new AsyncDisposableStack()
  const dataDir = await mkdtemp(join(tmpdir(), 'console-'))
  opened.defer(() => rm(dataDir, { recursive: true, force: true }))
  let log = ''
  const host = opened.use(
    await startHost({
      dataDir,
      ports: 'free',
      env: { LOCAL_PULL_SECONDS: '1', ...env },
      logLevel: 'info',
      logTo: { write: (line) => void (log += line) },
      withConsole: true,
    }),
  )
  await hostReady(host)
  const { console: running, sandboxProvider } = host
  if (running === null || sandboxProvider === null) throw new Error(`no console: ${log}`)
  const browser = await launchChromium()
  opened.defer(() => browser.close())
  const { context, problems, bodies, open } = await watchedContext(browser, running.url)
  const resources = opened.move()

  return {
    host,
    console: running,
    context,
    log: () => log,
    problems,
    open: (path) => open(running.url + path),
    async signIn() {
      const page = await open(running.signInLink() ?? '')
      await page.getByRole('navigation').waitFor()
      return page
    },
    async sandbox(path) {
      const response = await fetch(`${sandboxProvider}/sandbox/${path}`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
      })
      if (!response.ok) throw new Error(`the sandbox responds with ${response.status} to ${path}`)
    },
    async [Symbol.asyncDispose]() {
      try {
        await expectNoSecrets(dataDir, await bodies())
      } finally {
        await resources.disposeAsync()
      }
    },
  }
}

/** Matches the access tokens, refresh tokens and authorization codes that the sandbox provider issues. */
const SANDBOX_SECRET = /sandbox-(?:access|refresh|code)-[\w-]{20}/

/** Fails if one of the bodies contains a token, a code, or a secret from the data folder of the host. */
async function expectNoSecrets(dataDir: string, bodies: readonly string[]): Promise<void> {
  const folder = join(dataDir, 'secrets')
  const found: (readonly [file: string, secret: string])[] = []
  for (const file of await readdir(folder)) {
    const secret = (await readFile(join(folder, file), 'utf8')).trim()
    // The list of accepted keys is not a secret, because it contains only digests. The lock file of the list is empty.
    if (!file.endsWith('.json') && secret !== '') found.push([file, secret])
  }
  if (found.length < 4 || bodies.length < 5)
    throw new Error(`only ${found.length} secrets and ${bodies.length} bodies were compared`)
  for (const body of bodies) {
    const [file] = found.find(([, secret]) => body.includes(secret)) ?? []
    if (file !== undefined) throw new Error(`a browser received the secret ${file}`)
    if (SANDBOX_SECRET.test(body)) throw new Error('a browser received a token of the provider')
  }
}
