/** Tests in a real browser how the owner of a company connects and disconnects the company. */
import { eventually } from '@integration-host/shared/test-support/eventually'
import {
  type Browser,
  type BrowserContext,
  chromium,
  type Page,
  type Request,
} from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { chromiumProgram } from '../support/backends/server-binaries.ts'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { waitForRun } from '../support/clients/user-actions.ts'
import { queueOrders } from '../support/faults/coordinators.ts'
import { coordinatorWithFailpoints } from '../support/processes/failpoints.ts'
import { startSystem, type System } from '../support/system.ts'

const REALM = '4620816365291'
const program = await chromiumProgram()

describe.runIf(program !== null)('connecting and disconnecting a company in a browser', () => {
  let system: System
  let browser: Browser
  let context: BrowserContext
  let page: Page
  /** Errors that the browser reports, such as violations of a page's policy. */
  let problems: string[]

  beforeAll(async () => {
    system = await startSystem([])
    system.start('sandbox-provider')
    system.start('accounting-gateway')
    system.start('token-service', { AUTHORIZE: 'links' })
    // The first step of each run reads data of the company to which the run belongs.
    const env = { PROCESS: 'company', LOCAL_PULL_SECONDS: '2' }
    system.start('coordinator', env, coordinatorWithFailpoints)
    await system.ready('token-service', 'accounting-gateway', 'coordinator')
    browser = await chromium.launch({ executablePath: program ?? '' })
  })
  afterAll(async () => {
    await browser?.close()
    await system?.[Symbol.asyncDispose]()
  })
  beforeEach(async () => {
    problems = []
    context = await browser.newContext()
    page = await context.newPage()
    page.on('console', (message) => {
      if (message.type() === 'error') problems.push(message.text())
    })
  })
  afterEach(() => context.close())

  async function createLink(body: object = { realm: REALM }): Promise<string> {
    const created = await system.call(`${system.url('token-service')}/connect-links`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    })
    expect(created.status).toBe(201)
    return ((await created.json()) as { url: string }).url
  }
  const heading = (at: Page = page) => at.getByRole('heading', { level: 1 }).textContent()
  /** Chooses a company on the sandbox's page. Then waits for the last page that the owner sees. */
  async function consent(realm: string): Promise<void> {
    await page.waitForURL(`${system.url('sandbox-provider')}/**`)
    await page.getByLabel('Another one').check()
    await page.getByLabel('Name').fill('Acme')
    await page.getByLabel('Realm id').fill(realm)
    await page.getByRole('button', { name: 'Connect' }).click()
    await page.waitForURL(`${system.url('token-service')}/**`)
  }
  async function connectByLink(): Promise<void> {
    await page.goto(await createLink())
    await page.getByRole('button', { name: 'Connect' }).click()
    await consent(REALM)
    expect(await heading()).toBe('Connected')
  }
  const queue = (id: string): Promise<void> =>
    queueOrders(system, system.url('coordinator'), [
      { TransactionID: id, InitialData: id, Realm: REALM },
    ])
  const faultCode = async (): Promise<unknown> => {
    const response = await system.call(`${system.url('token-service')}/credentials/ACC-${REALM}`)
    return ((await response.json()) as { Fault?: { Code: string } }).Fault?.Code
  }

  it('the runs of a disconnected company wait, and continue when the owner reconnects the company with a link', async ({
    annotate,
  }) => {
    await connectByLink()
    await queue('1')
    await waitForRun(system, '1', 0, 'Completed')

    const disconnectedAt = performance.now()
    await page.goto(await sandboxClient(system).disconnect(REALM))
    expect(await heading()).toBe('Disconnected')
    await queue('2')
    await waitForRun(system, '2', 0, 'Waiting')
    const seconds = (performance.now() - disconnectedAt) / 1_000
    expect(seconds).toBeLessThan(60)
    await eventually(async () => expect(await faultCode()).toBe('disconnected'))

    await connectByLink()
    await waitForRun(system, '2', 0, 'Completed')
    expect(await faultCode()).toBeUndefined()
    expect(problems).toEqual([])
    await annotate(`parked ${seconds.toFixed(1)} s after the disconnect`, 'measurement')
  })

  it('the reconnect link on the page after a disconnect rejects another company and explains why', async () => {
    await page.goto(`${system.url('token-service')}/disconnected?realmId=${REALM}`)
    await page.getByRole('link', { name: 'Connect again' }).click()
    await consent('9130347957000000')
    expect(await heading()).toBe('Another company was authorized')
    expect(await page.textContent('p')).toContain(`company ${REALM}`)
  })

  it('the browser sends an Origin header with the form of a connect link', async () => {
    await page.goto(await createLink())
    const sent = page.waitForRequest((request) => request.method() === 'POST')
    await page.getByRole('button', { name: 'Connect' }).click()
    expect((await (await sent).allHeaders())['origin']).toBe(system.url('token-service'))
  })

  it('a double click on the page of a connect link starts one authorization, and the provider does not receive the ticket of the link', async () => {
    const link = await createLink({})
    const ticket = new URL(link).pathname.split('/').at(-1) ?? ''
    const toProvider: Request[] = []
    context.on('request', (request) => {
      if (request.url().startsWith(system.url('sandbox-provider'))) toProvider.push(request)
    })
    await page.goto(link)
    await page.getByRole('button', { name: 'Connect' }).dblclick()
    await page.waitForURL(`${system.url('sandbox-provider')}/**`)
    expect(await heading()).toBe('Connect a company')
    expect(toProvider.length).toBeGreaterThan(0)
    for (const request of toProvider)
      expect(request.url() + JSON.stringify(await request.allHeaders())).not.toContain(ticket)
    expect(problems).toEqual([])
  })

  it('a connect link that another browser has used leads to a page that reports the link as used', async () => {
    const link = await createLink({})
    await page.goto(link)
    await using other = await browser.newContext()
    const late = await other.newPage()
    await late.goto(link)
    await page.getByRole('button', { name: 'Connect' }).click()
    await page.waitForURL(`${system.url('sandbox-provider')}/**`)
    await late.getByRole('button', { name: 'Connect' }).click()
    await expect.poll(() => heading(late)).toBe('The connect link cannot be used')
    expect(await late.textContent('p')).toContain('used before')
  })
})
