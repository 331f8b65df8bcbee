/** Tests the console with a real coordinator that is replaced by another one. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { startRelay } from '@integration-host/shared/test-support/relay'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { describe, expect, it } from 'vitest'
import { startEmbeddedConsole } from '../../host/src/embedded-console.ts'
import { type Host, startHost } from '../../host/src/host.ts'
import { launchChromium, watchedContext } from './browser.ts'

/** The time in which every page must show the state of the coordinator after an interruption. */
const SOON_MS = 5_000

describe('the console while its coordinator is replaced', () => {
  it('an open page shows what the new coordinator has done to a run, without a reload', async () => {
    await using opened = new AsyncDisposableStack()
    const dataDir = await mkdtemp(join(tmpdir(), 'console-'))
    opened.defer(() => rm(dataDir, { recursive: true }))
    const start = (): Promise<Host> =>
      startHost({ dataDir, ports: 'free', env: {}, logLevel: 'silent', logTo: { write() {} } })
    const post = async ({ coordinator, serviceKey }: Host, path: string, body: object) => {
      const response = await fetch(
        `${coordinator}/processes/OrderProcess${path}`,
        postJson(body, { Authorization: `Bearer ${serviceKey}` }),
      )
      expect(response.ok).toBe(true)
    }
    const first = await start()
    const relay = opened.use(await startRelay(first.coordinator, 80))
    const logger = createLogger('console', 'silent')
    const running = await startEmbeddedConsole({
      settings: {
        PORT: '0',
        SERVICE_API_KEY: first.serviceKey,
        COORDINATOR_URL: relay.url,
        TOKEN_SERVICE_URL: first.tokenService,
        GATEWAY_URL: first.accountingGateway,
      },
      logger,
      health: createHealth(logger),
    })
    if (running === null) throw new Error('the console did not start')
    opened.use(running)
    const browser = await launchChromium()
    opened.defer(() => browser.close())
    const { open, problems } = await watchedContext(browser, running.url)

    await post(first, '/pause', {})
    await post(first, '/transactions', { TransactionID: 'kept', InitialData: 1 })
    const page = await open(running.signInLink() ?? '')
    await page.getByRole('status').getByText('live', { exact: true }).waitFor()
    await page.goto(`${running.url}/runs/OrderProcess/kept`)
    const status = page.getByRole('region', { name: 'State' }).locator('.headline .state')
    await status.getByText('Queued').waitFor()
    await first[Symbol.asyncDispose]()
    const second = opened.use(await start())
    await post(second, '/transactions/kept/cancel', {})
    relay.redirect(second.coordinator)
    relay.cut()
    await status.getByText('Cancelled').waitFor({ timeout: SOON_MS })
    expect(problems).toEqual([])
  })
})
