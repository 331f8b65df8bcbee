/** A console whose services are a fake installation, and a browser that shows this console. */
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import type { Browser, Page } from 'playwright-core'
import { startEmbeddedConsole } from '../../host/src/embedded-console.ts'
import { launchChromium, type WatchedContext, watchedContext } from './browser.ts'
import { type FakeInstallation, startFakeInstallation } from './fake-installation.ts'
import { expectNoSecrets, recordSentTexts, type SentTexts } from './secrets.ts'
import { PASSWORD, type Users, usersFile } from './users.ts'

/** The keys with which the console calls the services. No browser may receive them. */
export const KEYS = {
  SERVICE_API_KEY: 'a-service-key-that-no-browser-may-see-0123456789',
  OPERATOR_API_KEY: 'an-operator-key-that-no-browser-may-see-0123456789',
}

export interface FakeConsole extends WatchedContext, AsyncDisposable {
  readonly fake: FakeInstallation
  readonly browser: Browser
  readonly url: string
  /** What the console has sent. */
  readonly sent: SentTexts
  readonly signInLink: () => string | null
  /** Opens a tab, and signs in with a new one-time link. */
  signIn(): Promise<Page>
}

/**
 * Starts a fake installation with the console, and a browser for this console. At the end, no browser may have received
 * a key of the console or the password of a person.
 *
 * @throws {Error} the browser is not installed, or the console did not start.
 */
export async function startFakeConsole(
  env: Readonly<Record<string, string>> = {},
  users: Users = {},
): Promise<FakeConsole> {
  await using opened = new AsyncDisposableStack()
  const usersSetting = await usersFile(opened, users)
  const fake = opened.use(await startFakeInstallation())
  const logger = createLogger('console', 'silent')
  const running = await startEmbeddedConsole({
    settings: {
      ...KEYS,
      PORT: '0',
      COORDINATOR_URL: fake.url,
      TOKEN_SERVICE_URL: fake.url,
      GATEWAY_URL: fake.url,
      ...usersSetting,
      ...env,
    },
    logger,
    health: createHealth(logger),
  })
  if (running === null) throw new Error('the console did not start')
  opened.use(running)
  const sent = opened.use(recordSentTexts(running.url))
  const browser = await launchChromium()
  opened.defer(() => browser.close())
  const watched = await watchedContext(browser, running.url)
  const resources = opened.move()
  return {
    ...watched,
    fake,
    browser,
    url: running.url,
    sent,
    signInLink: () => running.signInLink(),
    async signIn() {
      const page = await watched.open(running.signInLink() ?? '')
      await page.getByRole('navigation').waitFor()
      return page
    },
    async [Symbol.asyncDispose]() {
      try {
        expectNoSecrets([...sent.all(), ...(await watched.bodies())], {
          ...KEYS,
          password: PASSWORD,
        })
      } finally {
        await resources.disposeAsync()
      }
    },
  }
}
