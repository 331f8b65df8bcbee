/** An installation with the data that the pictures of the README and the picture comparison show. */
import { createServer } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

const absolute = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
const COMPANIES = [
  { realm: '4620816365291', name: 'Rosewood Interiors' },
  { realm: '9341453908059889', name: 'Northwind Trading' },
  { realm: '123146096291789', name: 'Harbour Street Bakery' },
] as const
type Company = (typeof COMPANIES)[number]
const [ROSEWOOD, , HARBOUR] = COMPANIES

/** The company whose grant is revoked, so that it must be reconnected. */
export const BROKEN_COMPANY: Company = HARBOUR
/** The run that fails after two retries. */
export const FAILED_RUN = 'INV-1041'
/** The newest of the three runs that wait for the broken company. */
export const WAITING_RUN = 'INV-1044'

/**
 * Starts the console with three companies, one of them with a revoked grant, 24 completed orders, a failed invoice and three
 * invoices that wait.
 */
export async function startPictureInstallation(): Promise<ConsoleBrowser> {
  await using opened = new AsyncDisposableStack()
  let notices = 0
  // The server to which the run sends a notice. It responds twice with 503 and then with 422. A query for an earlier
  // notice gets 404.
  const target = createServer(({ method }, response) => {
    if (method === 'POST') notices += 1
    response.writeHead(method === 'GET' ? 404 : notices < 3 ? 503 : 422).end()
  })
  target.listen(0, '127.0.0.1')
  await once(target, 'listening')
  opened.defer(() => void target.close())
  const at = opened.use(
    await startConsoleBrowser({
      PROCESSES: [
        absolute('../../services/coordinator/src/processes'),
        absolute('picture-processes'),
      ].join(),
    }),
  )

  async function request<Body>(url: string, body?: unknown): Promise<Body> {
    return (await (await at.request(url, body)).json()) as Body
  }

  async function connect({ realm, name }: Company): Promise<void> {
    const links = `${at.host.tokenService}/connect-links`
    const { url } = await request<{ url: string }>(links, { label: name, realm })
    const page = await at.context.newPage()
    await page.goto(url)
    await page.getByRole('button', { name: 'Connect' }).click()
    await page.getByLabel(name).check()
    await page.getByRole('button', { name: 'Connect' }).click()
    await page.getByRole('heading', { name: 'Connected' }).waitFor()
    await page.close()
  }

  const queue = (process: string, TransactionID: string, InitialData: unknown, Realm?: string) =>
    request(`${at.host.coordinator}/processes/${process}/transactions`, {
      TransactionID,
      InitialData,
      ...(Realm !== undefined && { Realm }),
    })
  const invoice = (id: string, customer: string, { realm }: Company) => {
    const { port } = target.address() as AddressInfo
    const notify = `http://127.0.0.1:${port}/notices`
    return queue('InvoiceProcess', id, { customer, amount: 480, notify }, realm)
  }

  /**
   * Revokes the grant of a company, and requests refreshes until token-service reports that the company must be
   * reconnected. token-service retries a rejected refresh token a few times before that.
   */
  async function revoke({ realm }: Company): Promise<void> {
    await at.sandbox(`realms/${realm}/revoke`)
    const credential = `${at.host.tokenService}/credentials/ACC-${realm}`
    await eventually(async () => {
      await request(`${credential}/refresh`, {})
      expect(await request(credential)).toMatchObject({ State: 'must_reconnect' })
    })
  }

  for (const company of COMPANIES) await connect(company)
  for (let number = 66; number < 90; number += 1)
    await queue('OrderProcess', String(number), number)
  await invoice(FAILED_RUN, 'Alma Castro', ROSEWOOD)
  await revoke(HARBOUR)
  await invoice('INV-1042', 'Jun Tanaka', HARBOUR)
  await invoice('INV-1043', 'Mara Lindqvist', HARBOUR)
  await invoice(WAITING_RUN, 'Sam Okafor', HARBOUR)
  const resources = opened.move()
  return { ...at, [Symbol.asyncDispose]: () => resources.disposeAsync() }
}
