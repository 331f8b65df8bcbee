/**
 * Tests which scope each route requires. The routes and their scopes come from the OpenAPI documents of the services,
 * so a new route is tested as soon as it exists.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { digestOf, installationKeys } from '@integration-host/shared/access/key-list'
import { type Scope, SCOPES } from '@integration-host/shared/access/scope'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCompany } from '../support/clients/user-actions.ts'
import { backend, type ServiceName, startSystem, type System } from '../support/system.ts'

const KEYED = ['token-service', 'accounting-gateway', 'coordinator'] as const
const REALM = '9341453908059889'
const FOREIGN_REALM = '9341453908059890'

interface Route {
  readonly service: ServiceName
  readonly method: string
  readonly path: string
  /** The scope of the route; `undefined` if the document names none. */
  readonly scope: Scope | undefined
}

interface Entry {
  readonly id: string
  readonly scopes: readonly Scope[]
  readonly realms?: readonly string[]
  readonly processes?: readonly string[]
}

let system: System
let file: string
let folder: string
let routes: readonly Route[]

const keyOf = (id: string): string => `key-of-${id}-`.padEnd(48, 'k')

/** The keys of the tests: for each scope a key that has only this scope, and further keys. */
const ENTRIES: readonly Entry[] = [
  ...SCOPES.map((scope) => ({ id: `only.${scope.replace(':', '-')}`, scopes: [scope] })),
  { id: 'all', scopes: SCOPES },
  { id: 'other-realm', scopes: SCOPES, realms: ['other', 'ot-*'] },
  { id: 'other-process', scopes: SCOPES, processes: ['Other', 'Order'] },
  { id: 'own-realm', scopes: SCOPES, realms: [REALM] },
  installationKeys.console,
  { id: 'without-bounds', scopes: SCOPES, realms: [], processes: [] },
]

const writeKeys = (entries: readonly Entry[]): Promise<void> =>
  writeFile(
    file,
    JSON.stringify(
      entries.map((entry) => ({
        realms: ['*'],
        processes: ['*'],
        ...entry,
        sha256: digestOf(keyOf(entry.id)),
      })),
    ),
  )

const call = (url: string, id: string, init: RequestInit = {}): Promise<Response> =>
  fetch(url, {
    ...init,
    headers: { ...(init.headers as object), Authorization: `Bearer ${keyOf(id)}` },
  })

/** Calls a route without a body. The path names a company, a process and a transaction. */
async function callRoute(route: Route, id: string) {
  const path = route.path
    .replace('{name}', `ACC-${REALM}`)
    .replace('{realm}', REALM)
    .replace('{process}', 'OrderProcess')
    .replace('/*', '/companyinfo/1')
    .replace(/\{\w+\}/g, '1')
  const { method } = route
  const response = await call(system.url(route.service) + path, id, { method })
  const { status } = response
  if (status === 403)
    return { status, problem: (await response.json()) as { code: string; detail: string } }
  await response.body?.cancel() // `GET /events` never ends
  return { status, problem: null }
}

async function routesOf(service: ServiceName): Promise<readonly Route[]> {
  const { paths } = (await (await fetch(`${system.url(service)}/openapi.json`)).json()) as {
    paths: Record<string, Record<string, { 'x-scope'?: Scope; security?: unknown }>>
  }
  return Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item)
      .filter(([, operation]) => operation.security !== undefined)
      .map(([method, operation]) => ({
        service,
        method: method.toUpperCase(),
        path,
        scope: operation['x-scope'],
      })),
  )
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keys-'))
  file = join(folder, 'keys.json')
  await writeKeys(ENTRIES)
  system = await startSystem([])
  system.start('sandbox-provider')
  system.start('demo-api')
  for (const name of KEYED) system.start(name, { SERVICE_KEYS_FILE: file, AUTHORIZE: 'open' })
  await system.ready('sandbox-provider', 'demo-api', ...KEYED)
  for (const realm of [REALM, FOREIGN_REALM])
    expect((await connectCompany(system, realm)).status).toBe(302)
  routes = (await Promise.all(KEYED.map(routesOf))).flat()
  await backgroundWork()
})
afterAll(async () => {
  await system[Symbol.asyncDispose]()
  await rm(folder, { recursive: true })
})

describe('the scope of a route', () => {
  it('every route that requires a key names its scope in the OpenAPI document', () => {
    expect(routes.length).toBeGreaterThan(20)
    expect(routes.filter(({ scope }) => scope === undefined)).toEqual([])
    expect(SCOPES.filter((scope) => !routes.some((route) => route.scope === scope))).toEqual([
      'act-for',
    ])
  })

  it('a key without the scope of a route gets 403 with the name of the scope, and nothing is sent or written', async () => {
    const before = await everythingWritten()
    for (const route of routes)
      for (const scope of SCOPES.filter((other) => other !== route.scope)) {
        const { status, problem } = await callRoute(route, `only.${scope.replace(':', '-')}`)
        expect([route, scope, status, problem?.code]).toEqual([route, scope, 403, 'forbidden'])
        expect(problem?.detail).toContain(`lacks the scope ${route.scope}`)
      }
    expect(await everythingWritten()).toEqual(before)
  })

  it('the key of the console gets 403 from every route that issues or transports a token', async () => {
    const secret: readonly Scope[] = [
      'credentials:token',
      'custody:transfer',
      'gateway:read',
      'gateway:write',
    ]
    const reserved = routes.filter(({ scope }) => scope !== undefined && secret.includes(scope))
    expect(reserved.map(({ path }) => path)).toEqual(
      expect.arrayContaining([
        '/credentials/{name}/token',
        '/exports',
        '/imports',
        '/key-rotations',
        '/v3/company/{realm}/*',
      ]),
    )
    for (const route of reserved)
      expect([route, (await callRoute(route, installationKeys.console.id)).status]).toEqual([
        route,
        403,
      ])
  })

  it('a key gets 403 on every route whose path names a realm or process to which the key is not bound', async () => {
    const before = await everythingWritten()
    for (const route of routes) {
      const bounds = [
        ...(/\{(?:name|realm)\}/.test(route.path) ? ['other-realm', 'without-bounds'] : []),
        ...(route.path.includes('{process}') ? ['other-process', 'without-bounds'] : []),
      ]
      for (const id of bounds) {
        const { status, problem } = await callRoute(route, id)
        expect([route, id, status, problem?.code]).toEqual([route, id, 403, 'forbidden'])
        expect(problem?.detail).toContain('may not use this')
      }
    }
    expect(await everythingWritten()).toEqual(before)
  })

  it('a key that has only the scope of a route is not rejected because of its scope', async () => {
    // Routes with DELETE remove the company that the other routes need, so these routes are called last.
    const inOrder = routes.toSorted(
      (a, b) => Number(a.method === 'DELETE') - Number(b.method === 'DELETE'),
    )
    for (const route of inOrder) {
      const { status } = await callRoute(route, `only.${(route.scope ?? '').replace(':', '-')}`)
      expect([route, [401, 403].includes(status)]).toEqual([route, false])
    }
    expect((await connectCompany(system, REALM)).status).toBe(302)
  })

  it('a POST to the path /query requires gateway:read, and a POST to any other spelling of this path requires gateway:write', async () => {
    const company = `${system.url('accounting-gateway')}/v3/company/${REALM}`
    const body = 'select * from CompanyInfo'
    const headers = { 'Content-Type': 'application/text' }
    const post = (path: string, id: string) =>
      call(company + path, id, { method: 'POST', body, headers })
    expect((await post('/query?minorversion=75', 'only.gateway-read')).status).not.toBe(403)
    for (const path of ['/Query', '/query/', '/queryx', '/query;x', '/x/query'])
      expect([path, (await post(path, 'only.gateway-read')).status]).toEqual([path, 403])
  })
})

/**
 * Resolves when token-service has published the events of the connected companies and has completed the index of its
 * credentials.
 */
async function backgroundWork(): Promise<void> {
  const redis = new Redis(backend('TEST_REDIS_URL'), { keyPrefix: system.redisKeyPrefix })
  try {
    await eventually(async () => {
      const state = [
        await redis.xlen('credentials:outbox'),
        await redis.exists('credentials:index-built'),
        await redis.exists('lease:credentials:index'),
      ]
      expect(state).toEqual([0, 1, 0])
    })
  } finally {
    redis.disconnect()
  }
}

/**
 * Returns all Redis keys and PostgreSQL rows that the system has written, and the requests that the provider has
 * received.
 */
async function everythingWritten() {
  const redis = new Redis(backend('TEST_REDIS_URL'))
  const sql = postgres(system.databaseUrl)
  try {
    const keys = (await redis.keys(`${system.redisKeyPrefix}*`))
      // Running services change rate limits and leases even without a call, so these are left out.
      .filter((key) => /credential|authorization|audit|link/.test(key))
    const records = await Promise.all(
      keys.toSorted().map(async (key) => [key, await redis.dump(key).then((dump) => dump?.length)]),
    )
    let rows: unknown
    // Other test files may use all connections of the server for a moment.
    await eventually(async () => {
      ;[rows] = await sql`
      select (select count(*) from "Order_Header")::int as headers, (select count(*) from "Order_Item")::int as items,
        (select count(*) from "Order_Action")::int as actions`
    })
    const counters = await fetch(`${system.url('sandbox-provider')}/sandbox/counters`)
    return { records, rows, received: await counters.json() }
  } finally {
    redis.disconnect()
    await sql.end()
  }
}

describe('a key that is bound to realms', () => {
  it('a key that is bound to realms can read only the companies of these realms, their runs, and runs without a company', async () => {
    const credentials = await call(`${system.url('token-service')}/credentials`, 'own-realm')
    const { items } = (await credentials.json()) as { items: { Name: string }[] }
    expect(items.map(({ Name }) => Name)).toEqual([`ACC-${REALM}`])

    const runs = `${system.url('coordinator')}/processes/OrderProcess/transactions`
    const queue = (id: string, TransactionID: string, Realm?: string) =>
      call(runs, id, postJson({ TransactionID, InitialData: '1', Realm }))
    expect((await queue('all', 'foreign', FOREIGN_REALM)).status).toBe(202)
    expect((await queue('own-realm', 'own', REALM)).status).toBe(202)
    expect((await queue('own-realm', 'none')).status).toBe(202)
    expect((await queue('own-realm', 'refused', FOREIGN_REALM)).status).toBe(403)
    const page = (await (await call(runs, 'own-realm')).json()) as {
      items: { TransactionID: string }[]
    }
    expect(page.items.map(({ TransactionID }) => TransactionID)).toEqual(['none', 'own'])
    for (const [method, path] of [
      ['GET', ''],
      ['POST', '/replays'],
      ['POST', '/resume'],
      ['POST', '/cancel'],
      ['POST', '/retry'],
    ] as const)
      expect([
        path,
        (await call(`${runs}/foreign${path}`, 'own-realm', { method })).status,
      ]).toEqual([path, 403])

    const bulk = await call(
      `${runs}/bulk`,
      'own-realm',
      postJson([
        { TransactionID: 'bulk', InitialData: '1', Realm: FOREIGN_REALM },
        { TransactionID: 'bulk', InitialData: '1', Realm: REALM },
      ]),
    )
    expect(await bulk.json()).toMatchObject({ queued: 1, invalid: 1 })
  })

  it('a key that is bound to realms gets 403 on routes that affect all companies', async () => {
    const json = { 'Content-Type': 'application/json' }
    for (const [service, method, path] of [
      ['token-service', 'POST', '/authorizations'],
      ['token-service', 'POST', '/key-rotations'],
      ['token-service', 'GET', '/key-check'],
      ['coordinator', 'GET', '/events'],
      ['coordinator', 'POST', '/processes/OrderProcess/pause'],
      ['coordinator', 'POST', '/processes/OrderProcess/resume'],
    ] as const) {
      const init = { method, headers: json, ...(method === 'POST' && { body: '{}' }) }
      const response = await call(system.url(service) + path, 'own-realm', init)
      await response.body?.cancel()
      expect([path, response.status]).toEqual([path, 403])
    }
  })
})

describe('the header Acting-For', () => {
  const read = (id: string, person: string): Promise<Response> =>
    call(`${system.url('token-service')}/credentials`, id, { headers: { 'Acting-For': person } })

  it('the header Acting-For is accepted from a key with the scope act-for, and rejected from any other key', async () => {
    expect((await read('all', 'ada@example.com')).status).toBe(200)
    expect((await read('only.credentials-read', 'ada@example.com')).status).toBe(403)
  })

  it.each(['', 'a'.repeat(101), 'Ada Lovelace', 'ad\u00e9', 'a\tb'])(
    'the value %j of the header Acting-For is rejected',
    async (person) => {
      expect((await read('all', person)).status).toBe(400)
    },
  )
})

describe('a key that is revoked', () => {
  it('a revoked key is rejected by each of three replicas, while the other keys are still accepted', async () => {
    const env = { SERVICE_KEYS_FILE: file }
    const replicas = await Promise.all([1, 2].map(() => system.replica('accounting-gateway', env)))
    const urls = [system.url('accounting-gateway'), ...replicas.map(({ url }) => url)]
    const companyInfo = `/v3/company/${REALM}/companyinfo/${REALM}`
    const statusOf = async (url: string, id: string): Promise<number> => {
      const response = await call(url + companyInfo, id)
      await response.body?.cancel()
      return response.status
    }
    for (const url of urls) expect(await statusOf(url, 'all')).toBe(200)
    await writeKeys(ENTRIES.filter(({ id }) => id !== 'all'))
    for (const url of urls)
      await eventually(async () => expect(await statusOf(url, 'all')).toBe(401))
    for (const url of urls) expect(await statusOf(url, 'only.gateway-read')).toBe(200)
    await writeKeys(ENTRIES)
  })
})
