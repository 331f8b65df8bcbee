/** Tests in a real browser that the pages of the console poll every 5 s while they cannot use the event stream. */
import type { Locator, Page, Route } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { soon } from './browser.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { type FakeRun, PROCESS } from './fake-installation.ts'

const STREAM = '**/api/stream*'

describe('the pages of the console without an event stream', () => {
  let at: FakeConsole

  beforeAll(async () => {
    at = await startFakeConsole()
    await at.context.clock.install()
    at.fake.add(['only'])
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(async () => {
    for (const page of at.context.pages()) await page.close()
    await at.context.unroute(STREAM)
    expect(at.problems).toEqual([])
  })

  const isVisible = (locator: Locator): Promise<void> =>
    soon(at.context, async () => expect(await locator.isVisible()).toBe(true))
  const pill = (page: Page, text: string): Promise<void> =>
    isVisible(page.getByRole('status').getByText(text, { exact: true }))
  const state = (page: Page) => page.getByRole('region', { name: 'State' }).locator('.headline')
  const change = (status: 'Running' | 'Failed' | 'Queued'): void =>
    at.fake.change([[at.fake.runs[0] as FakeRun, status]])

  it('all tabs of the console poll every 5 s after the event stream has failed three times, until the stream works again', async () => {
    const first = await at.signIn()
    await pill(first, 'live')
    await at.context.route(STREAM, (route) => route.abort())
    await first.close() // the next tab has to open a stream
    const page = await at.open(`${at.url}/runs/${PROCESS}/only`)
    const other = await at.open(at.url)
    await pill(page, 'every 5 s')
    await pill(other, 'every 5 s')
    expect(await page.getByRole('alert').count()).toBe(0)
    const late = await at.open(at.url) // a tab that is opened later
    await pill(late, 'every 5 s')
    change('Failed')
    await soon(at.context, async () => expect(await state(page).textContent()).toContain('Failed'))
    await isVisible(other.getByText(`1 run failed at ${PROCESS}.order`))
    await at.context.unroute(STREAM)
    for (const tab of [page, other, late]) await pill(tab, 'live')
    change('Running')
    await soon(at.context, async () => expect(await state(page).textContent()).toContain('Running'))
  })

  it('a page of the console shows the current state after 30 s without a network', async () => {
    await at.signIn()
    const page = await at.open(`${at.url}/runs/${PROCESS}/only`)
    await pill(page, 'live')
    await at.context.setOffline(true)
    await pill(page, 'no connection')
    change('Queued')
    await at.context.clock.fastForward(30_000)
    await isVisible(
      page.getByText(/No connection to the console since .* actions are not possible/),
    )
    const actions = page.getByRole('main').getByRole('button', { name: /…$/ })
    expect(await actions.count()).toBeGreaterThan(1)
    const reasons: (string | null)[] = []
    for (const action of await actions.all()) {
      expect(await action.getAttribute('aria-disabled')).toBe('true')
      const reason = page.locator(`[id="${await action.getAttribute('aria-describedby')}"]`)
      reasons.push(await reason.textContent())
    }
    expect(reasons).not.toContain('')
    expect(reasons).toContain('There is no connection to the console.')
    change('Failed')
    await at.context.setOffline(false)
    await pill(page, 'live')
    await soon(at.context, async () => expect(await state(page).textContent()).toContain('Failed'))
  })

  it('a page of the console that polls every 5 s reports the lost connection while its requests fail', async () => {
    await at.signIn()
    await at.context.route(STREAM, (route) => route.abort())
    const page = await at.open(at.url)
    for (const tab of at.context.pages()) if (tab !== page) await tab.close()
    await pill(page, 'every 5 s')
    await expectAccessible(page, 'polling')
    await page.route('**/api/now', (route) => route.abort())
    await isVisible(page.getByText('No connection to the console since'))
    await expectAccessible(page, 'lost')
    await page.unroute('**/api/now')
    await pill(page, 'every 5 s')
    expect(await page.getByText('No connection to the console since').count()).toBe(0)
  })

  it('a page that cannot reach the console when it is opened, or cannot load its program, says what to do', async () => {
    const page = await at.signIn()
    await page.route('**/assets/**', (route) => route.abort())
    await page.getByRole('link', { name: 'Charts' }).click()
    await page.getByRole('heading', { name: 'This page cannot be shown' }).waitFor()
    await expectAccessible(page, 'page-failed')
    await page.unroute('**/assets/**')
    await page.route('**/api/session', (route) => route.abort())
    await page.getByRole('button', { name: 'Load the page again' }).click()
    await isVisible(page.getByRole('heading', { name: 'The console does not respond' }))
    await expectAccessible(page, 'console-unreachable')
  })

  it.each([400, 700, 1_280])(
    'at a width of %i pixels, the search box does not move when the state of the connection changes',
    async (width) => {
      const held: Route[] = []
      await at.context.route(STREAM, (route) => void held.push(route))
      const page = await at.signIn()
      await page.setViewportSize({ width, height: 800 })
      const places = new Set<string>()
      for (const text of ['connecting', 'no connection', 'every 5 s', 'live']) {
        if (text === 'live') await at.context.unroute(STREAM)
        await soon(at.context, async () => {
          if (text !== 'connecting') for (const route of held.splice(0)) await route.abort()
          expect(await page.getByRole('status').getByText(text, { exact: true }).count()).toBe(1)
        })
        const box = await page.getByRole('button', { name: /^Search/ }).boundingBox()
        expect(box).not.toBeNull()
        places.add(JSON.stringify(box))
        expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width)
      }
      expect([...places]).toHaveLength(1)
    },
  )

  it('in a browser without the Web Locks API, three tabs read event streams, and a fourth tab polls every 5 s', async () => {
    await at.context.addInitScript('delete Navigator.prototype.locks')
    const tabs = [await at.signIn()]
    await pill(tabs[0] as Page, 'live')
    while (tabs.length < 3) {
      const tab = await at.open(at.url)
      await pill(tab, 'live')
      tabs.push(tab)
    }
    const fourth = await at.open(`${at.url}/runs/${PROCESS}/only`)
    await pill(fourth, 'every 5 s')
    change('Queued')
    await soon(at.context, async () =>
      expect(await state(fourth).textContent()).toContain('Queued'),
    )
    await tabs[0]?.close()
    await pill(fourth, 'live')
  })
})
