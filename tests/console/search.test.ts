/** Tests the search and the keyboard shortcuts of the console. */
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { COMPANY, connectCompany } from '../../host/src/story.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

describe('the search and the keyboard shortcuts of the console', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser()
    await connectCompany(at.host, { stage() {}, line() {} })
    for (const TransactionID of ['order-66', 'order-67', '../x'])
      await at.request(`${at.host.coordinator}/processes/OrderProcess/transactions`, {
        TransactionID,
        InitialData: '1',
      })
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => at.endTest())

  const field = (page: Page) => page.getByRole('combobox')
  const chosen = (page: Page): Promise<unknown> =>
    page.evaluate(
      "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))?.textContent",
    )

  it('a person can open a run by the beginning of its id with the keyboard alone', async () => {
    const page = await at.signIn()
    await page.keyboard.press('Control+k')
    await field(page).pressSequentially('order-')
    await page.getByRole('option', { name: 'order-67' }).waitFor()
    await expectAccessible(page, 'search')
    expect(await chosen(page)).toContain('order-67')
    await page.keyboard.press('ArrowDown')
    expect(await chosen(page)).toContain('order-66')
    await page.keyboard.press('Enter')
    await page.waitForURL(`${at.console.url}/runs/OrderProcess/order-66?run=0`)
    await eventually(async () =>
      expect(await page.evaluate('document.activeElement.tagName')).toBe('H1'),
    )
  })

  it('the search of the console finds companies, pages, and runs whose ids contain slashes', async () => {
    const page = await at.signIn()
    const button = page.getByRole('button', { name: 'Search' })
    await button.click()
    await field(page).fill(COMPANY.realm)
    await page.getByRole('group', { name: 'Companies' }).getByRole('option').click()
    await page.waitForURL(`${at.console.url}/companies/${COMPANY.realm}`)
    await page.keyboard.press('/')
    await field(page).fill('../')
    await page.getByRole('option', { name: '../x' }).click()
    await page.waitForURL(`${at.console.url}/runs/OrderProcess/..%2Fx?run=0`)
    await page.keyboard.press('/')
    await field(page).fill('settin')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Settings', level: 1 }).waitFor()
    await button.click()
    await page.keyboard.press('Escape')
    expect(await page.evaluate('document.activeElement.className')).toBe('find')
  })

  it('keyboard shortcuts open pages and the list of shortcuts, unless a person has disabled the shortcuts', async () => {
    const page = await at.signIn()
    for (const [key, name] of [
      ['r', 'Runs'],
      ['c', 'Companies'],
      ['p', 'Processes'],
      ['h', 'Health'],
    ] as const) {
      await page.keyboard.press('g')
      await page.keyboard.press(key)
      await page.getByRole('heading', { name, level: 1, exact: true }).waitFor()
    }
    await page.keyboard.press('?')
    await page.getByRole('dialog', { name: 'Keys' }).waitFor()
    await expectAccessible(page, 'keys')
    await page.keyboard.press('Escape')
    await page.goto(`${at.console.url}/settings`)
    await page.evaluate("localStorage.setItem('shortcuts', 'off')")
    await page.reload()
    await page.getByRole('heading', { name: 'Settings', level: 1 }).waitFor()
    for (const key of ['g', 'r', '?', '/']) await page.keyboard.press(key)
    expect(await page.getByRole('dialog').count()).toBe(0)
    expect(page.url()).toBe(`${at.console.url}/settings`)
    await page.keyboard.press('Control+k')
    await page.getByRole('dialog', { name: 'Search' }).waitFor()
    await page.evaluate("localStorage.removeItem('shortcuts')")
  })
})
