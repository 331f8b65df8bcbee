/**
 * Client libraries that other people wrote for Intuit call the system unchanged: only the address and the token differ.
 * npm installs their exact versions from the package registry. If no registry can be reached, these tests are skipped
 * and report the reason. Of python-quickbooks, which npm does not have, the tests send the bytes of its requests.
 */
import { randomBytes, randomUUID } from 'node:crypto'
import { mkdtemp, realpath, rm, writeFile } from 'node:fs/promises'
import { createReadStream } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCompany } from '../support/clients/user-actions.ts'
import { tokenServiceClient } from '../support/clients/token-service.ts'
import { INSTALL_OPTIONS, runWithNpm, whyUnreachable } from '../support/processes/npm.ts'
import { startSystem, type System } from '../support/system.ts'
import { postJson } from '@integration-host/shared/test-support/post-json'

const PACKAGES = ['intuit-oauth@4.2.5', 'node-quickbooks@2.0.50', 'quickbooks-node-promise@3.3.14']
/** npm takes the dependencies of the packages as they were on this day, so that their releases do not change the tests. */
const RELEASED_BEFORE = '2026-11-01'
const NAME = "O'Hara 🧾 Söhne"

/** An object of the accounting API, of which only the members in use are declared. */
interface Entity {
  readonly Id: string
  readonly SyncToken: string
  readonly FileName?: string
}
type Json = Readonly<Record<string, unknown>>

let system: System
let folder: string
let unreachable: string | null = null
const clientSecret = randomBytes(24).toString('base64url')
const load = (name: string): never => createRequire(join(folder, 'package.json'))(name) as never

beforeAll(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), 'integration-host-clients-')))
  unreachable = await whyUnreachable(folder)
  if (unreachable === null) {
    const options = [...INSTALL_OPTIONS, '--ignore-scripts', `--before=${RELEASED_BEFORE}`]
    await writeFile(join(folder, 'package.json'), '{"private": true}')
    const installed = await runWithNpm('npm', ['install', ...options, ...PACKAGES], { cwd: folder })
    expect(installed).toMatchObject({ code: 0 })
  } else console.warn(`SKIPPED: the tests of the client libraries, because ${unreachable}`)
  system = await startSystem([])
  for (const name of ['sandbox-provider', 'token-service', 'accounting-gateway'] as const)
    system.start(name, { ...(name !== 'accounting-gateway' && { CLIENT_SECRET: clientSecret }) })
  await system.ready('sandbox-provider', 'token-service', 'accounting-gateway')
}, 300_000)
afterAll(async () => {
  await rm(folder, { recursive: true, force: true })
  await system[Symbol.asyncDispose]()
})

/** The two ways to call the accounting API: with the service key through the gateway, or with an access token. */
const ways = [
  {
    way: 'through the gateway',
    realm: '9341453908061',
    access: async () => ({ url: system.url('accounting-gateway'), token: system.serviceKey }),
  },
  {
    way: 'directly at the sandbox, with the access token that token-service returns',
    realm: '9341453908062',
    access: async (realm: string) => {
      const { Authenticator = '' } = await tokenServiceClient(system).token(realm)
      return { url: system.url('sandbox-provider'), token: Authenticator }
    },
  },
] as const

interface Access {
  readonly url: string
  readonly token: string
}

const invoice = { DocNumber: NAME, TxnDate: '2026-01-31', TotalAmt: 66 }
const period = { start_date: '2026-01-01', end_date: '2026-01-31' }
const aMinuteAgo = () => new Date(Date.now() - 60_000)
const file = async (): Promise<string> => {
  const path = join(folder, 'ü.csv')
  await writeFile(path, 'a;b\nÄ;🧾\n')
  return path
}

describe.each(ways)('$way', ({ way, realm, access }) => {
  const connected = async (company: number): Promise<{ realm: string } & Access> => {
    const own = `${realm}${company}`
    await connectCompany(system, own)
    return { realm: own, ...(await access(own)) }
  }

  it(`intuit-oauth creates, reads, updates, queries, reports and deletes ${way}`, async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const { url, token, realm: company } = await connected(1)
    const OAuthClient: new (settings: Json) => OAuth = load('intuit-oauth')
    const client = new OAuthClient({ environment: 'sandbox', token: { access_token: token } })
    const call = async (path: string, body?: unknown, more: Json = {}): Promise<Json> => {
      const method = body === undefined ? 'GET' : 'POST'
      const address = `${url}/v3/company/${company}/${path}`
      return (await client.makeApiCall({ url: address, method, body, ...more })).json as Json
    }
    const { Invoice: created } = (await call('invoice', invoice)) as { Invoice: Entity }
    expect(await call(`invoice/${created.Id}`)).toMatchObject({ Invoice: invoice })
    const { Id, SyncToken } = created
    const { Invoice: updated } = (await call('invoice', {
      Id,
      SyncToken,
      sparse: true,
      PrivateNote: NAME,
    })) as { Invoice: Entity }
    expect(updated).toMatchObject({ ...invoice, PrivateNote: NAME, SyncToken: '1' })
    const query = `select * from Invoice where DocNumber = '${NAME.replace("'", String.raw`\'`)}'`
    const found = { QueryResponse: { Invoice: [updated], maxResults: 1 } }
    expect(await call('query', undefined, { params: { query } })).toMatchObject(found)
    expect(await call(`query?query=${encodeURIComponent(query)}`)).toMatchObject(found)
    expect(await call('preferences')).toHaveProperty('Preferences.CurrencyPrefs')
    const report = await call('reports/ProfitAndLoss', undefined, { params: period })
    expect(JSON.stringify(report)).toContain('"66.00"')
    const pdf = (await client.makeApiCall({
      url: `${url}/v3/company/${company}/invoice/${Id}/pdf`,
      headers: { Accept: 'application/pdf' },
      responseType: 'arraybuffer',
    })) as { data: Buffer }
    expect(pdf.data.toString('latin1')).toMatch(/^%PDF-/)
    const batch = { BatchItemRequest: [{ bId: randomUUID(), Query: 'select * from Preferences' }] }
    expect(await call('batch', batch)).toMatchObject({
      BatchItemResponse: [{ QueryResponse: { Preferences: [{ Id: '1' }] } }],
    })
    await call('invoice?operation=delete', { Id, SyncToken: '1' })
    await expect(call(`invoice/${Id}`)).rejects.toMatchObject({ code: '610' })
    const cdc = { entities: 'Invoice', changedSince: aMinuteAgo().toISOString() }
    expect(await call('cdc', undefined, { params: cdc })).toMatchObject({
      CDCResponse: [{ QueryResponse: [{ Invoice: [{ Id, status: 'Deleted' }] }] }],
    })
  })

  it(`node-quickbooks creates, reads, updates, queries, counts, reports, prints, uploads, batches and deletes ${way}`, async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const { url, token, realm: company } = await connected(2)
    const QuickBooks: {
      V3_ENDPOINT_BASE_URL: string
      new (...given: readonly unknown[]): Readonly<Record<string, (...given: unknown[]) => void>>
    } = load('node-quickbooks')
    QuickBooks.V3_ENDPOINT_BASE_URL = `${url}/v3/company/`
    const client = new QuickBooks('', '', token, false, company, true, false, 75, '2.0', null)
    const call = (name: string, ...given: readonly unknown[]): Promise<unknown> =>
      new Promise((resolve, reject) => {
        client[name]?.(...given, (error: unknown, data: unknown) =>
          // The library rejects with a Fault or with an error.
          // oxlint-disable-next-line typescript/prefer-promise-reject-errors
          error ? reject(error) : resolve(data),
        )
      })
    const since = aMinuteAgo()
    const created = (await call('createInvoice', { ...invoice })) as Entity
    const { Id, SyncToken } = created
    expect(await call('getInvoice', Id)).toMatchObject(invoice)
    const change = { Id, SyncToken, PrivateNote: NAME, requestId: randomUUID() }
    const updated = await call('updateInvoice', { ...change })
    expect(updated).toMatchObject({ ...invoice, PrivateNote: NAME, SyncToken: '1' })
    // The library sends a requestid, so the repetition gets the first response instead of a stale SyncToken.
    expect(await call('updateInvoice', { ...change })).toEqual(updated)
    await expect(call('updateInvoice', { Id, SyncToken })).rejects.toMatchObject({
      response: { data: { Fault: { Error: [{ code: '5010' }] } } },
    })
    expect(await call('findInvoices', { DocNumber: NAME })).toMatchObject({
      QueryResponse: { Invoice: [updated], maxResults: 1 },
    })
    const like = [{ field: 'DocNumber', value: "%'Hara 🧾%", operator: 'LIKE' }]
    expect(await call('findInvoices', like)).toMatchObject({
      QueryResponse: { Invoice: [updated] },
    })
    expect(await call('findInvoices', { count: true })).toMatchObject({
      QueryResponse: { totalCount: 1 },
    })
    expect(JSON.stringify(await call('reportProfitAndLoss', period))).toContain('"66.00"')
    const pdf = (await call('getInvoicePdf', Id)) as Buffer
    expect(pdf.toString('latin1')).toMatch(/^%PDF-/)
    const stream = createReadStream(await file())
    const attachable = (await call('upload', 'ü.csv', 'text/csv', stream, 'Invoice', Id)) as Entity
    expect(attachable).toMatchObject({
      FileName: 'ü.csv',
      AttachableRef: [{ EntityRef: { type: 'Invoice', value: Id } }],
    })
    await expectUploaded({ url, token }, company, attachable)
    const [first, second, third] = [randomUUID(), randomUUID(), randomUUID()]
    const batch = await call('batch', [
      { bId: first, operation: 'create', Customer: { DisplayName: NAME } },
      { bId: second, operation: 'create', Customer: { DisplayName: NAME } },
      { bId: third, Query: 'select count(*) from Customer' },
    ])
    expect(batch).toMatchObject({
      BatchItemResponse: [
        { bId: first, Customer: { DisplayName: NAME } },
        { bId: second, Fault: { Error: [{ code: '6240' }] } },
        { bId: third, QueryResponse: { totalCount: 1 } },
      ],
    })
    expect(await call('getPreferences')).toHaveProperty('CurrencyPrefs')
    expect(await call('findPreferenceses', {})).toMatchObject({
      QueryResponse: { Preferences: [{ Id: '1' }] },
    })
    expect(await call('getCompanyInfo', company)).toHaveProperty('CompanyName')
    await call('deleteInvoice', { Id, SyncToken: '1' })
    expect(await call('changeDataCapture', ['Customer', 'Invoice'], since)).toMatchObject({
      CDCResponse: [
        {
          QueryResponse: [
            { Customer: [{ DisplayName: NAME }] },
            { Invoice: [{ status: 'Deleted' }] },
          ],
        },
      ],
    })
  })

  it(`quickbooks-node-promise creates, reads, updates, queries, counts, reports, prints, uploads, batches and deletes ${way}`, async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const { url, token, realm: company } = await connected(3)
    const { Quickbooks } = load('quickbooks-node-promise') as {
      Quickbooks: {
        V3_ENDPOINT_BASE_URL: string
        new (
          settings: Json,
          realm: string,
        ): Readonly<Record<string, (...given: readonly unknown[]) => Promise<Json>>>
      }
    }
    Quickbooks.V3_ENDPOINT_BASE_URL = `${url}/v3/company/`
    const client = new Quickbooks(
      { accessToken: token, autoRefresh: false, minorversion: 75 },
      company,
    )
    const call = (name: string, ...given: readonly unknown[]): Promise<Json> | undefined =>
      client[name]?.(...given)
    const since = aMinuteAgo()
    const { Invoice: created } = (await call('createInvoice', invoice)) as { Invoice: Entity }
    const { Id, SyncToken } = created
    expect(await call('getInvoice', Id)).toMatchObject({ Invoice: invoice })
    const change = { Id, SyncToken, sparse: true, PrivateNote: NAME }
    const { Invoice: updated } = (await call('updateInvoice', change)) as { Invoice: Entity }
    expect(updated).toMatchObject({ ...invoice, PrivateNote: NAME, SyncToken: '1' })
    await expect(call('updateInvoice', change)).rejects.toMatchObject({
      errorResponse: { Fault: { Error: [{ code: '5010' }] } },
    })
    expect(await call('findInvoices', { DocNumber: NAME })).toMatchObject({
      QueryResponse: { Invoice: [updated], maxResults: 1 },
    })
    expect(await call('countInvoices', null)).toMatchObject({ QueryResponse: { totalCount: 1 } })
    expect(JSON.stringify(await call('reportProfitAndLoss', period))).toContain('"66.00"')
    const pdf = (await call('getInvoicePdf', Id)) as unknown as Buffer
    expect(pdf.toString('latin1')).toMatch(/^%PDF-/)
    const content = Buffer.from('a;b\nÄ;🧾\n')
    const { AttachableResponse } = (await call(
      'upload',
      'ü.csv',
      'text/csv',
      content,
      'Invoice',
      Id,
    )) as {
      AttachableResponse: readonly { readonly Attachable: Entity }[]
    }
    const attachable = AttachableResponse[0]?.Attachable
    expect(attachable).toMatchObject({
      FileName: 'ü.csv',
      AttachableRef: [{ EntityRef: { type: 'Invoice', value: Id } }],
    })
    await expectUploaded({ url, token }, company, attachable)
    // The library sends a UUID as the requestid of each POST, beside which a bId has room for 14 characters.
    const batch = await call('batch', [
      { bId: 'fourteen chars', operation: 'create', Customer: { DisplayName: NAME } },
      { bId: '2', Query: 'select count(*) from Customer' },
    ])
    expect(batch).toMatchObject({
      BatchItemResponse: [
        { bId: 'fourteen chars', Customer: { DisplayName: NAME } },
        { bId: '2', QueryResponse: { totalCount: 1 } },
      ],
    })
    const bId = randomUUID()
    const long = await call('batch', [{ bId, operation: 'create', Customer: { DisplayName: 'B' } }])
    expect(long).toMatchObject({
      BatchItemResponse: [{ bId, Fault: { Error: [{ code: '2130' }] } }],
    })
    expect(await call('getPreferences')).toHaveProperty('Preferences.CurrencyPrefs')
    expect(await call('findPreferenceses', {})).toMatchObject({
      QueryResponse: { Preferences: [{ Id: '1' }] },
    })
    expect(await call('deleteInvoice', { Id, SyncToken: '1' })).toMatchObject({
      Invoice: { status: 'Deleted' },
    })
    expect(await call('changeDataCapture', ['Customer', 'Invoice'], since)).toMatchObject({
      CDCResponse: [
        {
          QueryResponse: [
            { Customer: [{ DisplayName: NAME }] },
            { Invoice: [{ status: 'Deleted' }] },
          ],
        },
      ],
    })
  })

  it(`the requests of python-quickbooks read, query, batch and upload ${way}`, async () => {
    const { url, token, realm: company } = await connected(4)
    /** The headers of `make_request` in quickbooks/client.py, which are the same for GET. */
    const send = async (method: string, path: string, body?: string, headers: Json = {}) => {
      const response = await fetch(`${url}/v3/company/${company}/${path}`, {
        method,
        headers: {
          'Content-Type': 'application/json',
          Accept: 'application/json',
          'Accept-Encoding': 'gzip, deflate',
          'User-Agent': 'python-quickbooks V3 library',
          Authorization: `Bearer ${token}`,
          ...headers,
        },
        ...(body !== undefined && { body }),
      })
      return (await response.json()) as Json
    }
    // quickbooks/batch.py: `str(uuid.uuid4())` as the bId of each item, as JSON with sorted keys, an indent of 4, and
    // characters outside ASCII escaped.
    const ids = [randomUUID(), randomUUID()]
    const batch = JSON.stringify(
      {
        BatchItemRequest: ids.map((bId, index) => ({
          Customer: { Active: true, DisplayName: `${NAME} ${index}`, GivenName: '', Notes: '' },
          bId,
          operation: 'create',
        })),
      },
      null,
      4,
    ).replaceAll(/[^\0-\x7f]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)
    const made = await send('POST', 'batch', batch)
    expect(made).toMatchObject({
      BatchItemResponse: ids.map((bId, n) => ({ bId, Customer: { DisplayName: `${NAME} ${n}` } })),
    })
    const [customer] = (made['BatchItemResponse'] as readonly { readonly Customer: Entity }[]) ?? []
    const { Customer } = customer ?? {}
    expect(await send('GET', `customer/${Customer?.Id}/?minorversion=75`)).toEqual(
      expect.objectContaining({ Customer }),
    )
    expect(await send('GET', `companyinfo/${company}/`)).toHaveProperty('CompanyInfo')
    const select = String.raw`SELECT * FROM Customer WHERE DisplayName LIKE '%O\'Hara 🧾%' STARTPOSITION 1 MAXRESULTS 1`
    expect(
      await send('POST', 'query', select, { 'Content-Type': 'application/text' }),
    ).toMatchObject({
      QueryResponse: { Customer: [Customer], maxResults: 1 },
    })
    // `make_request` with a file: lines that end in a bare LF, a leading line, no filename, and base64.
    const boundary = '-------------PythonMultipartPost'
    const metadata = JSON.stringify(
      { ContentType: 'text/csv', FileName: 'a.csv', Note: '' },
      null,
      4,
    )
    const base64 = Buffer.from('a;b\nÄ;🧾\n').toString('base64')
    const upload = `
--${boundary}
Content-Disposition: form-data; name="file_metadata_01"
Content-Type: application/json

${metadata}

--${boundary}
Content-Disposition: form-data; name="file_content_01"
Content-Type: text/csv
Content-Transfer-Encoding: base64

${base64}

--${boundary}--
`
    const { AttachableResponse } = (await send('POST', 'upload', upload, {
      'Content-Type': `multipart/form-data; boundary=${boundary}`,
    })) as { AttachableResponse: readonly { readonly Attachable: Entity }[] }
    const attachable = AttachableResponse[0]?.Attachable
    expect(attachable).toMatchObject({ FileName: 'a.csv', ContentType: 'text/csv' })
    await expectUploaded({ url, token }, company, attachable)
  })
})

/** Downloads the file of an Attachable and compares it with the file that the tests upload. */
async function expectUploaded({ url, token }: Access, realm: string, attachable?: Entity) {
  const address = await fetch(`${url}/v3/company/${realm}/download/${attachable?.Id}`, {
    headers: { Authorization: `Bearer ${token}` },
  })
  expect(await (await fetch(await address.text())).text()).toBe('a;b\nÄ;🧾\n')
}

interface OAuth {
  authorizeUri(given: Json): string
  createToken(callback: string): Promise<unknown>
  refresh(): Promise<unknown>
  revoke(): Promise<unknown>
  getToken(): { readonly access_token: string; readonly refresh_token: string }
  setAuthorizeURLs(given: Json): unknown
  makeApiCall(call: Json): Promise<Json>
}

it('intuit-oauth authorizes, refreshes and revokes at the sandbox, and token-service adopts its grant', async ({
  skip,
}) => {
  if (unreachable !== null) skip(unreachable)
  const realm = '9341453908069'
  const sandbox = system.url('sandbox-provider')
  const OAuthClient = load('intuit-oauth') as {
    new (settings: Json): OAuth
    readonly scopes: Readonly<Record<string, string>>
  }
  const settings = {
    environment: 'sandbox',
    clientId: 'integration-host',
    clientSecret,
    redirectUri: `${system.url('token-service')}/callback`,
  }
  const client = new OAuthClient(settings)
  client.setAuthorizeURLs({
    authorizeEndpoint: `${sandbox}/connect/oauth2`,
    tokenEndpoint: `${sandbox}/oauth2/v1/tokens/bearer`,
    revokeEndpoint: `${sandbox}/v2/oauth2/tokens/revoke`,
    userInfoEndpoint: `${sandbox}/v1/openid_connect/userinfo`,
  })
  const authorized = async (): Promise<void> => {
    const scope = [OAuthClient.scopes['Accounting'], OAuthClient.scopes['OpenId']]
    const consent = new URL(client.authorizeUri({ scope, state: 'state' }))
    consent.searchParams.set('sandbox_company', `${realm}:${NAME}`)
    const granted = await fetch(consent, { redirect: 'manual' })
    await client.createToken(granted.headers.get('Location') ?? '')
  }
  const companyName = async (url: string, token: string): Promise<unknown> => {
    const caller = new OAuthClient({ ...settings, token: { access_token: token } })
    const called = await caller.makeApiCall({
      url: `${url}/v3/company/${realm}/companyinfo/${realm}`,
    })
    return (called['json'] as { CompanyInfo: { CompanyName: string } }).CompanyInfo.CompanyName
  }
  await authorized()
  expect(await companyName(sandbox, client.getToken().access_token)).toBe(NAME)
  await client.refresh()
  const { access_token: refreshed } = client.getToken()
  expect(await companyName(sandbox, refreshed)).toBe(NAME)
  await client.revoke()
  await expect(companyName(sandbox, refreshed)).rejects.toMatchObject({ code: '401' })

  await authorized()
  const { refresh_token: RefreshToken } = client.getToken()
  const adopted = await system.call(
    `${system.url('token-service')}/imports/grants`,
    postJson([{ Realm: realm, RefreshToken }]),
  )
  expect(await adopted.json()).toMatchObject({ results: [{ Outcome: 'stored' }] })
  expect(await companyName(system.url('accounting-gateway'), system.serviceKey)).toBe(NAME)
})
