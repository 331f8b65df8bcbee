/** Tests the actions on many runs in a real browser. */
import type { OperationDetail } from '@integration-host/shared/contracts/operations'
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'
import { signInAs } from './users.ts'

/**
 * The step `order` sends this text in the query of a URL. The text is so long that the demo API rejects the request
 * with 431.
 */
const TOO_LONG = 'x'.repeat(17_000)
const RUNS = 300

describe('bulk actions on runs in the console', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser({ SIGN_IN: 'link,password' }, { ben: 'operator' })
    for (let begin = 0; begin < RUNS; begin += 50)
      await queue(Array.from({ length: 50 }, (_, index) => `broken-${begin + index}`))
    await failed(RUNS)
  }, 120_000)
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => at.endTest())

  async function coordinator<Result>(path: string, body?: unknown): Promise<Result> {
    const response = await at.request(at.host.coordinator + path, body)
    expect(response.ok).toBe(true)
    return (await response.json()) as Result
  }
  const queue = (ids: readonly string[]) =>
    Promise.all(
      ids.map((TransactionID) =>
        coordinator('/processes/OrderProcess/transactions', {
          TransactionID,
          InitialData: TOO_LONG,
        }),
      ),
    )
  /** Waits until this many runs have failed. */
  async function failed(count: number): Promise<void> {
    await eventually(
      async () => {
        let found = 0
        let cursor: string | null = ''
        while (cursor !== null) {
          const page: { items: object[]; next_cursor: string | null } = await coordinator(
            `/transactions?status=Failed&limit=500${cursor === '' ? '' : `&cursor=${cursor}`}`,
          )
          found += page.items.length
          cursor = page.next_cursor
        }
        expect(found).toBe(count)
      },
      { seconds: 60, everyMs: 500 },
    )
  }
  const idOf = (page: Page): string => new URL(page.url()).pathname.split('/').at(-1) ?? ''
  const number = (page: Page, name: string) =>
    page
      .getByRole('region', { name: 'Progress' })
      .locator('dl div', { hasText: name })
      .locator('dd')

  /** Opens an address as another person in another browser. */
  async function openAsColleague(url: string): Promise<Page> {
    const page = await (await at.another()).open(url)
    await signInAs(page, 'ben')
    await page.getByRole('button', { name: 'ben' }).waitFor()
    return page
  }

  it('a bulk action resumes the 300 runs that match its filter, but no run that was queued later', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/runs?process=OrderProcess&status=Failed`)
    await page.getByLabel('Select broken-299', { exact: true }).check()
    await page.getByText('1 run is selected').waitFor()
    await page.getByRole('button', { name: 'Select all that match' }).click()
    await page.getByText('All 300 runs that match are selected').waitFor()
    await expectAccessible(page, 'runs-selected')
    await queue(['later'])
    await failed(RUNS + 1)
    await page.getByRole('button', { name: 'Resume…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('300 runs', { exact: true }).waitFor()
    await expectAccessible(page, 'bulk-dialog')
    await dialog.getByLabel('Runs a second').fill('100')
    await dialog.getByLabel('Reason').fill('the target is fixed')
    await dialog.getByRole('button', { name: 'Resume', exact: true }).click()
    expect(await dialog.count()).toBe(1) // the person has not typed the number yet
    await dialog.getByLabel('Type 300 to confirm').fill('300')
    await dialog.getByRole('button', { name: 'Resume', exact: true }).dblclick()
    await page.waitForURL(/\/bulk\/[\w-]+\?of=300$/)
    const colleague = await openAsColleague(page.url())
    for (const one of [page, colleague]) {
      await one.getByText('Completed', { exact: true }).waitFor()
      expect(await number(one, 'Changed').textContent()).toBe('300')
      expect(await one.getByText('the target is fixed').count()).toBe(1)
    }
    await colleague.context().close()
    await expectAccessible(page, 'bulk')
    const { items } = await coordinator<{ items: { Action: string; DryRun: boolean }[] }>(
      '/operations?limit=50',
    )
    expect(items.filter(({ DryRun }) => !DryRun)).toHaveLength(1)
    expect(await coordinator('/actions?process=OrderProcess&id=later')).toMatchObject({ items: [] })
    await failed(RUNS + 1)
  })

  it('a bulk action leaves a run alone that another person has resumed meanwhile, and changes the others', async () => {
    // While the process is paused, the runs that are resumed do not fail again.
    await coordinator('/processes/OrderProcess/pause', {})
    const page = await at.signIn()
    await page.goto(`${at.console.url}/runs?process=OrderProcess&idPrefix=broken-29&status=Failed`)
    for (const id of ['broken-297', 'broken-298', 'broken-299'])
      await page.getByLabel(`Select ${id}`, { exact: true }).check()
    await page.getByRole('button', { name: 'Resume…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('3 runs can be changed').waitFor()
    await coordinator('/processes/OrderProcess/transactions/broken-298/resume', {})
    await dialog.getByLabel('Reason').fill('the target is fixed')
    await dialog.getByRole('button', { name: 'Resume', exact: true }).click()
    await page.waitForURL(/\/bulk\/[\w-]+\?of=3$/)
    const colleague = await openAsColleague(page.url())
    for (const one of [page, colleague]) {
      await one.getByText('Completed', { exact: true }).waitFor()
      expect(await number(one, 'Changed').textContent()).toBe('2')
      expect(await number(one, 'Left alone').textContent()).toBe('1')
    }
    await colleague.context().close()
    await coordinator('/processes/OrderProcess/resume', {})
    await failed(RUNS + 1)
  })

  it('a stopped bulk action cannot be continued, and its page shows how many runs the action did not reach', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/runs?process=OrderProcess&status=Failed`)
    await page.getByLabel('Select all runs that are loaded').click()
    await page.getByRole('button', { name: 'Replay…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('can be changed').waitFor()
    expect(await dialog.textContent()).toContain('new idempotency keys')
    const count =
      /^(\d+)/.exec((await dialog.getByText('can be changed').textContent()) ?? '')?.[1] ?? ''
    await dialog.getByLabel('Runs a second').fill('1')
    await dialog.getByLabel('Reason').fill('by mistake')
    await dialog.getByLabel(/^Type/).fill(count)
    await dialog.getByRole('button', { name: 'Replay', exact: true }).click()
    await page.getByRole('button', { name: 'Stop…' }).click()
    await dialog.getByLabel('Reason').fill('it was a mistake')
    await dialog.getByRole('button', { name: 'Stop', exact: true }).click()
    await page.getByText('Stopped', { exact: true }).waitFor()
    expect(await page.getByRole('button', { name: 'Stop…' }).count()).toBe(0)
    const stopped = await coordinator<OperationDetail>(`/operations/${idOf(page)}`)
    expect(stopped).toMatchObject({ Status: 'Stopped', IdCount: Number(count) })
    expect(stopped.Done).toBeLessThan(20)
  })

  it('the page of a bulk action lists failed runs, shows markup in their ids as text, and offers a download', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/runs`)
    const { items } = await coordinator<{ items: OperationDetail[] }>('/operations?limit=1')
    const bulk = {
      ...items[0],
      Status: 'Paused',
      StatusReason: 'store_unavailable',
      Done: 120,
      Skipped: 20,
      Failed: 60,
      FinishedAt: null,
      FailedByCode: { store_unavailable: 58, transaction_not_found: 2 },
      Failures: Array.from({ length: 60 }, (_, index) => ({
        TransactionID: index === 0 ? '<img src=x onerror=alert(1)>' : `order-${index}`,
        ReplayID: 0,
        Code: index > 57 ? 'transaction_not_found' : 'store_unavailable',
      })),
    }
    await page.route(/\/api\/bulk\/[^/]+$/, (route) => route.fulfill({ json: bulk }))
    await page.goto(`${at.console.url}/bulk/${items[0]?.ID}?of=300`)
    await page.getByRole('link', { name: '<img src=x onerror=alert(1)>' }).waitFor()
    expect(await page.locator('img').count()).toBe(0)
    await page.getByText('It has paused because').waitFor()
    await expectAccessible(page, 'bulk-paused')
    const download = page.waitForEvent('download')
    await page.getByRole('link', { name: 'Download as JSON lines' }).click()
    expect((await download).suggestedFilename()).toMatch(/^bulk-[\w-]+\.ndjson$/)
  })
})
