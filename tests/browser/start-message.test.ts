/**
 * Starts a run on RabbitMQ's management page in a real browser, as an operator does. `TEST_SCREENSHOT_FILE` names a file
 * for a picture of the page, such as docs/images/start-message.png.
 */
import { startQueue } from '@integration-host/shared/contracts/topology'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { type Browser, chromium, type Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import {
  type RestartableRabbitMq,
  startRestartableRabbitMq,
} from '../support/backends/restartable-servers.ts'
import { chromiumProgram } from '../support/backends/server-binaries.ts'
import { waitForRun } from '../support/clients/user-actions.ts'
import { coordinatorWithFailpoints } from '../support/processes/failpoints.ts'
import { startSystem, type System } from '../support/system.ts'

const program = await chromiumProgram()

describe.runIf(program !== null)("RabbitMQ's management page", () => {
  let broker: RestartableRabbitMq
  let system: System
  let browser: Browser
  let page: Page
  let address: string

  beforeAll(async () => {
    const port = await freePort()
    address = `http://127.0.0.1:${port}`
    broker = await startRestartableRabbitMq({
      plugins: ['rabbitmq_management'],
      lines: ['management.tcp.ip = 127.0.0.1', `management.tcp.port = ${port}`],
    })
    vi.stubEnv('TEST_AMQP_URL', broker.url)
    system = await startSystem([])
    // The first step ends the run without a call.
    const env = { PROCESS: 'short', AMQP_PREFIX: '' }
    system.start('coordinator', env, coordinatorWithFailpoints)
    await system.ready('coordinator')
    browser = await chromium.launch({ executablePath: program ?? '' })
    page = await browser.newPage({ viewport: { width: 1100, height: 900 } })
  }, 120_000)
  afterAll(async () => {
    await browser?.close()
    await system?.[Symbol.asyncDispose]()
    vi.unstubAllEnvs()
    await broker?.[Symbol.asyncDispose]()
  })

  it('a message that an operator publishes on the page of the queue start.OrderProcess starts a run', async () => {
    const { username, password } = new URL(broker.url)
    await page.goto(address)
    await page.fill('input[name=username]', username)
    await page.fill('input[name=password]', password)
    await page.click('input[type=submit]')
    await page.waitForSelector('#tabs')
    await page.goto(`${address}/#/queues/%2F/${startQueue('OrderProcess')}`)
    await page.click('h2:has-text("Publish message")')
    const body = { TransactionID: 'order-66', InitialData: '66' }
    await page.fill('textarea[name=payload]', JSON.stringify(body, null, 2))
    await page.click('h2:has-text("Overview")') // closes the section above the form
    const picture = process.env['TEST_SCREENSHOT_FILE']
    if (picture !== undefined) await page.locator('#main').screenshot({ path: picture })
    await page.click('input[value="Publish message"]')
    await page.waitForSelector('text=Message published')
    await waitForRun(system, 'order-66', 0, 'Completed')
    const url = `${system.url('coordinator')}/processes/OrderProcess/transactions/order-66`
    expect(await (await system.call(url)).json()).toMatchObject({ InitialData: '66' })
  })
})
