/** Tests the list of runs with 10,000 runs, many tabs, and a connection that breaks, in a real browser. */
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Page, Route } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

const RUNS = 10_000
/**
 * The number of runs in each response. The real console sends fewer runs per response, which would make the test
 * slower.
 */
const PAGE = 1_000
/** The maximum number of table rows in the DOM of the page, including the header row. */
const MAX_ROWS = 60
/**
 * Texts that are used as ids, names and messages. They contain markup, paths or scripts, or reverse the direction of
 * the text.
 */
const HOSTILE = [
  '<img src=x onerror=alert(1)>',
  '"><script>alert(1)</script>',
  "javascript:alert('x')",
  '${alert(1)}{{alert(1)}}',
  '../../api/session',
  '%2e%2e%2f%00',
  '\u202egnirts desrever\u2066',
  '😀'.repeat(64),
  'x'.repeat(128),
  '<svg/onload=alert(1)>&lt;b&gt;',
]

describe('the list of 10,000 runs in a browser', () => {
  let at: ConsoleBrowser
  /** The number of runs that were queued after the first 10,000. */
  let added = 0

  beforeAll(async () => {
    at = await startConsoleBrowser()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(async () => {
    added = 0
    await at.endTest()
  })

  /** Returns the run with the number `index`. The oldest run has the number 0. */
  const run = (index: number) => ({
    Process: 'OrderProcess',
    TransactionID: index < HOSTILE.length ? HOSTILE[index] : `order-${index}`,
    ReplayID: 0,
    Status: index % 7 === 0 ? 'Failed' : 'Completed',
    StepName: 'order',
    Realm: index < HOSTILE.length ? '42' : null,
    ErrorClass: null,
    WaitingFor: null,
    InDoubt: false,
    Attempt: 1,
    NextAttemptAt: null,
    CreatedAt: new Date(Date.UTC(2026, 0, 1) + index * 1_000).toISOString(),
    UpdatedAt: new Date(Date.UTC(2026, 0, 1) + index * 1_000).toISOString(),
    Why: HOSTILE[index] ?? '',
    Cause: HOSTILE[index] ?? '',
  })
  async function list(route: Route): Promise<void> {
    const cursor = new URL(route.request().url()).searchParams.get('cursor')
    const before = cursor === null ? RUNS + added : Number(cursor)
    const from = Math.max(0, before - PAGE)
    await route.fulfill({
      json: {
        Runs: Array.from({ length: before - from }, (_, index) => run(before - 1 - index)),
        Next: from === 0 ? null : String(from),
        Companies: { 42: HOSTILE[0] },
        Processes: ['OrderProcess'],
      },
    })
  }
  async function open(): Promise<Page> {
    const page = await at.signIn()
    await page.route(/\/api\/runs(\?|$)/, list)
    await page.goto(`${at.console.url}/runs`)
    await page.getByRole('link', { name: `order-${RUNS - 1}`, exact: true }).waitFor()
    return page
  }
  const scrolled = (page: Page) => page.evaluate<number>('window.scrollY')
  const focusedText = (page: Page) => page.evaluate<string>('document.activeElement.textContent')
  const rows = async (page: Page): Promise<number> =>
    page.getByRole('table', { name: 'Runs' }).locator('tr').count()
  const end = async (page: Page): Promise<void> => {
    const last = page.getByRole('link', { name: HOSTILE[0] ?? '', exact: true }).first()
    for (let press = 0; press < 400 && !(await last.isVisible()); press += 1) {
      await page.keyboard.press('End')
      expect(await rows(page)).toBeLessThanOrEqual(MAX_ROWS)
      await page.evaluate('new Promise((resolve) => requestAnimationFrame(() => resolve()))')
    }
    await last.waitFor()
  }

  it('the page Runs has at most 60 rows at each scroll position, and shows hostile texts as text', async () => {
    const page = await open()
    await end(page)
    const table = page.getByRole('table', { name: 'Runs' })
    expect(await table.getAttribute('aria-rowcount')).toBe(String(RUNS + 1))
    expect(await table.locator('tr[aria-rowindex]').last().getAttribute('aria-rowindex')).toBe(
      String(RUNS + 1),
    )
    expect(await page.locator('main img, main svg, main script').count()).toBe(0)
    expect(await table.textContent()).toContain('⟨U+202E⟩gnirts desrever⟨U+2066⟩')
    const links = await page.evaluate<string[]>(
      `[...document.querySelectorAll('main table a')].map(({ pathname }) => pathname)`,
    )
    expect(links.length).toBeGreaterThan(HOSTILE.length)
    for (const link of links) expect(link).toMatch(/^\/(runs\/OrderProcess|companies)\/[^/]+$/)
  })

  it('keyboard shortcuts move from run to run and select a run, and scrolling does not remove the focused row', async () => {
    const page = await open()
    await page.getByRole('link', { name: `order-${RUNS - 1}`, exact: true }).focus()
    for (let step = 1; step <= 40; step += 1) {
      await page.keyboard.press('j')
      await eventually(async () => expect(await focusedText(page)).toBe(`order-${RUNS - 1 - step}`))
    }
    await page.keyboard.press('x')
    await page.getByText('1 run is selected').waitFor()
    await page.mouse.wheel(0, 20_000)
    await eventually(async () => expect(await scrolled(page)).toBeGreaterThan(10_000))
    expect(await focusedText(page)).toBe(`order-${RUNS - 41}`)
    expect(await rows(page)).toBeLessThanOrEqual(MAX_ROWS + 2)
  })

  it('new runs do not move the rows of the page Runs, and a button shows their number and inserts them', async () => {
    const page = await open()
    await page.mouse.wheel(0, 3_000)
    await eventually(async () => expect(await scrolled(page)).toBe(3_000))
    const first = () =>
      page.evaluate(
        `[...document.querySelectorAll('tbody tr a')].map((a) => a.textContent + a.getBoundingClientRect().top)`,
      )
    const visible = page.getByRole('checkbox', { name: /^Select order-9[89]\d\d$/ })
    await visible.nth(10).focus()
    await page.keyboard.press('Space')
    await page.getByText('1 run is selected').waitFor()
    const focused = () => page.evaluate<string>('document.activeElement.ariaLabel')
    const [before, selected] = [await first(), await focused()]
    added = 37
    // The page reads its list again when any run changes, so the test queues a run.
    await at.request(`${at.host.coordinator}/processes/OrderProcess/transactions`, {
      TransactionID: 'signal',
      InitialData: 1,
    })
    await page.getByRole('button', { name: '37 new' }).waitFor()
    expect(await first()).toEqual(before)
    expect(await focused()).toBe(selected)
    expect(await page.getByLabel(selected, { exact: true }).isChecked()).toBe(true)
    await page.getByRole('button', { name: '37 new' }).click()
    await page.getByRole('link', { name: `order-${RUNS + 36}`, exact: true }).waitFor()
    await eventually(async () => expect(await scrolled(page)).toBe(0))
  })
})

describe('the live connection of a browser', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())

  const queue = (TransactionID: string) =>
    at.request(`${at.host.coordinator}/processes/OrderProcess/transactions`, {
      TransactionID,
      InitialData: 1,
    })
  const streams = async (): Promise<string | undefined> => {
    const text = await (await fetch(`${at.console.url}/metrics`)).text()
    return /^console_event_streams(?:\{[^}]*\})? (\d+)$/m.exec(text)?.[1]
  }

  it('ten tabs of the console share one event stream, and stay up to date after the tab that reads the stream was closed', async () => {
    const first = await at.signIn()
    await first.goto(`${at.console.url}/runs`)
    await first.getByText('There are no runs yet').waitFor()
    const tabs = await Promise.all(Array.from({ length: 9 }, () => at.open('/runs')))
    for (const tab of tabs) await tab.getByText('There are no runs yet').waitFor()
    expect(await streams()).toBe('1')
    await queue('for-ten')
    for (const tab of [first, ...tabs])
      await tab.getByRole('link', { name: 'for-ten', exact: true }).waitFor()
    await first.close()
    const [tab] = tabs
    await tab?.goto(`${at.console.url}/runs/OrderProcess/after`)
    await tab?.getByRole('alert').waitFor()
    await queue('after')
    await tab
      ?.getByRole('region', { name: 'State' })
      .getByText('Completed', { exact: true })
      .waitFor()
    expect(await streams()).toBe('1')
    for (const one of tabs) await one.close()
  })

  it('while the browser has no network, the page Runs shows the failure and offers no action, and recovers without a reload', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/runs?idPrefix=offline`)
    await page.getByText('No run matches.').waitFor()
    await queue('offline-1')
    await page.getByRole('link', { name: 'offline-1', exact: true }).waitFor()
    const begin = page.getByRole('button', { name: 'Queue…' })
    await begin.click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Process').locator('option').first().waitFor({ state: 'attached' })
    await dialog.getByLabel('Id (required)').fill('offline-never')
    await at.context.setOffline(true)
    await dialog.getByRole('status').getByText('There is no connection to the console.').waitFor()
    await dialog.getByRole('button', { name: 'Queue', exact: true }).click({ force: true })
    await page.keyboard.press('Escape')
    await page
      .getByRole('alert')
      .getByText(/No connection to the console since .* Until then, actions are not possible\./)
      .waitFor()
    await page.getByRole('link', { name: 'offline-1', exact: true }).waitFor()
    expect(await begin.getAttribute('aria-disabled')).toBe('true')
    const reason = `[id="${await begin.getAttribute('aria-describedby')}"]`
    expect(await page.locator(reason).textContent()).toBe('There is no connection to the console.')
    await begin.click({ force: true })
    expect(await dialog.count()).toBe(0)
    await queue('offline-2')
    await at.context.setOffline(false)
    await page.getByRole('button', { name: '1 new' }).click()
    await page.getByRole('link', { name: 'offline-2', exact: true }).waitFor()
    await page.getByText('live', { exact: true }).waitFor()
    // The action that the person tried without a network is not sent later.
    expect(await page.getByRole('link', { name: 'offline-never' }).count()).toBe(0)
    expect(at.problems).toEqual([])

    await begin.click()
    await dialog.getByLabel('Id (required)').fill('offline-3')
    let failures = 0
    await page.route('**/api/queue', async (route) => {
      // The console executes the action, but the first response is lost.
      failures += 1
      if (failures > 1) return route.continue()
      await route.fetch()
      return route.abort()
    })
    const submit = dialog.getByRole('button', { name: 'Queue', exact: true })
    await submit.click()
    await dialog.getByText('The console does not respond').waitFor()
    await submit.click()
    await dialog.getByText('Queued:').waitFor()
    expect(failures).toBe(2)
  })

  it('the page Runs shows the correct status of every run after its event stream was interrupted twenty times', async () => {
    const page = await at.signIn()
    await page.setViewportSize({ width: 1280, height: 2_000 }) // so that all rows are visible
    await page.goto(`${at.console.url}/runs?idPrefix=cut-`)
    await page.getByText('No run matches.').waitFor()
    await queue('cut-0')
    await page.getByRole('link', { name: 'cut-0', exact: true }).waitFor()
    for (let cut = 1; cut <= 20; cut += 1) {
      await at.context.setOffline(true)
      await page.getByText('no connection').first().waitFor()
      await queue(`cut-${cut}`)
      await at.context.setOffline(false)
      await page.getByText('live', { exact: true }).waitFor()
    }
    await page.getByRole('button', { name: '20 new' }).click()
    const table = page.getByRole('table', { name: 'Runs' })
    await table.getByRole('link', { name: 'cut-20', exact: true }).waitFor()
    await eventually(async () => expect(await table.getByText('Completed').count()).toBe(21))
    expect(at.problems).toEqual([])
  })
})
