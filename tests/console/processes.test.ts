/** Tests the processes, the schedules and the dead letters in a real browser. */
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { startHttpServer } from '../support/fakes/http-server.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

const folder = (path: string): string => fileURLToPath(new URL(path, import.meta.url))

describe('the page Processes and the page of dead letters in the console', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser({
      PROCESSES: [folder('../../services/coordinator/src/processes'), folder('processes')].join(),
    })
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => at.endTest())

  const read = async <Body>(path: string): Promise<Body> => {
    const response = await at.request(at.host.coordinator + path)
    expect(response.status).toBe(200)
    return (await response.json()) as Body
  }

  /** Returns action and reason of each entry of the log that names the person, newest first. */
  async function actionsOf(process: string): Promise<readonly (readonly [string, string])[]> {
    const { items } = await read<{ items: { Action: string; Person: string; Reason: string }[] }>(
      `/actions?process=${process}`,
    )
    return items
      .filter(({ Person }) => Person === 'operator')
      .map(({ Action, Reason }) => [Action, Reason])
  }

  it('a person can pause a process only with a reason, and the page Now links to the paused process', async () => {
    const page = await at.signIn()
    await page.getByRole('link', { name: 'Processes', exact: true }).click()
    await expectAccessible(page, 'processes')
    await page.getByRole('link', { name: 'OrderProcess', exact: true }).click()
    const order = page.getByRole('region', { name: 'State' })
    await order.getByText('Active', { exact: true }).waitFor()
    await expectAccessible(page, 'process')
    await order.getByRole('button', { name: 'Pause…' }).click()
    const dialog = page.getByRole('dialog', { name: 'Pause OrderProcess?' })
    expect(await dialog.textContent()).toContain('no step begins until it is resumed')
    await page.keyboard.press('Enter') // the person has typed no reason yet
    expect((await read<{ Paused: boolean }>('/processes/OrderProcess')).Paused).toBe(false)
    await page.getByLabel('Reason').fill('the target is maintained')
    await page.keyboard.press('Enter')
    await order.getByText('Paused', { exact: true }).waitFor()
    await order.getByText('“the target is maintained”').waitFor()
    expect(await read('/processes/OrderProcess')).toMatchObject({
      Paused: true,
      PausedBy: 'operator',
      Reason: 'the target is maintained',
    })
    await page.getByRole('link', { name: 'Now', exact: false }).first().click()
    await page.getByRole('heading', { name: 'OrderProcess is paused' }).waitFor()
    await page.getByRole('link', { name: 'Show', exact: true }).click()
    await order.getByRole('button', { name: 'Resume…' }).click()
    await page.getByLabel('Reason').fill('the maintenance is over')
    await page.keyboard.press('Enter')
    await order.getByText('Active', { exact: true }).waitFor()
    expect(await actionsOf('OrderProcess')).toEqual([
      ['resume', 'the maintenance is over'],
      ['pause', 'the target is maintained'],
    ])
  })

  it('the page of a process shows what starts it, its steps, limits and input, and its latest runs', async () => {
    await at.signIn()
    const page = await at.open('/processes/Nightly')
    const state = page.getByRole('region', { name: 'State' })
    await state.getByText('the schedule yearly, requests').waitFor()
    await state.getByText('at most 10, with pauses of').waitFor()
    await page.getByRole('region', { name: 'Steps' }).getByText('note', { exact: true }).waitFor()
    await page.getByText('The process accepts any data.').waitFor()
    await page
      .getByRole('region', { name: 'Latest runs' })
      .getByText('There is none yet.')
      .waitFor()
    await page.getByRole('link', { name: 'All runs' }).click()
    await page.waitForURL(/\/runs\?process=Nightly&children=true$/)
    expect(await page.getByRole('heading', { level: 1 }).textContent()).toBe('Runs')
  })

  it('a failed run completes after a person has resumed it, and the target receives the same idempotency key again', async () => {
    const keys: unknown[] = []
    await using target = await startHttpServer((request, response) => {
      keys.push(request.headers['idempotency-key'])
      response.statusCode = keys.length === 1 ? 422 : 200
      response.end('{}')
    })
    const queued = await at.request(`${at.host.coordinator}/processes/ReportSale/transactions`, {
      TransactionID: 'sale',
      InitialData: target.url,
    })
    expect(queued.status).toBe(202)
    await at.signIn()
    const page = await at.open('/runs/ReportSale/sale')
    const status = page.getByRole('region', { name: 'State' }).locator('.headline')
    await status.getByText('Failed', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Resume…' }).click()
    await page.getByLabel('Reason').fill('the target is fixed')
    await page.keyboard.press('Enter')
    await status.getByText('Completed', { exact: true }).waitFor()
    expect(keys).toHaveLength(2)
    expect(keys[0]).toEqual(expect.any(String))
    expect(keys[1]).toBe(keys[0])
    expect(await actionsOf('ReportSale')).toEqual([['resume', 'the target is fixed']])
  })

  it('a person can run, pause and resume a schedule on the page of its process', async () => {
    const page = await at.signIn()
    await page.getByRole('link', { name: 'Processes', exact: true }).click()
    await page.getByRole('link', { name: 'Nightly', exact: true }).click()
    const schedule = page.getByRole('article', { name: 'Nightly yearly' })
    for (const [button, state] of [
      ['Pause', 'Paused'],
      ['Resume', 'Active'],
      ['Run now', 'Active'],
    ] as const) {
      await schedule.getByRole('button', { name: `${button}…` }).click()
      await page.getByLabel('Reason').fill(`because of ${button}`)
      await page.getByRole('dialog').getByRole('button', { name: button, exact: true }).click()
      await page.getByRole('dialog').waitFor({ state: 'detached' })
      await schedule.getByText(state, { exact: true }).waitFor()
    }
    await page.getByRole('link', { name: 'Runs', exact: true }).click()
    await page.getByText('Nightly').filter({ visible: true }).first().waitFor()
    expect(await actionsOf('Nightly')).toEqual([
      ['queue', 'because of Run now'],
      ['resume_schedule', 'because of Resume'],
      ['pause_schedule', 'because of Pause'],
    ])
    await page.getByRole('link', { name: 'Activity', exact: true }).click()
    await page.getByRole('link', { name: 'Nightly/yearly', exact: true }).first().click()
    await page.waitForURL(/\/processes\/Nightly#schedule-yearly$/)
    await schedule.waitFor()
    await expect
      .poll(() => page.evaluate('document.activeElement.ariaLabel'))
      .toBe('Nightly yearly')
  })

  it('a person can requeue or delete a dead letter on a page that shows its content and its remedy', async () => {
    const letter = {
      Process: 'OrderProcess',
      MessageID: 'm',
      At: '2026-11-22T02:41:00.000Z',
      TransactionID: null,
      ReplayID: null,
      StepName: null,
      Encoding: 'text',
      ContentBytes: 30,
    }
    const items = [
      { ...letter, ID: 2, Reason: 'unknown_step', TransactionID: '66', Content: '{"v":1}' },
      { ...letter, ID: 1, Reason: 'malformed', Content: '<img src=x onerror=alert(1)>' },
    ]
    const page = await at.signIn()
    const acted: (readonly [string, unknown])[] = []
    await page.route('**/api/dead-letters/OrderProcess**', (route) => {
      const { pathname } = new URL(route.request().url())
      if (route.request().method() === 'GET')
        return route.fulfill({ json: { items, next_cursor: null } })
      acted.push([pathname, route.request().postDataJSON()])
      items.shift()
      return route.fulfill({ status: 204 })
    })
    await page.goto(`${at.console.url}/dead-letters/OrderProcess`)
    await page.getByText('Deploy it, then requeue.').waitFor()
    await page.getByText('Content, 30 bytes').last().click()
    await page.getByText('<img src=x onerror=alert(1)>').waitFor()
    expect(await page.locator('img').count()).toBe(0)
    expect(await page.title()).toContain('Processes')
    await expectAccessible(page, 'dead-letters')
    for (const [index, verb] of ['Requeue', 'Discard'].entries()) {
      await page
        .getByRole('button', { name: `${verb}…` })
        .first()
        .click()
      await page.getByLabel('Reason').fill('checked')
      await page.keyboard.press('Enter')
      await page.getByRole('dialog').waitFor({ state: 'detached' })
      expect(acted[index]).toEqual([
        `/api/dead-letters/OrderProcess/${2 - index}/${verb.toLowerCase()}`,
        { Reason: 'checked' },
      ])
    }
    await page.getByText('There are none.').waitFor()
    await page.unroute('**/api/dead-letters/OrderProcess**')
    await page.reload()
    await page.getByText('There are none.').waitFor()
  })
})
