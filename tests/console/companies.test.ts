/** Tests the list of companies, one company, and the actions on a company in a real browser. */
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { COMPANY, connectCompany } from '../../host/src/story.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

describe('the pages about companies in the console', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => at.endTest())

  const request = (path: string, method = 'GET', body?: unknown): Promise<Response> =>
    at.request(at.host.tokenService + path, body, method)
  const credential = `/credentials/ACC-${COMPANY.realm}`
  /** Returns a figure about the company, which is found by its name. */
  const figure = (page: Page, name: string) =>
    page.locator('.figures > div').filter({ has: page.getByText(name, { exact: true }) })
  const state = (page: Page, name: string) =>
    page.getByRole('region', { name: 'State' }).getByText(name, { exact: true })

  it('when an owner has connected a company with a connect link, the page Companies shows the company without a reload', async () => {
    const page = await at.signIn()
    await page.getByRole('link', { name: 'Companies', exact: true }).first().click()
    await page.getByText('No company is connected yet').waitFor()
    await expectAccessible(page, 'companies-empty')
    await page.getByRole('button', { name: 'Connect a company…' }).click()
    await page.getByLabel('Name of the company').fill('<b>Rosewood</b>')
    await expectAccessible(page, 'connect-dialog')
    await page.getByRole('button', { name: 'Make a link', exact: true }).click()
    await page.getByText('It connects once').waitFor()
    await expectAccessible(page, 'connect-link')
    const opened = at.context.waitForEvent('page')
    await page.getByRole('link', { name: 'Open in a new tab' }).click()
    const owner = await opened
    await owner.getByRole('button', { name: 'Connect' }).click()
    await owner.getByRole('button', { name: 'Connect' }).click()
    await page.getByRole('link', { name: '<b>Rosewood</b>' }).waitFor()
    await page.getByRole('link', { name: '<b>Rosewood</b>' }).click()
    await state(page, 'Active').waitFor()
    await page.getByText('connected <b>Rosewood</b>').waitFor()
  })

  it('the page of a company with a revoked grant shows the remedy and offers no refresh until the company is reconnected', async () => {
    await connectCompany(at.host, { stage() {}, line() {} })
    const page = await at.signIn()
    await page.goto(`${at.console.url}/companies/${COMPANY.realm}`)
    await state(page, 'Active').waitFor()
    await page.getByText('only the next refresh shows it: Refresh finds out now').waitFor()
    for (const name of ['Access token', 'Next refresh', 'Grant ends, unless refreshed'])
      await figure(page, name).getByText(/^in /).waitFor()
    await expectAccessible(page, 'company-active')
    await at.sandbox(`realms/${COMPANY.realm}/revoke`)
    await eventually(async () => {
      expect((await request(`${credential}/refresh`, 'POST', {})).status).toBe(424)
      const { State } = (await (await request(credential)).json()) as { State: string }
      expect(State).toBe('must_reconnect')
    })
    await state(page, 'Must be reconnected').waitFor()
    await page
      .getByText('either the owner of the company disconnected the application, or another program')
      .waitFor()
    await figure(page, 'Refreshes')
      .getByText(/^ended /)
      .waitFor()
    await figure(page, 'Last access token ends').getByText(/^in /).waitFor()
    for (const name of ['Access token', 'Next refresh', 'Grant ends, unless refreshed'])
      expect(await figure(page, name).count()).toBe(0)
    await page.getByText('The access token is not refreshed any more.').waitFor()
    await expectAccessible(page, 'company-broken')
    const refresh = page.getByRole('button', { name: 'Refresh…' })
    expect(await refresh.getAttribute('aria-disabled')).toBe('true')
    await page.getByRole('link', { name: 'Companies', exact: true }).first().click()
    await page.getByRole('link', { name: 'Must be reconnected 1' }).click()
    await page.getByRole('link', { name: COMPANY.name }).waitFor()
    await expectAccessible(page, 'companies')
    await page.getByRole('link', { name: COMPANY.name }).click()
    await connectCompany(at.host, { stage() {}, line() {} })
    await state(page, 'Active').waitFor()
  })

  it('a person can refresh and rename a company, and the audit log names the person', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/companies/${COMPANY.realm}`)
    await page.getByRole('button', { name: 'Refresh…' }).click()
    const dialog = page.getByRole('dialog')
    expect(await dialog.getByRole('heading').textContent()).toContain(`Refresh ${COMPANY.name}`)
    expect(await dialog.textContent()).toContain(
      'The provider is asked for a new access token now.',
    )
    await page.getByRole('button', { name: 'Refresh', exact: true }).click()
    expect(
      await page.getByLabel('Reason (required)').evaluate((field) => field.matches(':invalid')),
    ).toBe(true)
    await page.getByLabel('Reason').fill('the provider is back')
    await page.getByRole('button', { name: 'Refresh', exact: true }).click()
    await page.getByText('The access token is refreshed.').waitFor()
    await page.getByRole('button', { name: 'Rename…' }).click()
    await page.getByLabel('Name (optional)').fill('Rosewood Interiors')
    await page.getByRole('button', { name: 'Rename', exact: true }).click()
    await page.getByRole('heading', { level: 1, name: 'Rosewood Interiors' }).waitFor()
    await eventually(async () => {
      const { items } = (await (await request('/audit?limit=20')).json()) as {
        items: { What: string; Who: string; Reason?: string }[]
      }
      for (const what of ['labelled', 'refreshed'])
        expect(items.find(({ What }) => What === what)?.Who).toBe('key console for operator')
      expect(items.find(({ What }) => What === 'refreshed')?.Reason).toBe('the provider is back')
    })
    const history = page.getByRole('region', { name: 'History' })
    await history.getByText('the provider is back').waitFor()
  })

  it('a person can pause the runs of a company and resume them, and Now shows the pause', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/companies/${COMPANY.realm}`)
    await page.getByRole('button', { name: 'Pause…' }).click()
    expect(await page.getByRole('dialog').textContent()).toContain('start no step')
    await page.getByLabel('Reason').fill('month <b>end</b>')
    await page.getByRole('button', { name: 'Pause', exact: true }).click()
    const pause = page.getByRole('region', { name: 'Pause' })
    await pause.getByText('“month <b>end</b>”').waitFor()
    await pause.getByText('by operator').waitFor()
    expect(await page.getByRole('button', { name: 'Pause…' }).count()).toBe(0)
    await expectAccessible(page, 'company-paused')
    await page.getByRole('link', { name: 'Companies', exact: true }).first().click()
    await page
      .getByRole('row', { name: /Rosewood Interiors/ })
      .getByText('runs are paused')
      .waitFor()
    await page.getByRole('link', { name: 'Now', exact: true }).first().click()
    await page.getByText('The runs of Rosewood Interiors are paused').waitFor()
    await expectAccessible(page, 'now-company-paused')
    await page.getByRole('button', { name: 'Resume…' }).click()
    await page.getByLabel('Reason').fill('the books are closed')
    await page.getByRole('button', { name: 'Resume', exact: true }).click()
    await page.getByText(/^Last: The runs of Rosewood Interiors are paused, ended/).waitFor()
    await page.goto(`${at.console.url}/companies/${COMPANY.realm}`)
    await page.getByRole('button', { name: 'Pause…' }).waitFor()
    expect(await pause.count()).toBe(0)
  })

  it('the dialog that connects a company warns if another company has its name, and does not forbid the name', async () => {
    const page = await at.signIn()
    await page.getByRole('link', { name: 'Companies', exact: true }).first().click()
    await page.getByRole('button', { name: 'Connect a company…' }).click()
    const dialog = page.getByRole('dialog')
    const warning = dialog.getByText('Another company has this name')
    await page.getByLabel('Name of the company').fill('rosewood interiors ')
    await warning.waitFor()
    expect(await dialog.textContent()).toContain(`has this name: ${COMPANY.realm}`)
    await expectAccessible(page, 'connect-dialog-same-name')
    await page.getByLabel('Name of the company').fill('Rosewood')
    await warning.waitFor({ state: 'detached' })
    await page.getByLabel('Name of the company').fill('Rosewood Interiors')
    await warning.waitFor()
    await page.getByRole('button', { name: 'Make a link', exact: true }).click()
    await page.getByText('It connects once').waitFor()
  })

  it('a company is disconnected only after a person has given a reason and typed the id of the company', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/companies/${COMPANY.realm}`)
    await page.getByRole('button', { name: 'Disconnect…' }).click()
    const dialog = page.getByRole('dialog')
    expect(await dialog.getByRole('heading').textContent()).toBe('Disconnect Rosewood Interiors?')
    expect(await dialog.textContent()).toContain('The grant is revoked at the provider')
    await page.getByLabel('Reason').fill('the customer has left')
    await page.getByLabel('to confirm').fill('another id')
    await page.keyboard.press('Enter')
    expect((await request(credential)).status).toBe(200)
    await page.getByLabel('Reason').fill('')
    await page.getByLabel('to confirm').fill(COMPANY.realm)
    await page.keyboard.press('Enter')
    expect((await request(credential)).status).toBe(200)
    await page.getByLabel('Reason').fill('the customer has left')
    await page.keyboard.press('Enter')
    await page.waitForURL(/\/companies$/)
    expect((await request(credential)).status).toBe(404)
    await eventually(async () => {
      const { items } = (await (await request('/audit?limit=100')).json()) as { items: object[] }
      expect(items).toContainEqual(
        expect.objectContaining({
          What: 'removed',
          Who: 'key console for operator',
          Reason: 'the customer has left',
        }),
      )
    })
    await page.goto(`${at.console.url}/companies/${COMPANY.realm}`)
    await page.getByRole('alert').waitFor()
  })

  it('while token-service is unavailable, the page Companies keeps the companies and reports the failure', async () => {
    const page = await at.signIn()
    await page.route('**/api/companies*', (route) =>
      route.fulfill({
        status: 503,
        json: { code: 'service_unavailable', detail: 'token-service does not respond' },
      }),
    )
    await page.getByRole('link', { name: 'Companies', exact: true }).first().click()
    const alert = page.getByRole('alert').getByText('token-service does not respond')
    await alert.waitFor()
    await page.unroute('**/api/companies*')
    await alert.waitFor({ state: 'detached' })
    expect(await page.getByRole('heading', { level: 1 }).textContent()).toBe('Companies')
  })
})
