/** An embedded host with the web console, and a browser that shows this console. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { BrowserContext, Page } from 'playwright-core'
import { type Host, hostReady, startHost } from '../../host/src/host.ts'
import { launchChromium, type WatchedContext, watchedContext } from './browser.ts'
import { expectNoSecrets, recordSentTexts, type Secrets } from './secrets.ts'
import { PASSWORD, type Users, usersFile } from './users.ts'

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
  /** Opens another browser context for this console. Its problems are in `problems`, too. */
  readonly another: WatchedContext['another']
  readonly endTest: WatchedContext['endTest']
  /** Opens a page of the console in a new tab. */
  open(path: string): Promise<Page>
  /** Opens a tab, and signs in with a new one-time link. */
  signIn(): Promise<Page>
  /** Sends a request with the service key: a GET, or a POST if there is a body. */
  readonly request: (url: string, body?: unknown, method?: string) => Promise<Response>
  /** Sends a request to the control API of the sandbox provider. */
  readonly sandbox: (path: string) => Promise<void>
}

/**
 * Starts an embedded host with the console, and a browser for this console. At the end, no browser may have received a
 * secret of the host, the password of a person or one of `secrets`.
 *
 * @throws {Error} the browser is not installed, or the console did not start.
 */
export async function startConsoleBrowser(
  env: Readonly<Record<string, string>> = {},
  users: Users = {},
  secrets: () => Secrets = () => ({}),
): Promise<ConsoleBrowser> {
  await using opened = new AsyncDisposableStack()
  const dataDir = await mkdtemp(join(tmpdir(), 'console-'))
  opened.defer(() => rm(dataDir, { recursive: true, force: true }))
  let log = ''
  const host = opened.use(
    await startHost({
      dataDir,
      ports: 'free',
      env: { LOCAL_PULL_SECONDS: '1', ...(await usersFile(opened, users)), ...env },
      logLevel: 'info',
      logTo: { write: (line) => void (log += line) },
      withConsole: true,
    }),
  )
  await hostReady(host)
  const { console: running, sandboxProvider } = host
  if (running === null || sandboxProvider === null) throw new Error(`no console: ${log}`)
  const sent = opened.use(recordSentTexts(running.url))
  const browser = await launchChromium()
  opened.defer(() => browser.close())
  const watched = await watchedContext(browser, running.url)
  const { context, problems, another, endTest, open } = watched
  const resources = opened.move()

  return {
    host,
    console: running,
    context,
    log: () => log,
    problems,
    another,
    endTest,
    open: (path) => open(running.url + path),
    async signIn() {
      const page = await open(running.signInLink() ?? '')
      await page.getByRole('navigation').waitFor()
      return page
    },
    request: (url, body, method = body === undefined ? 'GET' : 'POST') =>
      fetch(url, {
        method,
        headers: {
          Authorization: `Bearer ${host.serviceKey}`,
          'Content-Type': 'application/json',
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      }),
    async sandbox(path) {
      const response = await fetch(`${sandboxProvider}/sandbox/${path}`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
      })
      if (!response.ok) throw new Error(`the sandbox responds with ${response.status} to ${path}`)
    },
    async [Symbol.asyncDispose]() {
      try {
        const texts = [...sent.all(), ...(await watched.bodies())]
        expectNoSecrets(texts, {
          ...(await secretsOf(dataDir)),
          password: PASSWORD,
          ...secrets(),
        })
      } finally {
        await resources.disposeAsync()
      }
    },
  }
}

/** Matches the access tokens, refresh tokens and authorization codes that the sandbox provider issues. */
export const SANDBOX_SECRET = /sandbox-(?:access|refresh|code)-[\w-]{20}/

/** Returns the secrets in the data folder of the host, by their files, and the pattern of the provider's secrets. */
async function secretsOf(dataDir: string): Promise<Secrets> {
  const folder = join(dataDir, 'secrets')
  const found: Record<string, string | RegExp> = {}
  for (const file of await readdir(folder)) {
    const secret = (await readFile(join(folder, file), 'utf8')).trim()
    // The list of accepted keys is not a secret, because it contains only digests. The lock file of the list is empty.
    if (!file.endsWith('.json') && secret !== '') found[file] = secret
  }
  const count = Object.keys(found).length
  if (count < 4) throw new Error(`only ${count} secrets were found`)
  return { ...found, 'of the provider': SANDBOX_SECRET }
}
