/**
 * Tests `npm start` on a terminal with a browser. In contrast to the other tests, the console reads the services at its
 * usual intervals.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  type StartedProcess,
  startProcess,
} from '@integration-host/shared/test-support/start-process'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { COMPANY, connectCompany, type Installation } from '../../host/src/story.ts'
import { launchChromium, type WatchedContext, watchedContext } from './browser.ts'

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url))
/**
 * The PATH of a person's terminal, without the programs that this repository has installed. If the machine has an older
 * Node, such as Node 20, `npm start` therefore begins with that one.
 */
const PATH = (process.env['PATH'] ?? '')
  .split(delimiter)
  .filter((folder) => !folder.startsWith(join(REPOSITORY, 'node_modules')))
  .join(delimiter)

describe('`npm start` on a terminal', () => {
  const opened = new AsyncDisposableStack()
  let started: StartedProcess
  let watched: WatchedContext
  let page: Page
  let installation: Installation & { readonly sandboxProvider: string }

  beforeAll(async () => {
    const dataDir = await mkdtemp(join(tmpdir(), 'npm-start-'))
    opened.defer(() => rm(dataDir, { recursive: true, force: true, maxRetries: 5 }))
    // The program `script` runs a command on a terminal.
    started = opened.use(
      startProcess(['-qec', 'npm start --silent -- --free-ports', '/dev/null'], {
        program: 'script',
        cwd: REPOSITORY,
        env: { DATA_DIR: dataDir, LOG_LEVEL: 'warn', PATH },
      }),
    )
    const addressOf = async (service: string): Promise<string> =>
      (await started.waitForOutput(new RegExp(`${service} +(http://[\\d.:]+)`)))[1] ?? ''
    installation = {
      demoApi: await addressOf('demo-api'),
      tokenService: await addressOf('token-service'),
      accountingGateway: await addressOf('accounting-gateway'),
      coordinator: await addressOf('coordinator'),
      sandboxProvider: await addressOf('sandbox-provider'),
      serviceKey: (await readFile(join(dataDir, 'secrets/service_api_key'), 'utf8')).trim(),
    }
    const browser = await launchChromium()
    opened.defer(() => browser.close())
    watched = await watchedContext(browser, await addressOf('console'))
  })
  afterAll(() => opened.disposeAsync())

  const headers = () => ({
    Authorization: `Bearer ${installation.serviceKey}`,
    'Content-Type': 'application/json',
  })

  it('the printed link opens the page Now without any other step', async () => {
    const [link] = await started.waitForOutput(/http:\S+\/sign-in#[\w-]+/)
    page = await watched.open(link)
    await page.getByRole('heading', { name: 'Nothing needs you' }).waitFor()
    expect(watched.problems).toEqual([])
  })

  it('the page Now shows a company with a revoked grant with its name and class, and offers to reconnect it, within 5 s after the first call', async () => {
    await connectCompany(installation, { stage() {}, line() {} })
    await page.getByText('1 of 1 company active').waitFor()
    const { tokenService, accountingGateway, sandboxProvider } = installation
    await fetch(`${tokenService}/credentials/ACC-${COMPANY.realm}`, {
      method: 'PATCH',
      headers: headers(),
      body: JSON.stringify({ Label: 'Rosewood & Sons' }),
    })
    const revoked = await fetch(`${sandboxProvider}/sandbox/realms/${COMPANY.realm}/revoke`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
    })
    expect(revoked.ok).toBe(true)
    const call = `${accountingGateway}/v3/company/${COMPANY.realm}/companyinfo/${COMPANY.realm}`
    expect((await fetch(call, { headers: headers() })).status).toBe(424)
    const condition = page
      .getByRole('listitem')
      .filter({ has: page.getByRole('heading', { name: '1 company cannot be refreshed now' }) })
    await condition.waitFor({ timeout: 5_000 })
    for (const text of [
      'Rosewood & Sons',
      'disconnected by its owner, or used by another program',
      'first failure',
    ])
      expect(await condition.textContent()).toContain(text)
    const time = await condition.locator('time').getAttribute('datetime')
    expect(Math.abs(Date.parse(time ?? '') - Date.now())).toBeLessThan(60_000)
    await condition.getByRole('button', { name: 'Reconnect…' }).click()
    await page.getByRole('dialog', { name: 'Make a link to reconnect Rosewood & Sons?' }).waitFor()
    expect(watched.problems).toEqual([])
  })
})
