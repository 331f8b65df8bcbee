/** Tests the page Sandbox with the sandbox provider. */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { COMPANY, connectCompany } from '../../host/src/story.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, SANDBOX_SECRET, startConsoleBrowser } from './console-browser.ts'

describe('the sandbox page of the console in a browser', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser()
    await connectCompany(at.host, { stage() {}, line() {} })
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => at.endTest())

  it('the check of all responses to a browser recognizes the access tokens of the sandbox provider', async () => {
    const token = await at.request(`${at.host.tokenService}/credentials/ACC-${COMPANY.realm}/token`)
    expect(await token.text()).toMatch(SANDBOX_SECRET)
  })

  it('on the page Sandbox, a person can revoke a grant, and can make calls to the provider fail', async () => {
    const page = await at.signIn()
    await page.getByRole('link', { name: 'Sandbox' }).click()
    const company = page.getByRole('listitem', { name: COMPANY.name })
    await company.waitFor()
    await page.getByRole('button', { name: 'Fail…' }).click()
    await page.getByLabel('Which').selectOption('token')
    await page.getByLabel('How many').fill('2')
    await page.getByRole('dialog').getByRole('button', { name: 'Fail', exact: true }).click()
    await page.getByText('The next 2 calls of token: status 503').waitFor()
    await expectAccessible(page, 'sandbox')
    await page.getByRole('button', { name: 'Stop…' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Stop', exact: true }).click()
    await page.getByText('No call is going to fail.').first().waitFor()
    await company.getByRole('button', { name: 'Revoke…' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke', exact: true }).click()
    await page.getByText('The grant is revoked.').waitFor()
    await eventually(async () => {
      const refreshed = await at.request(
        `${at.host.tokenService}/credentials/ACC-${COMPANY.realm}/refresh`,
        {},
      )
      expect(refreshed.status).toBe(424)
    })
  })
})
