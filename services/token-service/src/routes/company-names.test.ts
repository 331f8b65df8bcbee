/**
 * Tests of the names of companies: a real token-service reads them from an accounting API over HTTP, and the pages for the
 * owners of companies show them together with the product that asks for access.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { callBack, startInBrowser } from '../../test-support/browser.ts'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import { json, startFileService, type TestService } from '../../test-support/service-fixture.ts'

let provider: ScriptedProvider
let service: TestService
let closing: AsyncDisposableStack
/** The requests to the accounting API: path and bearer token. */
let requests: string[]
let respond: (response: ServerResponse) => unknown

const companyNamed = (CompanyName: string) => (response: ServerResponse) =>
  response.end(JSON.stringify({ CompanyInfo: { CompanyName } }))

beforeEach(async () => {
  closing = new AsyncDisposableStack()
  requests = []
  respond = companyNamed('Rosewood Interiors')
  provider = closing.use(await startScriptedProvider())
})
afterEach(() => closing.disposeAsync())

async function start(env: Record<string, string> = {}): Promise<void> {
  const accounting = createServer((request: IncomingMessage, response) => {
    requests.push(`${request.method} ${request.url} ${request.headers.authorization}`)
    respond(response)
  })
  const { promise: listening, resolve } = Promise.withResolvers<void>()
  accounting.listen(0, '127.0.0.1', resolve)
  await listening
  closing.defer(() => {
    accounting.closeAllConnections()
    accounting.close()
  })
  const address = accounting.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  const ACCOUNTING_URL = `http://127.0.0.1:${port}/base/`
  service = await startFileService(closing, { provider, env: { ACCOUNTING_URL, ...env } })
}

const credential = async () => (await service.ask('/credentials/ACC-7')).body
const nameIs = (name: string | undefined) =>
  eventually(async () => expect((await credential())['CompanyName']).toBe(name))
const page = async (path: string, headers: Record<string, string> = {}): Promise<string> =>
  (await fetch(service.url + path, { headers: { Accept: 'text/html', ...headers } })).text()

describe('the name of a company', () => {
  beforeEach(() => start())

  it('the name of a company is read once with the new token after a connection, and shown beside its label', async () => {
    expect((await service.connect('7')).status).toBe(201)
    await nameIs('Rosewood Interiors')
    const { body: token } = await service.ask('/credentials/ACC-7/token')
    expect(requests).toEqual([
      `GET /base/v3/company/7/companyinfo/7 Bearer ${String(token['Authenticator'])}`,
    ])
    const patch = { method: 'PATCH', headers: { 'Content-Type': 'application/json' } }
    const body = JSON.stringify({ Label: 'Shop 12' })
    await service.ask('/credentials/ACC-7', { ...patch, body })
    expect(await credential()).toMatchObject({
      Label: 'Shop 12',
      CompanyName: 'Rosewood Interiors',
    })
    for (const text of ['wood int', 'shop'])
      expect((await service.ask(`/credentials?q=${text}`)).body['items']).toHaveLength(1)
  })

  it('a reconnection reads the name again, and a refresh does not', async () => {
    await service.connect('7')
    await nameIs('Rosewood Interiors')
    respond = companyNamed('Rosewood Group')
    await service.ask('/credentials/ACC-7/refresh', json({}))
    await nameIs('Rosewood Interiors')
    await service.connect('7')
    await nameIs('Rosewood Group')
    expect(requests).toHaveLength(2)
  })

  it.each<[string, (response: ServerResponse) => void]>([
    ['rejects the request', (response) => response.writeHead(403).end('{"Fault":{}}')],
    ['sends something else', (response) => response.end('<html>')],
    ['sends an object as name', (response) => response.end('{"CompanyInfo":{"CompanyName":{}}}')],
    ['sends a blank name', companyNamed(' \u200b ')],
    ['closes the connection', (response) => response.destroy()],
  ])('a company is connected without a name if the accounting API %s', async (_, answer) => {
    respond = answer
    expect((await service.connect('7')).status).toBe(201)
    await eventually(() => expect(requests).toHaveLength(1))
    expect((await service.ask('/credentials/ACC-7')).body).toMatchObject({ Status: 'active' })
    await nameIs(undefined)
  })

  it('a connection does not wait for an accounting API that does not respond', async () => {
    const held: ServerResponse[] = []
    respond = (response) => held.push(response)
    expect((await service.connect('7')).status).toBe(201)
    expect((await service.ask('/credentials/ACC-7/token')).status).toBe(200)
    // At its end, the service waits for the request as long as its timeout allows.
    await eventually(() => expect(held).toHaveLength(1))
    held[0]?.destroy()
  })

  it('a name from the provider is shown on one line with visible characters, and has a maximum length', async () => {
    respond = companyNamed(`Acme\n\u202e\u0000 Ltd ${'x'.repeat(5_000)}`)
    await service.connect('7')
    await eventually(async () => {
      const name = String((await credential())['CompanyName'])
      expect(name).toMatch(/^Acme Ltd x+…$/)
      expect(name).toHaveLength(100)
    })
  })

  it('the last page shows the name to the browser that has connected the company, and the id to any other client', async () => {
    const name = 'Müller & <b>Söhne</b>'
    respond = companyNamed(name)
    const { consent, cookie, state } = await startInBrowser(service.url)
    const query = { code: provider.authorize(consent), realmId: '7', state }
    const { headers } = await callBack(service.url, query, cookie)
    const path = headers.get('Location') ?? ''
    const connected = headers.getSetCookie().find((line) => line.startsWith('connected=')) ?? ''
    const own = { Cookie: connected.split(';')[0] ?? '' }
    expect(await page(path, own)).toContain('Müller &amp; &lt;b&gt;Söhne&lt;/b&gt; (ACC-7)')
    for (const Cookie of ['', 'connected=ACC-7 ', 'connected=1.k1.aaaa.bbbb'])
      expect(await page(path, { Cookie })).toMatch(/ACC-7 is connected/)
    await service.connect('8')
    expect(await page('/connected?name=ACC-8', own)).toMatch(/ACC-8 is connected/)
  })
})

describe('the product that asks for access', () => {
  it('the pages for owners of companies show name, logo and support address of the product, and allow only this image', async () => {
    await start({
      AUTHORIZE: 'links',
      PRODUCT_NAME: 'Ledger <One>',
      PRODUCT_LOGO: 'https://static.example.com/logo.svg',
      PRODUCT_SUPPORT: 'help@example.com',
    })
    const { body: link } = await service.ask('/connect-links', json({ realm: '7' }))
    const { pathname } = new URL(String(link['url']))
    expect(await page(pathname)).toContain(
      'Ledger &lt;One&gt; asks for access to the books of the company 7.',
    )
    expect(await page('/connected')).toContain('connected to Ledger &lt;One&gt;')
    expect(await page('/disconnected')).toContain('disconnected Ledger &lt;One&gt; at your')
    for (const path of [pathname, '/connected', '/disconnected', '/reconnect', '/authorize']) {
      const response = await fetch(service.url + path, { headers: { Accept: 'text/html' } })
      expect(response.headers.get('Content-Security-Policy')).toMatch(
        /img-src https:\/\/static\.example\.com\/logo\.svg$/,
      )
      const text = await response.text()
      expect(text).toContain('<img src="https://static.example.com/logo.svg" alt="" />')
      expect(text).toContain('href="mailto:help@example.com"')
    }
  })

  it('without these settings the pages name no product and load nothing', async () => {
    await start()
    expect(await page('/connected')).not.toMatch(/<img|Questions|class="brand"/)
  })
})
