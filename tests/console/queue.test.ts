/** Tests queueing from the console in a real browser. */
import type { Locator, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { COMPANY, connectCompany } from '../../host/src/story.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'
import { signInAs } from './users.ts'

describe('queueing runs in the console', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser({ SIGN_IN: 'link,password' }, { vera: 'viewer' })
  })
  beforeAll(async () => {
    await connectCompany(at.host, { stage() {}, line() {} })
    const labelled = await at.request(
      `${at.host.tokenService}/credentials/ACC-${COMPANY.realm}`,
      { Label: 'Rosewood Interiors' },
      'PATCH',
    )
    expect(labelled.status).toBe(200)
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => at.endTest())

  const dialogOf = (page: Page): Locator => page.getByRole('dialog')
  const submit = (page: Page): Locator =>
    dialogOf(page).getByRole('button', { name: 'Queue', exact: true })
  const status = (page: Page, name: string): Locator =>
    page.getByRole('region', { name: 'State' }).getByText(name, { exact: true })
  async function openQueue(page: Page): Promise<Locator> {
    await page.goto(`${at.console.url}/runs`)
    await page.getByRole('button', { name: 'Queue…' }).first().click()
    const dialog = dialogOf(page)
    await dialog.getByLabel('Process').locator('option').first().waitFor({ state: 'attached' })
    return dialog
  }
  async function actionsOn(id: string): Promise<readonly Record<string, unknown>[]> {
    const path = `/actions?process=OrderProcess&id=${encodeURIComponent(id)}`
    const response = await at.request(at.host.coordinator + path)
    return ((await response.json()) as { items: Record<string, unknown>[] }).items
  }

  it('a double click queues a transaction only once, and the dialog later reports that the transaction exists already', async () => {
    const page = await at.signIn()
    const dialog = await openQueue(page)
    await dialog.getByLabel('Id (required)').fill('new-1')
    const data = dialog.getByLabel('Initial data')
    await data.fill('{"amount": 12,\n "lines": [1 2]}')
    await dialog.getByText('Not JSON: line 2, column 14 needs a comma or ].').waitFor()
    await submit(page).click()
    // The dialog does not send this text, because the text is not JSON and the person has not selected `It is a text`.
    expect(await dialog.count()).toBe(1)
    await expectAccessible(page, 'queue')
    await data.fill('{"amount": 12}')
    await dialog.getByText('JSON, 14 bytes.').waitFor()
    await dialog.getByLabel('Reason').fill('for the test')
    await submit(page).dblclick()
    await dialog.getByText('Queued:').waitFor()
    expect(await actionsOn('new-1')).toMatchObject([
      { Action: 'queue', Person: 'operator', Reason: 'for the test' },
    ])
    await dialog.getByRole('button', { name: 'Queue another' }).click()
    await submit(page).click()
    await dialog.getByText('It is there already, with the same data:').waitFor()
    await dialog.getByRole('link', { name: 'new-1' }).click()
    await status(page, 'Completed').waitFor()
    expect(await dialog.count()).toBe(0)
  })

  it('the dialog for a new transaction shows the data of an existing transaction with the same id', async () => {
    const page = await at.signIn()
    const dialog = await openQueue(page)
    await dialog.getByLabel('Id (required)').fill('new-1')
    await dialog.getByLabel('Initial data').fill('{"amount": 13}')
    await submit(page).click()
    await dialog.getByText('The id is taken by other data').waitFor()
    await dialog.getByText('"amount": 12').waitFor()
    await expectAccessible(page, 'queue-conflict')
    await dialog.getByLabel('Id (required)').fill('.')
    await submit(page).click()
    await dialog.getByText('TransactionID: must not be . or ..').waitFor()
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'hidden' })
    expect(await page.evaluate('document.activeElement.textContent')).toBe('Queue…')
  })

  it('the dialog queues a text that is not JSON as a JSON string, and proposes this string for a copy of the run', async () => {
    const page = await at.signIn()
    const dialog = await openQueue(page)
    await dialog.getByLabel('Id (required)').fill('text-1')
    await dialog.getByLabel('Initial data').fill('plain')
    await dialog.getByLabel('It is a text').check()
    await submit(page).click()
    await dialog.getByRole('link', { name: 'text-1' }).click()
    await page.getByRole('button', { name: 'More about run 0 of text-1' }).click()
    await expectAccessible(page, 'run-menu')
    await page.getByRole('button', { name: 'Queue a copy with changes…' }).click()
    await dialog.getByLabel('Initial data').waitFor()
    expect(await dialog.getByLabel('Initial data').inputValue()).toBe('"plain"')
    expect(await dialog.getByLabel('Id (required)').inputValue()).toBe('text-1-copy')
    await submit(page).click()
    await dialog.getByRole('link', { name: 'text-1-copy' }).click()
    await status(page, 'Completed').waitFor()
    await page.getByRole('button', { name: 'More about run 0' }).click()
    await page.getByRole('button', { name: 'Show as JSON' }).click()
    await dialog.getByText('"TransactionID": "text-1-copy"').waitFor()
  })

  it('the dialog proposes null for a copy of a run without initial data', async () => {
    const page = await at.signIn()
    const dialog = await openQueue(page)
    await dialog.getByLabel('Id (required)').fill('empty-1')
    await dialog.getByLabel('Initial data').fill('null')
    await submit(page).click()
    await dialog.getByRole('link', { name: 'empty-1' }).click()
    await page.getByRole('button', { name: 'More about run 0 of empty-1' }).click()
    await page.getByRole('button', { name: 'Queue a copy with changes…' }).click()
    await dialog.getByLabel('Initial data').waitFor()
    expect(await dialog.getByLabel('Initial data').inputValue()).toBe('null')
    expect(await dialog.getByRole('alert').count()).toBe(0)
  })

  it('the dialog says that a company does not exist, and the console does not queue the transaction', async () => {
    const page = await at.signIn()
    const dialog = await openQueue(page)
    await dialog.getByLabel('Id (required)').fill('unknown-company')
    const company = dialog.getByLabel('Id of the company (optional)')
    await company.fill('NO-SUCH')
    await dialog.getByRole('status').getByText('No company of this installation').waitFor()
    await submit(page).click()
    await dialog.getByRole('alert').getByText('There is no company NO-SUCH').waitFor()
    await expectAccessible(page, 'queue-unknown-company')
    await company.fill('rosew')
    const suggested = dialog.locator(`datalist option[value="${COMPANY.realm}"]`)
    await suggested.getByText('Rosewood Interiors').waitFor({ state: 'attached' })
    await company.fill(COMPANY.realm)
    await dialog.getByText('Rosewood Interiors').and(dialog.locator('bdi')).waitFor()
    await submit(page).click()
    await dialog.getByText('Queued:').waitFor()
  })

  it('the console explains to a viewer why queueing is disabled', async () => {
    const page = await at.open('/runs/OrderProcess/new-1')
    await signInAs(page, 'vera')
    await page.getByRole('button', { name: 'More about run' }).click()
    const copy = page.getByRole('button', { name: 'Queue a copy with changes…' })
    expect(await copy.getAttribute('aria-disabled')).toBe('true')
    await page.goto(`${at.console.url}/runs`)
    const queue = page.getByRole('button', { name: 'Queue…' })
    expect(await queue.getAttribute('aria-disabled')).toBe('true')
    const reason = await queue.getAttribute('aria-describedby')
    expect(await page.locator(`[id="${reason}"]`).textContent()).toContain('role operator')
    await queue.click({ force: true }) // Playwright waits for buttons that are not disabled
    expect(await dialogOf(page).count()).toBe(0)
  })
})
