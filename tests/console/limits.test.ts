/** Tests the page Limits with a gateway that the sandbox throttles. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { COMPANY, connectCompany } from '../../host/src/story.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

describe('the limits page of the console in a browser', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser({ MONTHLY_BUDGET: '1000' })
    await connectCompany(at.host, { stage() {}, line() {} })
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => at.endTest())

  const callBooks = (path: string): Promise<Response> =>
    fetch(`${at.host.accountingGateway}/v3/company/${COMPANY.realm}/${path}`, {
      headers: { Authorization: `Bearer ${at.host.serviceKey}` },
    })

  it('the page Limits first shows that there were no calls, and later shows the calls of a company and a failed call', async () => {
    const page = await at.signIn()
    await page.getByRole('link', { name: 'Limits' }).click()
    await page.getByText('No company has made a call').waitFor()
    const state = page.locator('.state').filter({ hasText: 'Cool-down after a 429' })
    expect(await state.textContent()).toBe('‖Cool-down after a 429')
    await expectAccessible(page, 'limits-empty')
    await (await callBooks(`companyinfo/${COMPANY.realm}`)).text()
    await (await callBooks('invoice/none?secret=business')).text()
    await page.getByRole('row', { name: COMPANY.realm }).waitFor()
    await expectAccessible(page, 'limits')
    await page.getByRole('link', { name: COMPANY.name }).click()
    await page.getByRole('heading', { name: 'Failed calls' }).waitFor()
    await page.getByText(`GET /v3/company/${COMPANY.realm}/invoice/none`).waitFor()
    await page.getByText('610 Object Not Found').waitFor()
    expect(await page.content()).not.toContain('secret')
    await expectAccessible(page, 'limits-company')
  })
})
