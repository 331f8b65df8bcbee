/** Tests the help pages, their links from conditions and problems, and the navigation on a narrow screen. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

describe('the help pages of the console in a browser', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(async () => {
    for (const page of at.context.pages()) await page.close()
    await at.context.clearCookies()
    expect(at.problems).toEqual([])
  })

  const pauseOrResume = (action: 'pause' | 'resume') =>
    fetch(`${at.host.coordinator}/processes/OrderProcess/${action}`, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${at.host.serviceKey}`,
        'Content-Type': 'application/json',
      },
      body: '{}',
    })

  it('a condition on the page Now links to the section of the runbook that explains the condition', async () => {
    const page = await at.signIn()
    const foreign: string[] = []
    page.on('request', (request) => {
      if (!request.url().startsWith(at.console.url)) foreign.push(request.url())
    })
    expect((await pauseOrResume('pause')).status).toBe(200)
    await page.getByRole('link', { name: 'Runbook on ProcessPaused' }).click()
    const section = page.getByRole('heading', { name: 'ProcessPaused' })
    await section.waitFor()
    expect(page.url()).toBe(`${at.console.url}/help/runbook#processpaused`)
    expect(await page.evaluate('document.activeElement.id')).toBe('processpaused')
    expect(await section.evaluate((element) => element.getBoundingClientRect().top)).toBeLessThan(
      400,
    )
    await page.goBack()
    await page.getByRole('heading', { name: 'OrderProcess is paused' }).waitFor()
    await pauseOrResume('resume')
    expect(foreign).toEqual([])
  })

  it('the help pages of the runbook and the errors can be read without violations of accessibility rules', async () => {
    const page = await at.signIn()
    await page.getByRole('link', { name: 'Help', exact: true }).click()
    await page.getByRole('heading', { name: 'Help', level: 1 }).waitFor()
    expect(await page.title()).toContain('Help · Console')
    await expectAccessible(page, 'help')
    await page.getByRole('link', { name: 'Errors' }).click()
    await page.getByRole('heading', { name: 'Errors', level: 1 }).waitFor()
    expect(await page.evaluate('document.activeElement.tagName')).toBe('H1')
    await expectAccessible(page, 'help-errors')
    await page.goto(`${at.console.url}/help/runbook`)
    await page.getByRole('heading', { name: 'Runbook', level: 1 }).waitFor()
    await expectAccessible(page, 'help-runbook')
    await page.getByRole('navigation', { name: 'On this page' }).getByText('Alerts').waitFor({
      state: 'visible',
    })
  })

  it('an error message on a page of the console links to the help section about its error code', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/runs/OrderProcess/none`)
    await page.getByRole('link', { name: 'What transaction_not_found means' }).click()
    await page.getByRole('heading', { name: 'transaction_not_found' }).waitFor()
    expect(page.url()).toBe(`${at.console.url}/help/errors#transaction_not_found`)
  })

  it('on a narrow screen, the navigation is a drawer that closes when a person presses Escape or follows a link', async () => {
    const page = await at.signIn()
    await page.setViewportSize({ width: 400, height: 800 })
    const pages = page.getByRole('navigation', { name: 'Pages' })
    await pages.waitFor({ state: 'hidden' })
    const button = page.getByRole('button', { name: 'Pages' })
    await button.click()
    await pages.waitFor()
    await page.keyboard.press('Escape')
    await pages.waitFor({ state: 'hidden' })
    await button.click()
    await pages.getByRole('link', { name: 'Health' }).click()
    await page.getByRole('heading', { name: 'Health', level: 1 }).waitFor()
    expect(await pages.isVisible()).toBe(false)
  })
})
