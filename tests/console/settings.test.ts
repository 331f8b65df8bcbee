/** Tests the page Settings and the sessions of a person in a real browser. */
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Locator, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { COMPANY, connectCompany } from '../../host/src/story.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'
import { loseCompany } from './lose-company.ts'

/**
 * The step `order` sends this text in the query of a URL. The text is so long that the demo API rejects the request
 * with 431.
 */
const TOO_LONG = 'x'.repeat(20_000)
/** A time zone whose hour always differs from the hour in UTC. */
const ZONE = 'Asia/Tokyo'
/** The time zone of the computer. Its hour differs from the hour in UTC and in Tokyo. */
const LOCAL_ZONE = 'America/New_York'
/**
 * The time in which all tabs must show that a session has ended. The event streams end within two seconds
 * (app.test.ts), but a busy machine needs more time to draw the pages.
 */
const SOON_MS = 6_000

describe('the settings of the console', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(async () => {
    for (const page of at.context.pages()) {
      await page.evaluate('localStorage.clear()')
      await page.close()
    }
    await at.context.clearCookies()
    expect(at.problems).toEqual([])
  })

  /** Queues a run that fails. */
  async function queue(TransactionID: string): Promise<void> {
    const queued = await at.request(`${at.host.coordinator}/processes/OrderProcess/transactions`, {
      TransactionID,
      InitialData: TOO_LONG,
    })
    expect(queued.status).toBe(202)
  }
  const themeOf = (page: Page): Promise<string> =>
    page.evaluate('document.documentElement.dataset.theme')
  const groundOf = (page: Page): Promise<string> =>
    page.evaluate('getComputedStyle(document.documentElement).backgroundColor')
  /** Returns the hour and the minute of a `<time>` in a time zone, such as `3:12`. */
  const hourIn = async (time: Locator, timeZone: string): Promise<string> =>
    new Intl.DateTimeFormat('en-US', { hour: 'numeric', minute: '2-digit', timeZone })
      .format(new Date((await time.getAttribute('datetime')) ?? ''))
      .replace(/ [AP]M$/, '')
  const showTimesAs = (page: Page, name: string) => page.getByLabel(name, { exact: true }).check()

  it('a change of the theme or the density applies immediately in all tabs, and remains after a reload', async () => {
    const page = await at.signIn()
    await page.emulateMedia({ colorScheme: 'dark' })
    const other = await at.open('/')
    await other.getByRole('heading', { level: 1 }).waitFor()
    await page.getByRole('button', { name: 'operator' }).click()
    await page.getByRole('link', { name: 'Settings' }).click()
    expect(await groundOf(page)).toBe('rgb(20, 23, 26)')
    await page.getByLabel('Light').check()
    expect(await groundOf(page)).toBe('rgb(244, 246, 248)')
    await page.emulateMedia({ colorScheme: 'light' })
    await page.getByLabel('Dark').check()
    await page.reload()
    expect(await page.getByLabel('Dark').isChecked()).toBe(true)
    expect(await groundOf(page)).toBe('rgb(20, 23, 26)')
    await page.getByLabel('Light').check()
    await page.getByLabel('Compact').check()
    await eventually(async () => expect(await themeOf(other)).toBe('light'))
    await page.reload()
    expect(await page.getByLabel('Light').isChecked()).toBe(true)
    expect(await page.evaluate('document.documentElement.dataset.density')).toBe('compact')
    await page.getByLabel('As the system').check()
    await eventually(async () => expect(await themeOf(other)).toBe('system'))
    for (const [colorScheme, ground] of [
      ['dark', 'rgb(20, 23, 26)'],
      ['light', 'rgb(244, 246, 248)'],
    ] as const) {
      await page.emulateMedia({ colorScheme })
      await page.reload()
      await page.getByLabel('As the system').waitFor()
      expect(await groundOf(page)).toBe(ground)
    }
    await expectAccessible(page, 'settings-compact')
    await page.getByLabel('Comfortable').check()
    await expectAccessible(page, 'settings')
  })

  it('the console shows a desktop notification when a critical condition begins, if the person has enabled notifications', async () => {
    await at.context.grantPermissions(['notifications'])
    await at.context.addInitScript(
      `globalThis.shown = []
      globalThis.Notification = class extends Notification {
        constructor(title, options) {
          super(title, options)
          globalThis.shown.push([title, options.body])
        }
      }`,
    )
    await at.signIn()
    const page = await at.open('/settings')
    const choice = page.getByLabel('Show a notice when something critical begins')
    expect(await choice.isChecked()).toBe(false)
    await choice.click()
    // The browser asks for the permission first, so the choice changes later than the click.
    await expect.poll(() => choice.isChecked()).toBe(true)
    await loseCompany(at)
    await eventually(async () =>
      expect(await page.evaluate('globalThis.shown')).toEqual([
        ['1 company must be reconnected', expect.stringContaining('disconnected by its owner')],
      ]),
    )
    await connectCompany(at.host, { stage() {}, line() {} })
    await choice.uncheck()
    expect(await page.evaluate(`localStorage.getItem('notices')`)).toBe('off')
  })

  it('if the browser does not allow desktop notifications, they stay disabled, and the page Settings explains why', async () => {
    await at.context.clearPermissions()
    await at.signIn()
    const page = await at.open('/settings')
    await page.evaluate(`Notification.requestPermission = () => Promise.resolve('denied')`)
    const choice = page.getByLabel('Show a notice when something critical begins')
    await choice.click()
    await page.getByText('The browser does not allow notices of this page').waitFor()
    expect(await choice.isChecked()).toBe(false)
  })

  it('all pages show times in the time zone of the computer, in UTC or in another time zone, also after a reload', async () => {
    await queue('zones')
    await connectCompany(at.host, { stage() {}, line() {} })
    await at.signIn()
    const settings = await at.open('/settings')
    /** A time of each page. */
    const times: Locator[] = []
    for (const [path, time] of [
      ['/runs', 'tbody time'],
      ['/runs/OrderProcess/zones', '.timeline figcaption time'],
      ['/runs/OrderProcess/zones', '#attempts time'],
      ['/companies', 'tbody time'],
      [`/companies/${COMPANY.realm}`, 'section:has(> h2:text-is("History")) ol time'],
      ['/activity', '.activity time'],
    ] as const) {
      const page = await at.context.newPage()
      const client = await at.context.newCDPSession(page)
      await client.send('Emulation.setTimezoneOverride', { timezoneId: LOCAL_ZONE })
      await page.goto(at.console.url + path)
      times.push(page.locator(time).first())
    }
    await times[0]?.getByText(/ago|just now/).waitFor()
    const expectZone = async (timeZone: string, zoneName: string): Promise<void> => {
      for (const time of times)
        await eventually(async () => {
          const text = (await time.textContent()) ?? ''
          expect(text, time.page().url()).toContain(await hourIn(time, timeZone))
          expect(await time.page().locator('.clock').textContent()).toMatch(
            new RegExp(`[AP]M ?${zoneName}$`),
          )
        })
    }
    for (const [name, zone, zoneName] of [
      ['Time of this computer', LOCAL_ZONE, ''],
      ['Another time zone', ZONE, 'Tokyo'],
      ['UTC', 'UTC', 'UTC'],
    ] as const) {
      await showTimesAs(settings, name)
      if (zone === ZONE) await settings.getByRole('combobox').selectOption(ZONE)
      await expectZone(zone, zoneName)
      if (zone !== ZONE) continue
      for (const time of times) await time.page().reload()
      await expectZone(zone, zoneName)
    }
    await settings.getByLabel('Relative').check()
    await times[0]?.page().reload()
    await times[0]?.getByText(/ago|just now/).waitFor()
  })

  it('when a person ends another session on the page Settings, all tabs of that session show the sign-in page', async () => {
    const other = await at.another()
    const stolen = await other.open(at.console.signInLink() ?? '')
    await stolen.getByRole('status').getByText('live', { exact: true }).waitFor()
    const second = await other.open(`${at.console.url}/runs`)
    await second.getByRole('heading', { name: 'Runs' }).waitFor()

    await at.signIn()
    const page = await at.open('/settings')
    await page.getByText('this browser', { exact: true }).waitFor()
    const [cookie] = await other.context.cookies()
    await page
      .getByRole('row')
      .filter({ hasNotText: 'this browser' })
      .getByRole('button', { name: 'End' })
      .first()
      .click()
    await stolen.getByRole('heading', { name: 'Sign in' }).waitFor({ timeout: SOON_MS })
    await second.getByRole('heading', { name: 'Sign in' }).waitFor({ timeout: SOON_MS })
    const answer = await fetch(`${at.console.url}/api/now`, {
      headers: { Origin: at.console.url, Cookie: `console=${cookie?.value}` },
    })
    expect(answer.status).toBe(401)
    await other.context.close()
  })

  it('a sign-out in one tab shows the sign-in page in all tabs, whichever tab reads the event stream', async () => {
    for (const signsOut of [0, 1]) {
      const first = await at.signIn()
      await first.getByRole('status').getByText('live', { exact: true }).waitFor()
      const tabs = [first, await at.open('/runs'), await at.open('/settings')]
      for (const tab of tabs) await tab.getByRole('button', { name: 'operator' }).waitFor()
      await tabs[signsOut]?.getByRole('button', { name: 'operator' }).click()
      await tabs[signsOut]?.getByRole('button', { name: 'Sign out' }).click()
      for (const tab of tabs)
        await tab.getByRole('heading', { name: 'Sign in' }).waitFor({ timeout: SOON_MS })
      expect(await at.context.cookies()).toEqual([])
      for (const tab of tabs) await tab.close()
    }
  })
})
