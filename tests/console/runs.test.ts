/** Tests the list of runs, one run, and the actions on a run in a real browser. */
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'
import { signInAs } from './users.ts'

/**
 * The step `order` sends this text in the query of a URL. The text is so long that the demo API rejects the request
 * with 431.
 */
const TOO_LONG = 'x'.repeat(20_000)
/** A hostile id: an id with markup, a path, and a character that reverses the direction of text. */
const HOSTILE = '../<img src=x onerror=alert(1)>/\u202e%2F'

describe('the pages about runs in the console', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser({ SIGN_IN: 'link,password' }, { vera: 'viewer' })
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => at.endTest())

  /** Sends a request to the coordinator: a GET, or a POST if there is a body. */
  const coordinator = (path: string, body?: object): Promise<Response> =>
    at.request(at.host.coordinator + path, body)
  async function queue(TransactionID: string, InitialData: unknown = 1): Promise<void> {
    const path = '/processes/OrderProcess/transactions'
    expect((await coordinator(path, { TransactionID, InitialData })).status).toBe(202)
  }
  /** Returns the entries about a transaction in the action log of the coordinator, newest first. */
  async function actionsOn(id: string): Promise<{ Action: string; Person: string }[]> {
    const path = `/actions?process=OrderProcess&id=${encodeURIComponent(id)}`
    const { items } = (await (await coordinator(path)).json()) as {
      items: { Action: string; Person: string }[]
    }
    return items
  }

  const dialog = (page: Page) => page.getByRole('dialog')
  const status = (page: Page, name: string) =>
    page.getByRole('region', { name: 'State' }).getByText(name, { exact: true })

  it('the page Runs without runs shows the command that queues a transaction', async () => {
    const page = await at.signIn()
    await page.getByRole('link', { name: 'Runs', exact: true }).click()
    await page.getByText('There are no runs yet').waitFor()
    await expectAccessible(page, 'runs-empty')
  })

  it('a person opens a failed run from the page Now, resumes the run with a reason, and then replays the run', async () => {
    const page = await at.signIn()
    await queue('broken', TOO_LONG)
    await page.getByRole('heading', { name: '1 run failed at OrderProcess.order' }).waitFor()
    await page.getByRole('link', { name: 'Show', exact: true }).click()
    await page.getByText('the target responded with 431').waitFor()
    await page.getByRole('link', { name: 'broken', exact: true }).click()
    await status(page, 'Failed').waitFor()
    await page.getByText('attempt 1: http_431').first().waitFor({ state: 'attached' })
    await expectAccessible(page, 'run-failed')

    await page.getByRole('button', { name: 'Resume…' }).click()
    expect(await dialog(page).textContent()).toContain('same idempotency keys')
    await expectAccessible(page, 'run-dialog')
    await page.getByLabel('Reason').fill('the target is fixed')
    await page.getByRole('button', { name: 'Resume', exact: true }).click()
    await page.getByText('The run was resumed.').waitFor()
    const history = page.getByRole('region', { name: 'Actions on this run' })
    await history.getByText('the target is fixed').waitFor()
    expect(await history.textContent()).toContain('operator resumed OrderProcess/broken, run 0')
    await status(page, 'Failed').waitFor()

    await page.getByRole('button', { name: 'Replay…' }).click()
    await page.getByRole('button', { name: 'Replay', exact: true }).click()
    await page.waitForURL(/\?run=1$/)
    await status(page, 'Failed').waitFor()
    const items = await actionsOn('broken')
    expect(items.filter(({ Person }) => Person === 'operator').map(({ Action }) => Action)).toEqual(
      ['replay', 'resume'],
    )
  })

  it('the page of a run shows changes live, replays the run from a step, and shows data on demand', async () => {
    const page = await at.signIn()
    await queue('66', 66)
    await page.goto(`${at.console.url}/runs/OrderProcess/66`)
    await status(page, 'Completed').waitFor()
    await page.getByRole('button', { name: 'Show data' }).click()
    await page.getByText('Response of order').waitFor()
    await expectAccessible(page, 'run-completed')
    await page.getByRole('button', { name: 'Replay…' }).click()
    expect(await dialog(page).getByRole('heading').textContent()).toBe('Replay run 0 of 66?')
    expect(await dialog(page).textContent()).toContain('new idempotency keys')
    await page.getByLabel('Begin with').selectOption('report')
    await page.getByLabel('Reason').fill('the report was lost')
    await page.getByRole('button', { name: 'Replay', exact: true }).click()
    await page.waitForURL(/\?run=1$/)
    await status(page, 'Completed').waitFor()
    await page.getByText('Copied from the run before').waitFor()
    expect(await actionsOn('66')).toContainEqual(
      expect.objectContaining({
        Action: 'replay',
        Person: 'operator',
        Reason: 'the report was lost',
        ReplayID: 1,
      }),
    )
  })

  it('a cancelled run is in the action log of the coordinator with the person and the reason', async () => {
    const page = await at.signIn()
    expect((await coordinator('/processes/OrderProcess/pause', {})).status).toBe(200)
    await queue('paused')
    await page.goto(`${at.console.url}/runs/OrderProcess/paused`)
    await page.getByRole('button', { name: 'Cancel run…' }).click()
    await page.getByLabel('Reason').fill('ordered twice')
    await dialog(page).getByRole('button', { name: 'Cancel run', exact: true }).click()
    await status(page, 'Cancelled').waitFor()
    expect((await coordinator('/processes/OrderProcess/resume', {})).status).toBe(200)
    expect(await actionsOn('paused')).toMatchObject([
      { Action: 'cancel', Person: 'operator', Reason: 'ordered twice', Outcome: 'done' },
    ])
  })

  it('the coordinator rejects an action on a run that has changed meanwhile, and the dialog shows the reason', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/runs/OrderProcess/broken`)
    await status(page, 'Failed').waitFor()
    await page.route('**/resume', (route) =>
      route.continue({ postData: JSON.stringify({ Run: 1, Version: 0 }) }),
    )
    await page.getByRole('button', { name: 'Resume…' }).click()
    await page.getByRole('button', { name: 'Resume', exact: true }).click()
    await dialog(page).getByRole('alert').waitFor()
    await page.keyboard.press('Escape')
    await dialog(page).waitFor({ state: 'hidden' })
    expect(await page.evaluate('document.activeElement.textContent')).toBe('Resume…')
  })

  it('the page of a run shows markup and hidden characters in the id as text', async () => {
    const page = await at.signIn()
    await queue(HOSTILE)
    await page.goto(`${at.console.url}/runs?idPrefix=${encodeURIComponent('../')}`)
    await page.getByRole('link', { name: '⟨U+202E⟩' }).click()
    await status(page, 'Completed').waitFor()
    expect(await page.getByRole('heading', { level: 1 }).textContent()).toBe(
      '../<img src=x onerror=alert(1)>/⟨U+202E⟩%2F',
    )
    expect(await page.locator('img').count()).toBe(0)
    await page.reload() // the page is opened by its address alone
    await status(page, 'Completed').waitFor()
    await page.getByRole('button', { name: 'Replay…' }).click()
    await page.getByRole('button', { name: 'Replay', exact: true }).click()
    await page.waitForURL(/\?run=1$/)
    await status(page, 'Completed').waitFor()
    expect(await actionsOn(HOSTILE)).toContainEqual(
      expect.objectContaining({ Action: 'replay', TransactionID: HOSTILE, ReplayID: 1 }),
    )
  })

  it('the URL of the page Runs contains the filters, and the page loads older runs while a person scrolls', async () => {
    const page = await at.signIn()
    for (let index = 0; index < 55; index += 1) await queue(`many-${index}`)
    await page.getByRole('link', { name: 'Runs', exact: true }).click()
    await page.getByLabel('Id begins with').fill('many-')
    await page.keyboard.press('Enter')
    await page.waitForURL(/idPrefix=many-/)
    await page.getByRole('link', { name: 'many-54', exact: true }).waitFor()
    await page.mouse.wheel(0, 20_000)
    await page.getByRole('link', { name: 'many-0', exact: true }).waitFor()
    await page.getByRole('link', { name: 'Failed' }).click()
    await page.getByText('No run matches.').waitFor()
    await page.getByRole('link', { name: 'Show all runs' }).click()
    await page.getByRole('link', { name: 'many-54', exact: true }).waitFor()
    await expectAccessible(page, 'runs')
  })

  it('the page of a run reports that the transaction or the process in its URL does not exist', async () => {
    const page = await at.signIn()
    for (const [path, sentence] of [
      ['/runs/OrderProcess/none', 'none'],
      ['/runs/NoProcess/none', 'NoProcess'],
    ] as const) {
      await page.goto(at.console.url + path)
      expect(await page.getByRole('alert').textContent()).toContain(sentence)
    }
  })

  it('while the coordinator is unavailable, the page Runs keeps its list and reports the failure', async () => {
    const page = await at.signIn()
    let isUnavailable = false
    await page.route('**/api/runs?*', (route) =>
      isUnavailable
        ? route.fulfill({
            status: 503,
            json: { code: 'service_unavailable', detail: 'coordinator does not respond' },
          })
        : route.continue(),
    )
    await page.getByRole('link', { name: 'Runs', exact: true }).click()
    await page.getByRole('link', { name: 'many-54', exact: true }).waitFor()
    isUnavailable = true
    await queue('meanwhile')
    await page.getByRole('alert').getByText('coordinator does not respond').waitFor()
    await page.getByRole('link', { name: 'many-54', exact: true }).waitFor()
    expect(await page.getByRole('link', { name: 'meanwhile', exact: true }).count()).toBe(0)
    isUnavailable = false
    await page.getByRole('button', { name: '1 new' }).click()
    await page.getByRole('link', { name: 'meanwhile', exact: true }).waitFor()
  })

  it('the page of a run shows a viewer neither data nor enabled actions', async () => {
    const page = await at.open('/runs/OrderProcess/66')
    await signInAs(page, 'vera')
    await status(page, 'Completed').waitFor()
    const replay = page.getByRole('button', { name: 'Replay…' })
    expect(await replay.getAttribute('aria-disabled')).toBe('true')
    await replay.click({ force: true }) // Playwright waits for buttons that are not disabled
    expect(await dialog(page).count()).toBe(0)
    const data = page.getByRole('button', { name: 'Show data' })
    expect(await data.getAttribute('aria-disabled')).toBe('true')
    const requests: string[] = []
    page.on('request', (request) => requests.push(new URL(request.url()).pathname))
    await data.click({ force: true })
    expect(new URL(page.url()).hash).toBe('')
    await page.getByRole('link', { name: 'Data', exact: true }).click()
    expect(new URL(page.url()).hash).toBe('#data')
    // The reload of the page with this fragment would read the data of a person who may see it.
    await page.reload()
    await status(page, 'Completed').waitFor()
    await page.getByRole('region', { name: 'Data' }).waitFor()
    expect(await page.getByText('Initial data', { exact: true }).count()).toBe(0)
    expect(await page.getByText('Response of order').count()).toBe(0)
    expect(requests).toContain('/api/runs/OrderProcess/66')
    expect(requests).not.toContain('/api/runs/OrderProcess/66/data')
    await expectAccessible(page, 'run-viewer')
    const statuses = await page.evaluate(
      `Promise.all([fetch('/api/runs/OrderProcess/66/data'), fetch('/api/runs/OrderProcess/66/replay', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' })]).then((responses) => responses.map(({ status }) => status))`,
    )
    expect(statuses).toEqual([403, 403])
  })

  it('a viewer who signs in where an operator was signed in does not see the data that the operator has read', async () => {
    const page = await at.signIn()
    const other = await at.open('/runs/OrderProcess/66?run=0#data')
    await other.getByText('Response of order').waitFor()
    await page.getByRole('button', { name: 'operator' }).click()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await signInAs(other, 'vera')
    await other.getByRole('button', { name: 'Show data' }).waitFor()
    expect(new URL(other.url()).hash).toBe('#data')
    expect(await other.getByText('Response of order').count()).toBe(0)
  })

  it('the page Now disables its actions for a viewer, and shows the reason', async () => {
    await queue('of-the-viewer', TOO_LONG)
    const page = await at.open('/')
    await signInAs(page, 'vera')
    const resume = page.getByRole('button', { name: /^Resume \d+…$/ })
    await resume.waitFor()
    expect(await resume.getAttribute('title')).toBe('This needs the role operator.')
    await resume.click({ force: true })
    expect(await dialog(page).count()).toBe(0)
  })

  it('the browser title of a run shows the status, the id and the process, and replaces hidden characters in the id', async () => {
    await queue('title-\u202e', TOO_LONG)
    await at.signIn()
    const page = await at.open(`/runs/OrderProcess/${encodeURIComponent('title-\u202e')}`)
    await status(page, 'Failed').waitFor()
    await expect.poll(() => page.title()).toBe('✕ title-⟨U+202E⟩ · OrderProcess · Console')
    await page.getByRole('link', { name: 'Runs', exact: true }).first().click()
    await expect.poll(() => page.title()).toMatch(/ Runs · Console$/)
  })
})
