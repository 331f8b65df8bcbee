/** Checks each page of the console in a browser without data, and while no service responds. */
import { freePort } from '@integration-host/shared/test-support/free-ports'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { PROCESS } from './fake-installation.ts'

describe('the pages of the console without data and without services', () => {
  let at: FakeConsole
  let page: Page

  beforeAll(async () => {
    const unused = `http://127.0.0.1:${await freePort()}`
    at = await startFakeConsole({ PROMETHEUS_URL: unused, SANDBOX_URL: unused })
    page = await at.signIn()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => expect(at.problems).toEqual([]))

  it.each([
    ['dead letters', `/dead-letters/${PROCESS}`, 'There are none.'],
    ['activity', '/activity?person=nobody', 'Nothing matches these filters.'],
    ['company limits', '/limits/1', 'No call of this company has failed lately.'],
  ])('the page of %s says that it has no data, and is accessible', async (name, path, text) => {
    await page.goto(at.url + path)
    await page.getByText(text).first().waitFor()
    await expectAccessible(page, `empty-${name}`)
  })

  it.each([
    ['/sandbox', { Companies: [], Faults: [] }, 'No call is going to fail.'],
    ['/processes', { Processes: [], NotLoaded: [], Schedules: [] }, 'Started by'],
  ])('the page at %s without entries is accessible', async (path, json, text) => {
    await page.route(`**/api${path}`, (route) => route.fulfill({ json }))
    await page.goto(at.url + path)
    await page.getByRole('main').getByText(text).first().waitFor()
    await expectAccessible(page, `empty-${path.slice(1)}`)
    await page.unroute(`**/api${path}`)
  })

  it.each([
    ['/nonsense', 'There is no such page', 'Open the first page'],
    ['/runs/%E0%A4%A/1', 'There is no such page', 'Open the first page'],
    ['/companies/NO-SUCH', 'There is no company NO-SUCH.', 'Activity'],
    ['/runs/NoProcess/1', 'There is no process NoProcess.', PROCESS],
  ])('the address %s, which names nothing, opens a page that says so', async (path, text, link) => {
    await page.goto(at.url + path)
    const main = page.getByRole('main')
    await main.getByText(text).waitFor()
    await main.getByRole('link', { name: link }).waitFor()
    await expectAccessible(page, `unknown-${path.replaceAll(/\W+/g, '-')}`)
  })

  it('the page Now says how many runs are due, and how old this number is', async () => {
    const due = { Process: PROCESS, Step: 'order', Count: 1, OldestSeconds: 42, IdleSeconds: 0 }
    at.fake.counts = { ...at.fake.counts, Due: [due] }
    await page.goto(at.url)
    const text =
      /1 run was due at the coordinator’s last count \((just now|\d+ s ago)\), for 42 s\./
    await page.getByText(text).waitFor()
    expect(await page.getByText(text).count()).toBe(1)
  })

  describe('after all services have stopped', () => {
    beforeAll(() => at.fake[Symbol.asyncDispose]())

    it('the page Now reports each service that does not respond', async () => {
      await page.goto(at.url)
      for (const name of ['coordinator', 'token-service', 'accounting-gateway'])
        await page.getByRole('heading', { name: new RegExp(`${name}.*does not respond`) }).waitFor()
      await expectAccessible(page, 'error-now')
    })

    it('the page Health shows of each service the reason and since when it has not responded', async () => {
      await page.goto(`${at.url}/services`)
      const replica = page.getByRole('row').filter({ hasText: 'coordinator' })
      await replica.getByText('Does not respond').waitFor()
      expect(await replica.textContent()).toContain('ECONNREFUSED')
      const since = await replica.locator('time').first().getAttribute('datetime')
      expect(Math.abs(Date.parse(since ?? '') - Date.now())).toBeLessThan(60_000)
      await expectAccessible(page, 'error-health')
    })

    it.each([
      '/runs',
      `/runs/${PROCESS}/1`,
      '/bulk/1',
      '/companies',
      '/companies/1',
      '/processes',
      `/processes/${PROCESS}`,
      `/dead-letters/${PROCESS}`,
      '/limits',
      '/limits/1',
      '/activity',
      '/sandbox',
    ])(
      'the page at %s reports that its service does not respond, and is accessible',
      async (path) => {
        await page.goto(at.url + path)
        await page
          .getByRole('alert')
          .filter({ hasText: /does not respond/ })
          .first()
          .waitFor()
        await expectAccessible(page, `error-${path.replaceAll('/', '-')}`)
      },
    )

    it('the page Charts reports that Prometheus does not respond, and is accessible', async () => {
      await page.goto(`${at.url}/charts?range=24h`)
      await expect.poll(() => page.getByText('Prometheus has not responded.').count()).toBe(4)
      await expectAccessible(page, 'error-charts')
    })

    it('the page Settings reports that the sessions cannot be read, and is accessible', async () => {
      await page.route('**/api/sessions', (route) =>
        route.fulfill({ status: 503, json: { code: 'store_unavailable', detail: 'no Redis' } }),
      )
      await page.goto(`${at.url}/settings`)
      await page.getByRole('alert').getByText('no Redis').waitFor()
      await expectAccessible(page, 'error-settings')
    })
  })
})
