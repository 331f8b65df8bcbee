/**
 * Tests two replicas of the console that share Redis, behind a load balancer without sticky sessions: consecutive
 * requests of a browser reach different replicas. The replicas are processes of their own and read the services at their
 * usual intervals.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Browser, Page } from 'playwright-core'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { createRedisServers } from '../support/backends/redis-servers.ts'
import { expectAccessible } from './accessibility.ts'
import { type AlternatingProxy, startAlternatingProxy } from './alternating-proxy.ts'
import { launchChromium, soon, type WatchedContext, watchedContext } from './browser.ts'
import { type ConsoleProcess, startConsoleProcess } from './console-process.ts'
import { KEYS } from './fake-console.ts'
import {
  type FakeInstallation,
  type FakeRun,
  PROCESS,
  startFakeInstallation,
} from './fake-installation.ts'
import { PASSWORD, signInAs, usersFile } from './users.ts'

const STATUSES = ['Queued', 'Failed', 'Retrying', 'Completed'] as const

describe('two replicas of the console behind one address', () => {
  const opened = new AsyncDisposableStack()
  let fake: FakeInstallation
  let proxy: AlternatingProxy
  /** The connections of the replicas to Redis. */
  let store: Relay
  let browser: Browser
  let replicas: ConsoleProcess[]
  let watched: WatchedContext[]

  beforeAll(async () => {
    fake = opened.use(await startFakeInstallation())
    const users = await usersFile(opened, { ada: 'operator', ben: 'operator' })
    const servers = opened.use(await createRedisServers())
    const redis = await servers.start()
    store = opened.use(await startRelay(`redis://:${servers.password}@${redis.address}`, 6379))
    proxy = opened.use(await startAlternatingProxy(() => replicas.map(({ url }) => url)))
    const env = {
      ...users,
      CONSOLE_URL: proxy.url,
      REDIS_URL: store.url,
    }
    replicas = await Promise.all([0, 1].map(() => startConsoleProcess(fake.url, env)))
    for (const replica of replicas) opened.use(replica)
    browser = await launchChromium()
    opened.defer(() => browser.close())
    watched = []
  })
  afterAll(() => opened.disposeAsync())
  afterEach(async () => {
    for (const { context, problems, bodies } of watched.splice(0)) {
      const received = (await bodies()).join()
      for (const secret of [...Object.values(KEYS), PASSWORD])
        expect(received).not.toContain(secret)
      await context.close()
      expect(problems).toEqual([])
    }
  })

  /** Opens another browser for the console. */
  async function openBrowser(): Promise<WatchedContext> {
    const context = await watchedContext(browser, proxy.url)
    watched.push(context)
    return context
  }
  async function openAs({ open }: WatchedContext, name: string, path: string): Promise<Page> {
    const page = await open(proxy.url + path)
    await signInAs(page, name)
    await page.getByRole('navigation', { name: 'Pages' }).waitFor()
    return page
  }
  const state = (page: Page) => page.getByRole('region', { name: 'State' })
  const dialog = (page: Page) => page.getByRole('dialog')

  it('an operator sees the action of another operator whose requests reach the other replica, and each action is executed once', async () => {
    fake.add(['shared'], { Status: 'Running' })
    const path = `/runs/${PROCESS}/shared`
    const page = await openAs(await openBrowser(), 'ada', path)
    const other = await openBrowser()
    const colleague = await openAs(other, 'ben', path)
    await state(colleague).getByText('Running', { exact: true }).waitFor()
    await eventually(() => expect(new Set(proxy.streams)).toEqual(new Set([0, 1])))

    await page.getByRole('button', { name: 'Cancel run…' }).click()
    await dialog(page).getByLabel('Reason').fill('ada was first')
    await dialog(page).getByRole('button', { name: 'Cancel run', exact: true }).click()
    await dialog(page).waitFor({ state: 'detached' })
    const history = colleague.getByRole('region', { name: 'Actions on this run' })
    await history.getByText('ada was first').waitFor()
    await state(colleague).getByText('Cancelled', { exact: true }).waitFor()

    const now = await other.open(proxy.url)
    await page.goto(`${proxy.url}/processes/${PROCESS}`)
    await page.getByRole('button', { name: 'Pause…' }).click()
    await dialog(page).getByLabel('Reason').fill('maintenance of the target')
    await dialog(page).getByRole('button', { name: 'Pause', exact: true }).click()
    await dialog(page).waitFor({ state: 'detached' })
    await now.getByRole('heading', { name: `${PROCESS} is paused` }).waitFor()
    await now.getByText('maintenance of the target').first().waitFor()

    expect(fake.acted.map(({ person, path: to }) => [person, to.split('/').at(-1)])).toEqual([
      ['ada', 'cancel'],
      ['ada', 'pause'],
    ])
    const actions = proxy.forwarded.filter(
      ({ method, path: to }) => method === 'POST' && to !== '/api/session',
    )
    expect(new Set(actions.map(({ replica }) => replica))).toEqual(new Set([0, 1]))
  })

  it('an action whose response was lost is executed only once, although the person confirms the action again and the request reaches the other replica', async () => {
    fake.add(['lost-response'], { Status: 'Running' })
    const at = await openBrowser()
    const page = await openAs(at, 'ada', `/runs/${PROCESS}/lost-response`)
    let responses = 0
    await page.route('**/cancel', async (route) => {
      responses += 1
      if (responses > 2) return route.continue()
      // A replica acts. The first time, the browser gets no response; the second time, a load balancer responds.
      if (responses === 1) await route.fetch()
      return responses === 1
        ? route.abort('connectionreset')
        : route.fulfill({ status: 502, contentType: 'text/html', body: '<h1>Bad gateway</h1>' })
    })
    await page.getByRole('button', { name: 'Cancel run…' }).click()
    const confirm = dialog(page).getByRole('button', { name: 'Cancel run', exact: true })
    for (const text of ['does not respond', 'responded with 502']) {
      await confirm.click()
      await dialog(page).getByRole('alert').getByText(text).waitFor()
    }
    await confirm.click()
    await dialog(page).waitFor({ state: 'detached' })
    const sent = proxy.forwarded.filter(({ path }) => path.endsWith('/lost-response/cancel'))
    expect(new Set(sent.map(({ replica }) => replica))).toEqual(new Set([0, 1]))
    expect(fake.acted.filter(({ path }) => path.includes('lost-response'))).toHaveLength(1)
  })

  it('a sign-out at one replica shows the sign-in page in the tabs whose stream another replica sends', async () => {
    const at = await openBrowser()
    const page = await openAs(at, 'ada', '/')
    const second = await at.open(`${proxy.url}/companies`)
    await second.getByRole('heading', { name: 'Companies' }).waitFor()
    await eventually(() => expect(proxy.streams).toHaveLength(1))
    const [stream = 0] = proxy.streams
    proxy.directNextAction(1 - stream)
    await page.getByRole('button', { name: /^ada/ }).click()
    await page.getByRole('button', { name: 'Sign out' }).click()
    for (const tab of [page, second]) await tab.getByRole('heading', { name: 'Sign in' }).waitFor()
    const signOut = proxy.forwarded.findLast(({ method }) => method === 'DELETE')
    expect(signOut).toEqual({ method: 'DELETE', path: '/api/session', replica: 1 - stream })
  })

  it('the pages show the current status of a run after each cut of their stream, which then continues at the other replica', async () => {
    const at = await openBrowser()
    // The clock of the pages is moved, because a page pauses for two seconds between two attempts and between two reads.
    await at.context.clock.install()
    fake.add(['cut'], { Status: 'Running' })
    const run = fake.runs.at(-1) as FakeRun
    const list = await openAs(at, 'ada', '/runs?idPrefix=cut')
    const page = await at.open(`${proxy.url}/runs/${PROCESS}/cut`)
    await state(page).getByText('Running', { exact: true }).waitFor()
    await eventually(() => expect(proxy.streams).toHaveLength(1))
    const row = list.getByRole('row').filter({ hasText: 'cut' })
    for (let cut = 0; cut < 8; cut += 1) {
      const [before] = proxy.streams
      fake.change([[run, 'Running']])
      proxy.cutStreams()
      // Every second time, the streams from the coordinator to both replicas are cut as well.
      if (cut % 2 === 1) fake.cutStreams(cut % 4 === 1)
      // Nothing happens after this change, so no later event can correct the pages.
      const status = STATUSES[cut % STATUSES.length] ?? 'Queued'
      fake.change([[run, status]])
      await soon(at.context, async () => {
        expect(proxy.streams).toEqual([1 - (before ?? 0)])
        expect(await state(page).locator('.headline .state').textContent()).toContain(status)
        expect(await row.textContent()).toContain(status)
      })
    }
  })

  it('while the store of the sessions does not respond, the pages name it, and continue by themselves when it responds', async () => {
    const at = await openBrowser()
    const page = await openAs(at, 'ada', '/')
    store.away()
    await page.reload()
    await page.getByRole('heading', { name: 'The console cannot read your session' }).waitFor()
    expect(await page.getByRole('alert').textContent()).toContain(
      'The store of the sessions (Redis) does not respond.',
    )
    await expectAccessible(page, 'no-session-store')
    store.restore()
    await page.getByRole('navigation', { name: 'Pages' }).waitFor()
  })

  it('if a replica is killed, the pages continue at the other replica without a new sign-in, and actions still work', async () => {
    const at = await openBrowser()
    await at.context.clock.install()
    fake.add(['survivor'], { Status: 'Running' })
    const page = await openAs(at, 'ada', `/runs/${PROCESS}/survivor`)
    await state(page).getByText('Running', { exact: true }).waitFor()
    await eventually(() => expect(proxy.streams).toHaveLength(1))
    const [killed = 0] = proxy.streams
    await replicas[killed]?.kill()
    fake.change([[fake.runs.at(-1) as FakeRun, 'Failed']])
    await soon(at.context, async () => {
      expect(proxy.streams).toEqual([1 - killed])
      expect(await state(page).locator('.headline .state').textContent()).toContain('Failed')
    })
    await page.getByRole('button', { name: 'Resume…' }).first().click()
    await dialog(page).getByRole('button', { name: 'Resume', exact: true }).click()
    await dialog(page).waitFor({ state: 'detached' })
    expect(fake.acted.at(-1)).toMatchObject({
      person: 'ada',
      path: expect.stringMatching(/resume$/),
    })
  })
})
