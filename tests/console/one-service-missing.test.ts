/**
 * Tests the pages of the console while exactly one service does not respond: the pages that need this service say so, and
 * keep what they have shown, and all other pages work.
 */
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { type FakeRun, PROCESS } from './fake-installation.ts'

const company: CredentialView = {
  Name: 'ACC-1',
  Environment: '1',
  Label: 'Rosewood',
  Status: 'active',
  State: 'active',
  Version: 3,
  Expiry: new Date(Date.now() + 3_600_000).toISOString(),
  RefreshedAt: new Date().toISOString(),
  Attempts: 0,
}

/** The pages and what each of them shows of its service. */
const SHOWN: Readonly<Record<string, (page: Page) => ReturnType<Page['locator']>>> = {
  '/runs': (page) => page.getByRole('link', { name: 'kept', exact: true }),
  [`/runs/${PROCESS}/kept`]: (page) => page.getByRole('region', { name: 'State' }),
  '/processes': (page) => page.getByRole('row').filter({ hasText: PROCESS }),
  [`/processes/${PROCESS}`]: (page) => page.getByRole('region', { name: 'State' }),
  '/companies': (page) => page.getByRole('link', { name: 'Rosewood', exact: true }),
  '/companies/1': (page) => page.getByRole('region', { name: 'State' }),
  '/limits': (page) => page.getByRole('region', { name: 'All companies' }),
  '/limits/1': (page) => page.getByRole('region', { name: 'Now' }),
  '/activity': (page) => page.getByText('connected Rosewood'),
}
const RUN_PAGES = ['/runs', `/runs/${PROCESS}/kept`, '/processes', `/processes/${PROCESS}`]
const COMPANY_PAGES = ['/companies', '/companies/1']
const LIMIT_PAGES = ['/limits', '/limits/1']

describe.each([
  {
    service: 'coordinator',
    needing: [...RUN_PAGES, '/activity'],
    others: [...COMPANY_PAGES, ...LIMIT_PAGES],
  },
  {
    service: 'token-service',
    needing: [...COMPANY_PAGES, '/activity'],
    others: [...RUN_PAGES, ...LIMIT_PAGES],
  },
  {
    service: 'accounting-gateway',
    needing: LIMIT_PAGES,
    others: [...RUN_PAGES, ...COMPANY_PAGES, '/activity'],
  },
])('while only $service does not respond', ({ service, needing, others }) => {
  const opened = new AsyncDisposableStack()
  let at: FakeConsole
  let relay: Relay
  const pages = new Map<string, Page>()
  let now: Page

  beforeAll(async () => {
    const relays = new Map<string, Relay>()
    for (const name of ['coordinator', 'token-service', 'accounting-gateway'])
      relays.set(name, opened.use(await startRelay('http://127.0.0.1:9', 80)))
    const urlOf = (name: string): string => new URL(relays.get(name)?.url ?? '').origin
    at = opened.use(
      await startFakeConsole({
        COORDINATOR_URL: urlOf('coordinator'),
        TOKEN_SERVICE_URL: urlOf('token-service'),
        GATEWAY_URL: urlOf('accounting-gateway'),
      }),
    )
    at.fake.credentials.push(company)
    at.fake.audit.push({
      Seq: 1,
      At: new Date().toISOString(),
      Who: 'key console for ada',
      What: 'granted',
      Name: 'ACC-1',
      Version: 1,
      Outcome: 'ok',
      Previous: '0'.repeat(64),
      Hash: '1'.repeat(64),
    })
    at.fake.add(['kept'], { Status: 'Failed' })
    for (const one of relays.values()) one.redirect(at.fake.url)
    relay = relays.get(service) as Relay
    now = await at.signIn()
    for (const path of needing) {
      const page = await at.open(at.url + path)
      await SHOWN[path]?.(page).first().waitFor()
      pages.set(path, page)
    }
    await now.getByText('1 of 1 company active').waitFor()
    await now.getByRole('region', { name: 'Runs' }).getByText('In flight').waitFor()
    relay.away()
  })
  afterAll(() => opened.disposeAsync())
  afterEach(() => expect(at.problems).toEqual([]))

  const alertOf = (page: Page) =>
    page.getByRole('alert').filter({ hasText: `${service} does not respond` })

  it('the pages that need this service name it with the reason and the time, and keep what they have shown', async () => {
    for (const [path, page] of pages) {
      const alert = alertOf(page).first()
      await alert.waitFor()
      await eventually(async () => {
        const text = (await alert.textContent()) ?? ''
        expect(text, path).toMatch(/does not respond \(.+\) since \S+/)
        expect(text, path).toContain('What you see is as of')
      })
      const since = await alert.locator('time').first().getAttribute('datetime')
      expect(Math.abs(Date.parse(since ?? '') - Date.now()), path).toBeLessThan(120_000)
      expect(await SHOWN[path]?.(page).first().isVisible(), path).toBe(true)
    }
    await expectAccessible([...pages.values()][0] as Page, `missing-${service}`)
  })

  it('the pages that do not need this service show their data, and no failure', async () => {
    const page = await at.open(at.url)
    for (const path of others) {
      await page.goto(at.url + path)
      await SHOWN[path]?.(page).first().waitFor()
      // The page of a company has a list of the runs that wait for it. Only this list needs the coordinator.
      const isOfTwo = path === '/companies/1' && service === 'coordinator'
      if (isOfTwo) await alertOf(page).waitFor()
      expect(await alertOf(page).count(), path).toBe(isOfTwo ? 1 : 0)
    }
    await page.close()
  })

  it('pages and the search, when they are opened now, show the parts of the other services, and name this service with the time', async () => {
    const since = /does not respond \(.+\) since \S+/
    const page = await at.open(`${at.url}/activity`)
    await page.getByRole('listitem').filter({ hasText: 'signed in by link' }).first().waitFor()
    const hasLog = service !== 'accounting-gateway'
    await eventually(async () => expect(await alertOf(page).count()).toBe(hasLog ? 1 : 0))
    if (hasLog) expect(await alertOf(page).textContent()).toMatch(since)
    expect(await page.getByText('connected Rosewood').count()).toBe(
      service === 'token-service' ? 0 : 1,
    )

    await page.goto(`${at.url}/charts`)
    const failures = page.locator('.figure .failure')
    const charts = { coordinator: 2, 'accounting-gateway': 2, 'token-service': 0 }[service]
    await eventually(async () => expect(await failures.count()).toBe(charts), { everyMs: 100 })
    for (const text of await failures.allTextContents()) {
      expect(text).toContain(service)
      expect(text).toMatch(since)
    }

    await page.getByRole('button', { name: 'Search' }).click()
    await page.getByRole('combobox').fill('Rosewood')
    const output = page.getByRole('dialog', { name: 'Search' }).getByRole('status')
    if (hasLog) {
      await output.filter({ hasText: `Not searched: ${service} does not respond` }).waitFor()
      expect(await output.textContent()).toMatch(since)
    } else await output.filter({ hasText: /^\d+ hits?$/ }).waitFor()
    await expectAccessible(page, `missing-${service}-search`)
    await page.close()
  })

  it('the page Now reports the service with the time, marks its values as outdated, and no others', async () => {
    const condition = now
      .getByRole('listitem')
      .filter({ has: now.getByRole('heading', { name: `${service} does not respond` }) })
    await condition.waitFor()
    expect(await condition.locator('time').count()).toBeGreaterThan(0)
    const asOf = (name: string) => now.getByRole('region', { name }).getByText('as of')
    const outdated = {
      coordinator: { Runs: 1, Services: 0, 'What changed': 1 },
      'token-service': { Runs: 0, Services: 1, 'What changed': 1 },
      'accounting-gateway': { Runs: 0, Services: 0, 'What changed': 0 },
    }[service]
    await eventually(
      async () => {
        for (const [name, count] of Object.entries(outdated ?? {}))
          expect(await asOf(name).count(), name).toBe(count)
      },
      { everyMs: 200 },
    )
  })

  it('after the service responds again, all pages recover without a reload', async () => {
    relay.restore()
    const run = at.fake.runs[0] as FakeRun
    for (const [path, page] of pages) {
      await eventually(async () => expect(await alertOf(page).count(), path).toBe(0), {
        everyMs: 100,
      })
      await SHOWN[path]?.(page).first().waitFor()
    }
    await now.getByText('as of').first().waitFor({ state: 'detached' })
    // The event stream of the coordinator is connected again, too.
    await eventually(() => expect(at.fake.streams).toBe(1))
    at.fake.change([[run, 'Cancelled']])
    const page =
      pages.get(`/runs/${PROCESS}/kept`) ?? (await at.open(`${at.url}/runs/${PROCESS}/kept`))
    await page
      .getByRole('region', { name: 'State' })
      .getByText('Cancelled', { exact: true })
      .waitFor()
  })
})
