/** Tests the page Activity with the logs of a running installation. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { COMPANY, connectCompany } from '../../host/src/story.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

const LABEL = 'Rosewood & <i>Sons</i>'

describe('the activity page of the console in a browser', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser()
    await connectCompany(at.host, { stage() {}, line() {} })
    const label = await at.request(
      `${at.host.tokenService}/credentials/ACC-${COMPANY.realm}`,
      { Label: LABEL },
      'PATCH',
    )
    expect(label.status).toBe(200)
    for (const [action, Reason] of [
      ['pause', 'maintenance of the <b>provider</b>'],
      ['resume', 'done'],
    ])
      await at.request(`${at.host.coordinator}/processes/OrderProcess/${action}`, { Reason })
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => at.endTest())

  it('the page Activity lists actions, connections of companies and sign-ins, and shows markup in a reason as text', async () => {
    const page = await at.signIn()
    const changes = page.getByRole('region', { name: 'What changed' })
    await changes.getByRole('link', { name: LABEL }).first().waitFor()
    await page.getByRole('link', { name: 'All activity' }).click()
    await page.getByRole('heading', { name: 'Activity', level: 1 }).waitFor()
    await page.getByText('maintenance of the <b>provider</b>').waitFor()
    await page.getByRole('listitem').filter({ hasText: 'signed in by link' }).first().waitFor()
    await expectAccessible(page, 'activity')
    await page.getByRole('link', { name: LABEL }).first().click()
    await page.waitForURL(`${at.console.url}/companies/${COMPANY.realm}`)
  })

  it('a link to the page Activity contains its filters, and shows the same list in another tab', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/activity`)
    const kinds = page.getByRole('navigation', { name: 'Kinds of entries' })
    await kinds.getByRole('link', { name: 'Processes' }).click()
    await page.getByLabel('Process', { exact: true }).fill('OrderProcess')
    await page.keyboard.press('Enter')
    await page.waitForURL(/kind=processes&process=OrderProcess$/)
    const other = await at.open(page.url().slice(at.console.url.length))
    for (const tab of [page, other]) {
      await tab.getByText('paused').first().waitFor()
      expect(await tab.locator('.activity li').count()).toBe(2)
    }
    await page.getByLabel('Person').fill('nobody')
    await page.keyboard.press('Enter')
    await page.getByText('Nothing matches these filters.').waitFor()
  })
})
