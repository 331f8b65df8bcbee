/** Tests signing in, the page Now, the page Health and the live connection in a real browser. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { connectCompany } from '../../host/src/story.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'
import { enter, expectVisibleFocus, focusedText, tabTo } from './keyboard.ts'
import { loseCompany } from './lose-company.ts'

/**
 * The step `order` sends this text in the query of a URL. The text is so long that the demo API rejects the request
 * with 431.
 */
const TOO_LONG = 'x'.repeat(20_000)

describe('signing in, the page Now and the page Health of the console', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => at.endTest())

  const heading = (page: Page) => page.getByRole('heading', { level: 1 }).textContent()
  const isLive = (page: Page) =>
    page.getByRole('status').getByText('live', { exact: true }).waitFor()

  it('a one-time link signs in a person only once, and its secret is removed from the address', async () => {
    const link = at.console.signInLink() ?? ''
    const page = await at.open('/sign-in')
    await page.getByRole('heading', { name: 'Sign in' }).waitFor()
    await page.goto(link) // only the fragment changes, so the browser does not load the page again
    await page.getByRole('navigation').waitFor()
    expect(page.url()).not.toContain('#')
    const other = await at.another()
    const second = await other.open(link)
    expect(await second.getByRole('alert').textContent()).toContain('used already')
    await second
      .getByText('For a new link run npx --no -- integration-host console sign-in.')
      .waitFor()
    await expectAccessible(second, 'sign-in-used-link')
    await other.context.close()
    expect(at.log()).not.toContain(link.split('#')[1])
  })

  it('the page Now of an empty installation shows first steps, without violations of accessibility rules', async () => {
    const page = await at.signIn()
    await isLive(page)
    await page.getByRole('heading', { name: 'Nothing needs you' }).waitFor()
    await page.getByText('First steps').waitFor()
    await expectAccessible(page, 'now-empty')
    await page.getByRole('link', { name: 'Health', exact: true }).click()
    await page.getByText('6 of 6 replicas ready').waitFor()
    await page.getByText('npx --no -- integration-host doctor').waitFor()
    await expectAccessible(page, 'health')
  })

  // In this test the console reads the companies more often than usual. `read-intervals.test.ts` checks that the usual
  // interval is short enough to show a change within 5 s.
  it('the page Now shows that a company must be reconnected, and later that the company is connected again', async () => {
    const page = await at.signIn()
    await connectCompany(at.host, { stage() {}, line() {} })
    await page.getByText('1 of 1 company active').waitFor()
    await loseCompany(at)
    await page.getByRole('heading', { name: '1 company must be reconnected' }).waitFor()
    expect(await heading(page)).toBe('One thing needs you')
    expect(await page.title()).toBe('(1) Now · Console')
    const icon = () => page.locator('link[rel=icon]').getAttribute('href')
    expect(await icon()).toContain('circle') // the dot of a critical condition
    await expectAccessible(page, 'now-broken')
    await page.getByRole('button', { name: 'Reconnect…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('button', { name: 'Make a link', exact: true }).click()
    await page.getByText(/\/connect\/[\w-]+/).waitFor()
    await connectCompany(at.host, { stage() {}, line() {} })
    await page.getByRole('heading', { name: 'Nothing needs you' }).waitFor()
    expect(await page.title()).toBe('Now · Console')
    expect(await icon()).not.toContain('circle')
    await page.getByText('1 company must be reconnected').waitFor() // the page names the last condition that ended
  })

  it('the page Now shows a failed run within 5 s, with the step and the error class', async () => {
    const page = await at.signIn()
    const queued = await at.request(`${at.host.coordinator}/processes/OrderProcess/transactions`, {
      TransactionID: 'too-long',
      InitialData: TOO_LONG,
    })
    expect(queued.status).toBe(202)
    await page
      .getByRole('heading', { name: '1 run failed at OrderProcess.order' })
      .waitFor({ timeout: 5_000 })
    await expectAccessible(page, 'now-failed')
  })

  it('an operator resumes a failed run from the page Now', async () => {
    const page = await at.signIn()
    await page.getByRole('button', { name: 'Resume 1…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('1 run can be changed').waitFor()
    await dialog.getByLabel('Reason').fill('the target is fixed')
    await dialog.getByRole('button', { name: 'Resume', exact: true }).click()
    await page.waitForURL(/\/bulk\/[\w-]+\?of=1$/)
    await page.getByText('Completed', { exact: true }).waitFor()
    const actions = await at.request(
      `${at.host.coordinator}/actions?process=OrderProcess&id=too-long`,
    )
    expect(await actions.json()).toMatchObject({
      items: [{ Action: 'resume', Reason: 'the target is fixed' }],
    })
  })

  it('the page Now shows a paused process with its reason, and an operator can resume the process there', async () => {
    const page = await at.signIn()
    const process = `${at.host.coordinator}/processes/OrderProcess`
    const Reason = '<img src=x onerror=alert(1)>'
    expect((await at.request(`${process}/pause`, { Reason })).status).toBe(200)
    await page.getByRole('heading', { name: 'OrderProcess is paused' }).waitFor({ timeout: 10_000 })
    await page.getByText('<img src=x onerror=alert(1)>').first().waitFor()
    expect(await page.locator('img').count()).toBe(0)
    await page.getByRole('button', { name: 'Resume…' }).click()
    const dialog = page.getByRole('dialog', { name: 'Resume OrderProcess?' })
    await dialog.getByLabel('Reason').fill('maintenance is over')
    await dialog.getByRole('button', { name: 'Resume', exact: true }).click()
    await page
      .getByRole('heading', { name: 'OrderProcess is paused' })
      .waitFor({ state: 'detached' })
  })

  it('all tabs of a session share one event stream, and a sign-out in one tab signs out all tabs', async () => {
    const pages = [await at.signIn()]
    while (pages.length < 8) pages.push(await at.open('/'))
    for (const page of pages) await isLive(page)
    const metrics = await (await fetch(`${at.console.url}/metrics`)).text()
    expect(metrics).toMatch(/^console_event_streams\{.*\} 1$/m)
    await pages[0]?.close() // another tab continues to read the stream
    const [, second, third] = pages
    await eventually(async () => {
      const text = await (await fetch(`${at.console.url}/metrics`)).text()
      expect(text).toMatch(/^console_event_streams\{.*\} 1$/m)
    })
    await second?.getByRole('button', { name: 'operator' }).click()
    await second?.getByRole('button', { name: 'Sign out' }).click()
    await third?.getByRole('heading', { name: 'Sign in' }).waitFor({ timeout: 10_000 })
  })

  it('a web page on another port can use the console neither in the browser nor with the stolen session cookie', async () => {
    await at.signIn()
    const [cookie] = await at.context.cookies()
    expect(cookie).toMatchObject({ name: 'console', httpOnly: true, sameSite: 'Strict' })
    let cookieOfPort = ''
    const server = createServer((received, response) => {
      cookieOfPort ||= received.headers.cookie ?? ''
      response.setHeader('Content-Type', 'text/html').end('<title>another page</title>')
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const page = await at.context.newPage()
    await page.goto(`http://127.0.0.1:${port}/`)
    const outcome = await page.evaluate(
      `fetch('${at.console.url}/api/integrity', { method: 'POST', credentials: 'include', mode: 'no-cors', body: '{}' }).then(() => 'readable', () => 'blocked')`,
    )
    expect(outcome).toBe('blocked')
    for (const mode of ['cors', 'no-cors'])
      expect(
        await page.evaluate(
          `fetch('${at.console.url}/api/now', { credentials: 'include', mode: '${mode}' }).then(() => 'readable', () => 'blocked')`,
        ),
      ).toBe('blocked')
    // A form is a request with the cookie whose response the browser shows.
    const submitted = page.waitForResponse('**/api/processes/OrderProcess/pause')
    await page.setContent(
      `<form method="post" action="${at.console.url}/api/processes/OrderProcess/pause"><button>send</button></form>`,
    )
    await page.getByRole('button').click()
    const form = await submitted
    expect([form.status(), (await form.request().allHeaders())['cookie']]).toEqual([
      403,
      expect.stringContaining('console='),
    ])
    const process = await at.request(`${at.host.coordinator}/processes/OrderProcess`)
    expect(await process.json()).toMatchObject({ Paused: false })
    server.close()
    // Cookies do not depend on the port, so the server on the other port receives the session cookie. But the console
    // also requires headers that only a browser can set.
    expect(cookieOfPort).toContain('console=')
    const stolen = await fetch(`${at.console.url}/api/integrity`, {
      method: 'POST',
      headers: {
        Cookie: cookieOfPort,
        Origin: `http://127.0.0.1:${port}`,
        'Content-Type': 'application/json',
      },
      body: '{}',
    })
    expect(stolen.status).toBe(403)
  })

  it('a person can open pages and connect a company with the keyboard alone, and always sees the focus', async () => {
    await at.signIn()
    const page = await at.open('/')
    await isLive(page)
    await enter(page, page.getByRole('link', { name: 'Companies', exact: true }).first())
    await expect.poll(() => focusedText(page)).toBe('Companies')
    await enter(page, page.getByRole('button', { name: 'Connect a company…' }))
    await page.keyboard.insertText('Rosewood')
    await page.keyboard.press('Enter')
    await page.getByText('It connects once, until').waitFor()
    await enter(page, page.getByRole('dialog').getByRole('button', { name: 'Close' }))
    expect(await focusedText(page)).toBe('Connect a company…')
  })

  it('a person can queue a run and resume it with the keyboard alone, one run and several runs', async () => {
    await at.signIn()
    const page = await at.open('/')
    const state = page.getByRole('region', { name: 'State' })
    await enter(page, page.getByRole('link', { name: 'Runs', exact: true }).first())
    await enter(page, page.getByRole('button', { name: 'Queue…' }).first())
    const dialog = page.getByRole('dialog')
    await tabTo(page, dialog.getByLabel('Id (required)'))
    await page.keyboard.insertText('by-keyboard')
    await tabTo(page, dialog.getByLabel('Initial data'))
    await page.keyboard.insertText(JSON.stringify(TOO_LONG))
    await enter(page, dialog.getByRole('button', { name: 'Queue', exact: true }))
    await enter(page, dialog.getByRole('link', { name: 'by-keyboard' }))
    await expect.poll(() => focusedText(page)).toBe('by-keyboard')
    await state.getByText('Failed', { exact: true }).waitFor()
    await enter(page, page.getByRole('button', { name: 'Resume…' }))
    await page.keyboard.insertText('by keyboard')
    await page.keyboard.press('Enter')
    await page.getByText('The run was resumed.').waitFor()
    await expectVisibleFocus(page)
    expect(await focusedText(page)).toBe('Resume…')
    await state.getByText('Failed', { exact: true }).waitFor()

    await enter(page, page.getByRole('link', { name: 'Runs', exact: true }).first())
    await tabTo(page, page.getByLabel('Select by-keyboard'))
    await page.keyboard.press('Space')
    const bar = page.getByRole('region', { name: 'Selected runs' })
    await enter(page, bar.getByRole('button', { name: 'Clear' }))
    // The bar is gone, so the focus is again on the control that had it before.
    await tabTo(page, page.getByLabel('Select by-keyboard'))
    await page.keyboard.press('Space')
    await enter(page, bar.getByRole('button', { name: 'Resume…' }))
    await dialog.getByText('1 run can be changed').waitFor()
    await tabTo(page, dialog.getByLabel('Reason'))
    await page.keyboard.insertText('by keyboard')
    await page.keyboard.press('Enter')
    await page.waitForURL(/\/bulk\/[\w-]+\?of=1$/)
    await page.getByText('Completed', { exact: true }).waitFor()
    expect(await focusedText(page)).toMatch(/^Action on many runs$|^Resume: OrderProcess$/)
    await expectVisibleFocus(page)
  })

  it('the focus moves to a control nearby when an action or another person removes the focused control', async () => {
    await at.signIn()
    const page = await at.open('/processes/OrderProcess')
    const order = page.getByRole('region', { name: 'State' })
    await enter(page, order.getByRole('button', { name: 'Pause…' }))
    await page.keyboard.insertText('by keyboard')
    await page.keyboard.press('Enter')
    await order.getByRole('button', { name: 'Resume…' }).waitFor()
    await expect.poll(() => focusedText(page)).toBe('Resume…')
    await expectVisibleFocus(page)
    await enter(page, page.getByRole('link', { name: /^Now/ }))
    const paused = page.getByRole('listitem').filter({ hasText: 'OrderProcess is paused' })
    await tabTo(page, paused.getByRole('button', { name: 'Resume…' }))
    await at.request(`${at.host.coordinator}/processes/OrderProcess/resume`, {})
    await paused.waitFor({ state: 'detached' })
    await expectVisibleFocus(page)
    await page.goto(`${at.console.url}/runs`)
    await tabTo(page, page.getByLabel('Id begins with'))
    await page.keyboard.insertText('by-')
    await page.keyboard.press('Enter')
    await page.waitForURL(/idPrefix=by-/)
    await expectVisibleFocus(page)
    expect(await page.evaluate('document.activeElement.name')).toBe('idPrefix')
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
