/** `README_PICTURES=1 npm run test:console -- tests/console/pictures.test.ts` makes the pictures of the README. */
import { createServer } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

const absolute = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
const COMPANIES = [
  { realm: '4620816365291', name: 'Rosewood Interiors' },
  { realm: '9341453908059889', name: 'Northwind Trading' },
  { realm: '123146096291789', name: 'Harbour Street Bakery' },
] as const
const [ROSEWOOD, , HARBOUR] = COMPANIES
const SIZE = { width: 1200, height: 780 }

describe.runIf(process.env['README_PICTURES'] === '1')('the pictures of the README', () => {
  let at: ConsoleBrowser
  let notices = 0
  /**
   * The target to which the notices are sent. It is unavailable for the first two, and rejects all others. A search for
   * an earlier notice finds none.
   */
  const target = createServer(({ method }, response) => {
    if (method === 'POST') notices += 1
    response.writeHead(method === 'GET' ? 404 : notices < 3 ? 503 : 422).end()
  })

  beforeAll(async () => {
    target.listen(0, '127.0.0.1')
    await once(target, 'listening')
    at = await startConsoleBrowser({
      PROCESSES: [
        absolute('../../services/coordinator/src/processes'),
        absolute('picture-processes'),
      ].join(),
    })
    for (const company of COMPANIES) await connect(company)
  })
  afterAll(async () => {
    target.close()
    await at?.[Symbol.asyncDispose]()
  })

  async function post<Body>(url: string, body: unknown): Promise<Body> {
    const response = await fetch(url, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${at.host.serviceKey}`,
        'Content-Type': 'application/json',
      },
      body: JSON.stringify(body),
    })
    return (await response.json()) as Body
  }

  async function connect({ realm, name }: (typeof COMPANIES)[number]): Promise<void> {
    const links = `${at.host.tokenService}/connect-links`
    const { url } = await post<{ url: string }>(links, { label: name, realm })
    const page = await at.context.newPage()
    await page.goto(url)
    await page.getByRole('button', { name: 'Connect' }).click()
    await page.getByLabel(name).check()
    await page.getByRole('button', { name: 'Connect' }).click()
    await page.getByRole('heading', { name: 'Connected' }).waitFor()
    await page.close()
  }

  const queue = (process: string, TransactionID: string, InitialData: unknown, Realm?: string) =>
    post(`${at.host.coordinator}/processes/${process}/transactions`, {
      TransactionID,
      InitialData,
      ...(Realm !== undefined && { Realm }),
    })
  const invoice = (id: string, customer: string, realm: string) => {
    const { port } = target.address() as AddressInfo
    const notify = `http://127.0.0.1:${port}/notices`
    return queue('InvoiceProcess', id, { customer, amount: 480, notify }, realm)
  }

  /** A rejected refresh token is tried again a few times, before the company must be reconnected. */
  async function revoke({ realm }: (typeof COMPANIES)[number]): Promise<void> {
    await at.sandbox(`realms/${realm}/revoke`)
    await eventually(async () => {
      const credential = `${at.host.tokenService}/credentials/ACC-${realm}`
      await post(`${credential}/refresh`, {})
      const shown = await fetch(credential, {
        headers: { Authorization: `Bearer ${at.host.serviceKey}` },
      })
      expect(((await shown.json()) as { State: string }).State).toBe('must_reconnect')
    })
  }

  const picture = async (page: Page, name: string, theme: 'light' | 'dark'): Promise<void> => {
    await page.setViewportSize(SIZE)
    await page.emulateMedia({ colorScheme: theme })
    await page.getByRole('status').getByText('live', { exact: true }).waitFor()
    await page.mouse.move(0, 0)
    await page.screenshot({ path: absolute(`../../docs/images/console-${name}.png`) })
  }

  it('the pictures of the README show what needs a person, a run with its timeline, the runs and the companies', async () => {
    for (let number = 66; number < 90; number += 1)
      await queue('OrderProcess', String(number), number)
    await invoice('INV-1041', 'Alma Castro', ROSEWOOD.realm)
    await revoke(HARBOUR)
    for (const [id, customer] of [
      ['INV-1042', 'Jun Tanaka'],
      ['INV-1043', 'Mara Lindqvist'],
      ['INV-1044', 'Sam Okafor'],
    ] as const)
      await invoice(id, customer, HARBOUR.realm)

    const now = await at.signIn()
    await now.getByText('1 company must be reconnected').waitFor()
    await now.getByText('1 run failed at InvoiceProcess.notice').waitFor({ timeout: 60_000 })
    await now.locator('.numbers').getByText('3', { exact: true }).first().waitFor()
    await picture(now, 'now', 'light')

    const run = await at.open('/runs/InvoiceProcess/INV-1041')
    await run.locator('.timeline').waitFor()
    await picture(run, 'run', 'light')

    const runs = await at.open('/runs')
    await runs.getByRole('link', { name: 'INV-1044', exact: true }).waitFor()
    await picture(runs, 'runs', 'dark')

    const companies = await at.open('/companies')
    await companies.getByRole('link', { name: HARBOUR.name }).waitFor()
    await picture(companies, 'companies', 'dark')
    expect(at.problems).toEqual([])
  })
})
