/**
 * The canary search: a whole system is driven through success, failure and crash, every secret that it ever
 * had is known, and everything that it wrote is searched for all of them. A control plants a secret in each
 * place and form, so that a search which finds nothing is known to look.
 *
 * The only places of a token are the answer of the hand-out, and the `Authorization` header and the form of
 * a call to the provider. Of Redis, RabbitMQ and Postgres it sees what they serve, not their own files and
 * logs; and a core dump, where the machine writes one, holds memory whatever a program does.
 */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sandboxOf } from '../support/sandbox-control.ts'
import { ask, companyInfoUrl, runOf } from '../support/story-steps.ts'
import {
  backend,
  type ServiceName,
  serviceNames,
  type ServiceProcess,
  startSystem,
  type System,
} from '../support/system.ts'
import { startTraceCollector, type TraceCollector } from '../support/trace-collector.ts'
import { type Canary, canary, type Finding, formsOf, search } from './canaries.ts'
import {
  exchangeNames,
  type MessageTap,
  readFolder,
  readPostgres,
  readRedis,
  tapMessages,
} from './places.ts'
import {
  type Indiscretion,
  type RecordingProvider,
  startRecordingProvider,
} from './recording-provider.ts'

const REALM = '9341453908059889'
const NAME = `ACC-${REALM}`
const SECOND = 'ACC-4620816365291'
const OPEN_PATHS = ['/health/live', '/health/ready', '/metrics', '/openapi.json', '/docs']

const random = (kind: string): string => `${kind}-${randomBytes(24).toString('base64url')}`
const hex = (text: string): string => Buffer.from(text).toString('hex')
const base64 = (text: string): string => Buffer.from(text).toString('base64')

/** What providers and the proxies before them were seen to answer, with all that they know in it. */
const indiscretions: readonly (readonly [string, Indiscretion])[] = [
  [
    'an error description that repeats the token',
    {
      status: 400,
      contentType: 'application/json',
      body: ({ refreshToken }) =>
        JSON.stringify({ error: 'invalid_request', error_description: `bad: ${refreshToken}` }),
    },
  ],
  [
    'the header and the form of the request, on a page',
    {
      status: 400,
      contentType: 'text/html',
      body: ({ authorization, form }) => `<pre>Authorization: ${authorization}\n\n${form}</pre>`,
    },
  ],
  [
    'the form in base64 and in hex',
    {
      status: 400,
      contentType: 'text/plain',
      body: ({ form }) => `dump: ${base64(form)} ${base64(`x${form}`)} ${hex(form)}`,
    },
  ],
  [
    'the new pair as XML',
    {
      status: 200,
      contentType: 'application/xml',
      body: ({ accessToken, nextRefreshToken }) =>
        `<r><access_token>${accessToken}</access_token><RefreshToken>${nextRefreshToken}</RefreshToken></r>`,
    },
  ],
  [
    'the new pair under other names',
    {
      status: 200,
      contentType: 'application/json',
      body: ({ accessToken, nextRefreshToken }) =>
        JSON.stringify({ accessToken, data: { 'refresh-token': nextRefreshToken } }),
    },
  ],
  [
    'the new pair, cut off in the middle of a token',
    {
      status: 200,
      contentType: 'application/json',
      body: ({ accessToken, nextRefreshToken }) =>
        JSON.stringify({ access_token: accessToken, refresh_token: nextRefreshToken }).slice(0, -8),
    },
  ],
  [
    'the new pair in words',
    {
      status: 500,
      contentType: 'text/plain',
      body: ({ accessToken, nextRefreshToken }) =>
        `could not save ${accessToken} and ${nextRefreshToken} of the user`,
    },
  ],
]

describe('the secrets of a system', () => {
  const opened = new AsyncDisposableStack()
  const secrets: Canary[] = []
  const processes: { readonly name: string; readonly process: ServiceProcess }[] = []
  const told: Finding[] = []
  let system: System
  let settings: Partial<Record<ServiceName, Record<string, string>>>
  let provider: RecordingProvider
  let tap: MessageTap
  let traces: TraceCollector

  const known = (kind: string, value: string | Buffer): string => {
    secrets.push(canary(kind, value))
    return value.toString()
  }
  const start = (
    name: ServiceName,
    env: Readonly<Record<string, string>> = {},
    entry?: string,
  ): ServiceProcess => {
    const everywhere = { LOG_LEVEL: 'trace', ...traces.env }
    const started = system.start(name, { ...everywhere, ...settings[name], ...env }, entry)
    processes.push({ name, process: started })
    return started
  }
  /** Keeps a whole answer, but for what it is there to hand out. */
  async function keep(what: string, answer: Response, handsOut: readonly string[] = []) {
    const text = await answer.text()
    const head = [...answer.headers].map((header) => header.join(': ')).join('\n')
    const whole = handsOut.reduce(
      (left, value) => left.replaceAll(value, 'handed out'),
      `${answer.status}\n${head}\n\n${text}`,
    )
    told.push({ place: `answer to ${what}`, bytes: Buffer.from(whole) })
    return { status: answer.status, headers: answer.headers, text }
  }
  const call = async (name: ServiceName, path: string, init: RequestInit = {}) =>
    keep(
      `${init.method ?? 'GET'} ${path} of ${name}`,
      await system.call(system.url(name) + path, { redirect: 'manual', ...init }),
    )
  const post = (name: ServiceName, path: string, body: string | object = {}) =>
    call(name, path, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    })

  async function handOut(name = NAME): Promise<string> {
    const path = `/credentials/${name}/token`
    const answer = await system.call(system.url('token-service') + path)
    const body = (await answer.clone().json()) as { Authenticator?: string }
    await keep(`GET ${path}`, answer, body.Authenticator === undefined ? [] : [body.Authenticator])
    return body.Authenticator ?? ''
  }

  /** The company's owner, or the provider, ends something there. */
  async function atProvider(realm: string, what: 'expire' | 'revoke'): Promise<void> {
    const url = `${system.url('sandbox-provider')}/sandbox/realms/${realm}/${what}`
    expect((await fetch(url, { method: 'POST' })).status).toBe(200)
  }

  /** The consent of a company's owner; resolves with the provider's redirect. */
  async function consentTo(url: URL, realm: string): Promise<URL> {
    url.searchParams.set('sandbox_company', `${realm}:Test Company`)
    const granted = await fetch(url, { redirect: 'manual' })
    const redirect = new URL(granted.headers.get('Location') ?? '')
    known('authorization code', redirect.searchParams.get('code') ?? '')
    return redirect
  }

  /** A browser's way; `change` may bend the callback. */
  async function connect(realm: string, change: (callback: URL) => void = () => {}) {
    const started = await fetch(`${system.url('token-service')}/authorize`, { redirect: 'manual' })
    const consent = new URL(started.headers.get('Location') ?? '')
    const state = known('state', consent.searchParams.get('state') ?? '')
    const cookie = started.headers.getSetCookie()[0]?.split(';')[0] ?? ''
    const browser = known('browser cookie', cookie.split('=')[1] ?? '')
    await keep('GET /authorize', started, [state, browser])
    const callback = await consentTo(consent, realm)
    change(callback)
    return keep(
      'GET /callback',
      await fetch(callback, { redirect: 'manual', headers: { Cookie: cookie } }),
    )
  }

  /** The way of an application that received the redirect itself; resolves with the code. */
  async function connectForApplication(realm: string): Promise<string> {
    const answer = await system.call(`${system.url('token-service')}/authorizations`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: '{}',
    })
    const { url, state } = (await answer.clone().json()) as { url: string; state: string }
    await keep('POST /authorizations', answer, [known('state', state)])
    const consent = new URL(url)
    for (const name of ['code_challenge', 'code_challenge_method'])
      consent.searchParams.delete(name)
    const callback = await consentTo(consent, realm)
    const Code = callback.searchParams.get('code') ?? ''
    expect((await post('token-service', '/callback', { RealmID: realm, Code })).status).toBe(201)
    return Code
  }

  async function expire(name: string): Promise<void> {
    const redis = new Redis(backend('TEST_REDIS_URL'), { keyPrefix: system.redisKeyPrefix })
    const Expiry = new Date(Date.now() - 1_000).toISOString()
    await redis.hset(name, { Expiry, RefreshedAt: new Date(Date.now() - 3_600_000).toISOString() })
    redis.disconnect()
  }

  const refresh = (name: string) => post('token-service', `/credentials/${name}/refresh`)
  /** Records come and go; each look adds to what is searched. */
  const lookIntoRedis = async (): Promise<void> => {
    told.push(...(await readRedis(backend('TEST_REDIS_URL'), system.redisKeyPrefix)))
  }

  /** The target of the steps: it reads the company through the gateway before it answers an order. */
  async function startApplication(): Promise<string> {
    const server = createServer((request, response) => {
      const answer = async (): Promise<void> => {
        const { status } = await keep(
          'the company, by an application',
          await system.call(companyInfoUrl(system, REALM)),
        )
        expect(status).toBe(200)
        const order = await fetch(system.url('demo-api') + request.url)
        response.writeHead(order.status, {
          'Content-Type': order.headers.get('Content-Type') ?? '',
        })
        response.end(await order.text())
      }
      answer().catch(() => response.destroy())
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    opened.defer(() => void server.close())
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  }

  beforeAll(async () => {
    system = opened.use(await startSystem([]))
    traces = opened.use(await startTraceCollector())
    provider = opened.use(await startRecordingProvider(system.url('sandbox-provider')))
    known('service key', system.serviceKey)
    const CLIENT_SECRET = known('client secret', random('client-secret'))
    const key = randomBytes(32)
    known('encryption key', key)
    known('encryption key as configured', key.toString('base64'))
    const database = new URL(system.databaseUrl)
    // Where the server trusts its own host any password does.
    database.password ||= random('database-password')
    known('database password', database.password)
    const discovery = `${provider.url}/.well-known/openid_configuration`
    settings = {
      'sandbox-provider': { CLIENT_SECRET, BASE_URL: provider.url },
      'token-service': {
        CLIENT_SECRET,
        DISCOVERY_URL: discovery,
        CREDENTIAL_KEYS: `k1:${key.toString('base64')}`,
      },
      'accounting-gateway': { DISCOVERY_URL: discovery, ACCOUNTING_URL: provider.url },
      coordinator: { DATABASE_URL: database.href, DEMO_API_URL: await startApplication() },
    }
    // Intuit has no PKCE, but a code verifier is a secret as well.
    start('sandbox-provider')
    await system.ready('sandbox-provider')
    await sandboxOf(system).set({ pkce: true })
    for (const name of serviceNames) if (name !== 'sandbox-provider') start(name)
    await system.ready(...serviceNames)
    tap = opened.use(await tapMessages(backend('TEST_AMQP_URL'), system.amqpPrefix))

    await succeed()
    await fail()
    await refuse()
    await takeCare()
    await crash()
    await misconfigure()
    await readDoors()
  }, 300_000)
  afterAll(() => opened.disposeAsync())

  async function succeed(): Promise<void> {
    expect((await connect(REALM)).status).toBe(302)
    await sandboxOf(system).set({ pkce: false }) // an application's own request has no challenge here
    await connectForApplication(SECOND.slice(4))
    await handOut()
    expect((await refresh(NAME)).status).toBe(200)
    expect(provider.bearers).not.toContain(await handOut())
    expect((await keep('gateway', await system.call(companyInfoUrl(system, REALM)))).status).toBe(
      200,
    )
    // The provider ends the token: the gateway has it refreshed, and asks again.
    await atProvider(REALM, 'expire')
    expect((await keep('gateway', await system.call(companyInfoUrl(system, REALM)))).status).toBe(
      200,
    )
    expect((await ask(system, '/queue?number=66')).status).toBe(200)
    await runOf(system, '66', 0, 'Completed')
    expect(provider.bearers).toContain(await handOut())
    await lookIntoRedis()
  }

  async function fail(): Promise<void> {
    for (const [index, [what, indiscretion]] of indiscretions.entries()) {
      // A company each: a call whose outcome is unknown holds back the next one of its company.
      const realm = String(4_620_816_365_000 + index)
      const code = await connectForApplication(realm)
      await expire(`ACC-${realm}`) // only then is a failed refresh a fault
      // An answer is final; for what is none there is one retry.
      if (indiscretion.status === 400) provider.tell(code, indiscretion)
      else provider.tell(code, indiscretion, indiscretion)
      expect((await refresh(`ACC-${realm}`)).status, what).toBe(503)
      expect(provider.untold(code), what).toBe(0)
      await call('token-service', `/credentials/ACC-${realm}`)
      await handOut(`ACC-${realm}`)
      await keep('gateway', await system.call(companyInfoUrl(system, realm)))
    }
    await atProvider(SECOND.slice(4), 'revoke')
    expect((await refresh(SECOND)).status).toBe(424)
    await call('token-service', '/credentials')
    await lookIntoRedis()
    await connectForApplication(SECOND.slice(4))
  }

  async function refuse(): Promise<void> {
    const pasted = known('something pasted', random('pasted'))
    const token = await handOut()
    for (const name of serviceNames) {
      for (const header of [`Bearer ${pasted}`, `Basic ${btoa(`:${pasted}`)}`, pasted])
        for (const path of ['/credentials', '/processes', '/v3/company/1/query', '/queue', '/none'])
          await keep(
            `a wrong key at ${name}`,
            await fetch(system.url(name) + path, { headers: { Authorization: header } }),
          )
      await call(name, `/${pasted}?access_token=${pasted}&api_key=${pasted}`)
      await post(name, '/callback', `{"RealmID":"1","Code":"${pasted}`)
    }
    // A bend at every place of a callback.
    for (const bend of [
      (url: URL) => url.searchParams.set('realmId', '77'),
      (url: URL) => url.searchParams.set('iss', `https://${pasted}.example`),
      (url: URL) => url.searchParams.set('state', pasted),
      (url: URL) => url.searchParams.set('code', pasted),
      (url: URL) => url.searchParams.append('code', pasted),
      (url: URL) => {
        url.searchParams.delete('code')
        url.searchParams.set('error', pasted)
        url.searchParams.set('error_description', pasted)
      },
    ])
      expect((await connect(REALM, bend)).status).toBeGreaterThanOrEqual(400)
    await call('token-service', `/authorize?return_to=https://evil.example/${pasted}`)
    await post('token-service', '/authorizations', { return_to: `https://evil/${pasted}` })
    for (const wrong of [token, pasted]) {
      for (const path of [`/credentials/${wrong}`, `/credentials/${wrong}/token`])
        await call('token-service', path)
      await post('token-service', `/credentials/${NAME}/refresh`, { Version: wrong })
      await post('token-service', '/callback', { RealmID: 'a b', Code: wrong })
      await post('token-service', '/callback', 'x'.repeat(200_000) + wrong)
      await call('accounting-gateway', `/v3/company/${REALM}%2F${wrong}/query`)
      await call('accounting-gateway', `/v4/${wrong}`)
      await post('coordinator', '/processes/OrderProcess/transactions', `{"${wrong}":`)
    }
    await lookIntoRedis()
  }

  /** All that an operator does: export, import, key rotation, removal. The audit log is read with the doors. */
  async function takeCare(): Promise<void> {
    const Passphrase = known('passphrase', random('passphrase'))
    const wrong = known('wrong passphrase', random('passphrase'))
    const exported = await post('token-service', '/exports', { Names: [SECOND], Passphrase })
    expect(exported.status).toBe(200)
    const Document: unknown = JSON.parse(exported.text)
    const load = (body: object) => post('token-service', '/imports', { Document, ...body })
    expect((await load({ Passphrase: wrong })).status).toBeGreaterThanOrEqual(400)
    expect((await load({ Passphrase, Overwrite: true })).status).toBe(200)
    expect((await post('token-service', '/key-rotations')).status).toBe(200)
    const path = `/credentials/${SECOND}`
    expect((await call('token-service', path, { method: 'DELETE' })).status).toBe(204)
    await lookIntoRedis()
  }

  async function crash(): Promise<void> {
    const other = '4620816365292'
    await connectForApplication(other)
    const defects = { exception: NAME, rejection: `ACC-${other}` }
    for (const [defect, name] of Object.entries(defects)) {
      await system.service('token-service').stop('SIGKILL')
      const dying = start('token-service', { DIES_OF: defect }, 'test-support/failpoint-main.ts')
      await system.ready('token-service')
      await refresh(name).catch(() => null)
      await eventually(() => expect(dying.output()).toContain('"msg":"unexpected error"'))
      await dying.stop('SIGKILL')
      await lookIntoRedis()
    }
    start('token-service')
    await system.ready('token-service')
  }

  /** Backends that refuse their passwords, and settings that are refused themselves. */
  async function misconfigure(): Promise<void> {
    const wrongly = (
      variable: 'TEST_AMQP_URL' | 'TEST_DATABASE_URL' | 'TEST_REDIS_URL',
    ): string => {
      const url = new URL(backend(variable))
      url.username = 'nobody-here'
      url.password = known(`wrong password of ${variable}`, random('wrong-password'))
      return url.href
    }
    const stopped = async (name: ServiceName): Promise<void> => {
      await system.service(name).stop('SIGTERM')
    }
    await stopped('token-service')
    const locked = start('token-service', {
      REDIS_URL: wrongly('TEST_REDIS_URL'),
      AMQP_URL: wrongly('TEST_AMQP_URL'),
    })
    await eventually(() => expect(locked.output()).toContain('rabbitmq'))
    await call('token-service', '/health/ready')
    await call('token-service', `/credentials/${NAME}/token`)
    await stopped('token-service')
    await stopped('coordinator')
    const lost = start('coordinator', { DATABASE_URL: wrongly('TEST_DATABASE_URL') })
    await eventually(() => expect(lost.output()).toContain('postgres'))
    await call('coordinator', '/health/ready')
    await stopped('coordinator')

    const short = known('setting that is refused', random('short').slice(0, 20))
    for (const env of [
      { SERVICE_API_KEY: short },
      { CREDENTIAL_KEYS: `k1:${short}` },
      { DISCOVERY_URL: `https://user:${short}@provider.example/` },
      { REDIS_URL: `rediss//:${short}@host` },
      { CLIENT_SECRET: `${short},` },
      { REDIRECT: `https://host/callback?secret=${short}` },
    ]) {
      const refused = start('token-service', env)
      await eventually(() => expect(refused.output()).toContain(Object.keys(env)[0]))
      await refused.stop('SIGKILL')
    }
    start('token-service')
    start('coordinator')
    await system.ready('token-service', 'coordinator')
  }

  /** What anyone may read, and every GET of each document with the key. */
  async function readDoors(): Promise<void> {
    for (const name of serviceNames) {
      for (const path of OPEN_PATHS)
        await keep(`${path} of ${name}`, await fetch(system.url(name) + path))
      const document = await fetch(`${system.url(name)}/openapi.json`)
      const { paths } = (await document.json()) as { paths: Record<string, object> }
      for (const [path, methods] of Object.entries(paths)) {
        // The hand-out has been asked, event streams do not end, and `/authorize` begins something.
        if (!('get' in methods) || /token$|events|authorize|callback|sandbox|oauth2/.test(path))
          continue
        const values: Record<string, string> = { name: NAME, process: 'OrderProcess', id: '66' }
        await call(
          name,
          path.replace(/\{(\w+)\}/g, (_, part: string) => values[part] ?? '1'),
        )
      }
    }
  }

  const everything = async (): Promise<Finding[]> => [
    ...processes.map(({ name, process }) => ({
      place: `output of ${name}`,
      bytes: Buffer.from(process.output()),
    })),
    ...told,
    ...(await readRedis(backend('TEST_REDIS_URL'), system.redisKeyPrefix)),
    ...(await tap.read()),
    ...(await readPostgres(system.databaseUrl)),
    ...(await readFolder(system.dataDir)),
    { place: 'traces', bytes: traces.received() },
  ]
  const allSecrets = (): Canary[] => [...secrets, ...provider.canaries()]

  it('are known, each kind of them', () => {
    const kinds = new Set(allSecrets().map(({ kind }) => kind))
    expect([...kinds]).toEqual(
      expect.arrayContaining([
        'service key',
        'client secret',
        'client authentication',
        'encryption key',
        'authorization code',
        'state',
        'browser cookie',
        'code that was sent',
        'code_verifier that was sent',
        'refresh_token that was sent',
        'token that was sent',
        'access_token that was issued',
        'refresh_token that was issued',
        'id_token that was issued',
        'access token',
      ]),
    )
    for (const { kind, value } of allSecrets())
      expect(value.length, kind).toBeGreaterThanOrEqual(16)
  })

  it('are nowhere: in no output, key, message, row, file, metric, document, error, header or span', async () => {
    const findings = await everything()
    const places = new Set(findings.map(({ place }) => place.split(' ')[0]))
    expect(places).toEqual(
      new Set(['output', 'answer', 'Redis', 'RabbitMQ', 'Postgres', 'file', 'traces']),
    )
    expect(new Set(traces.spans.map(({ service }) => service))).toEqual(new Set(serviceNames))
    expect(search(allSecrets(), findings)).toEqual([])
  })

  it('are in no dump that a crash left in the working directory', async () => {
    const entries = await readdir(new URL('../../', import.meta.url))
    expect(
      entries.filter((name) => /^core(\.|$)|^report\..*json$|\.heapsnapshot$/.test(name)),
    ).toEqual([])
  })

  describe('if they were somewhere', () => {
    const planted: { readonly place: string; readonly secret: Canary }[] = []
    const plant = (place: string): string => {
      const value = random('planted')
      planted.push({ place, secret: canary('planted', value) })
      return value
    }
    let findings: Finding[]

    beforeAll(async () => {
      const print = ['stdout', 'stderr']
        .map((stream) => `process.${stream}.write('${plant('output of demo-api')}\\n')`)
        .join(';')
      const printing = start('demo-api', { NODE_OPTIONS: `--import=data:text/javascript,${print}` })
      await eventually(() => expect(printing.output()).toContain('is taken'))
      await printing.stop('SIGKILL')

      const redis = new Redis(backend('TEST_REDIS_URL'), { keyPrefix: system.redisKeyPrefix })
      await redis.set('a-string', base64(`.${plant('Redis a-string')}`))
      await redis.hset('a-hash', 'field', hex(plant('Redis a-hash')).toUpperCase())
      await redis.hset('a-hash', plant('Redis a-hash'), 'value')
      await redis.rpush('a-list', `x=${plant('Redis a-list')}&y`)
      await redis.sadd('a-set', plant('Redis a-set').slice(-20))
      await redis.zadd('a-zset', 1, base64(`..${plant('Redis a-zset')}`))
      await redis.xadd('a-stream', '*', 'field', plant('Redis a-stream'))
      await redis.set(`key-${plant('Redis key-')}`, '')
      redis.disconnect()

      for (const exchange of exchangeNames) {
        const key = /steps/.test(exchange) ? 'OrderProcess.order' : 'OrderProcess'
        const place = `RabbitMQ exchange ${exchange}`
        tap.channel.publish(system.amqpPrefix + exchange, key, Buffer.from(plant(place)), {
          headers: { reason: base64(plant(place)) },
          messageId: plant(place),
        })
      }

      const sql = postgres(system.databaseUrl, { max: 1, onnotice: () => {} })
      await sql`insert into "Order_Header" ("Process", "TransactionID", "InitialData", "Status")
        values ('Planted', 'x', ${sql.json({ deep: [plant('Postgres Order_Header')] })}, 'Completed')`
      await sql`create table "Table_of_another_hand" (bytes bytea)`
      await sql`insert into "Table_of_another_hand"
        values (${Buffer.from(plant('Postgres Table_of_another_hand'))})`
      await sql.end()

      const folder = join(system.dataDir, 'a', 'folder')
      await mkdir(folder, { recursive: true })
      const named = plant('file named-')
      await writeFile(join(folder, `named-${named}`), '')
      const inBase64url = Buffer.from(`{"x":"${plant('file a.bin')}"}`).toString('base64url')
      await writeFile(join(folder, 'a.bin'), Buffer.from(`\0\u00ff${inBase64url}`))

      const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint = '' } = traces.env
      await fetch(endpoint, {
        method: 'POST',
        body: JSON.stringify({ resourceSpans: [], planted: plant('traces') }),
      })

      const talkative = createServer((request, response) => {
        const value = plant(`answer to ${request.url}`)
        if (request.url === '/header') response.setHeader('X-Token', encodeURIComponent(value))
        response.end(request.url === '/header' ? '' : value)
      })
      talkative.listen(0, '127.0.0.1')
      await once(talkative, 'listening')
      for (const path of [...OPEN_PATHS, '/header']) {
        const { port } = talkative.address() as AddressInfo
        await keep(path, await fetch(`http://127.0.0.1:${port}${path}`))
      }
      talkative.close()

      findings = await eventually(async () => {
        const all = await everything()
        // Messages are on their way; everything else is there.
        for (const { secret, place } of planted.filter((one) => one.place.startsWith('RabbitMQ')))
          expect(search([secret], all).join(), place).toContain(place)
        return all
      })
    })

    it('each would be found, where it is', () => {
      expect(planted.length).toBeGreaterThan(40)
      for (const { place, secret } of planted)
        expect(search([secret], findings).join('\n'), place).toContain(`planted in ${place}`)
    })

    it('each form would be found', () => {
      const value = randomBytes(33)
      for (const [form, text] of formsOf(value))
        expect(
          search(
            [{ kind: 'it', value }],
            [{ place: 'a place', bytes: Buffer.from(`before${text}behind`, 'latin1') }],
          ),
        ).toContain(`it in a place (${form})`)
      for (const before of ['', 'a', 'ab', 'abc'])
        for (const encoding of ['base64', 'base64url', 'hex'] as const) {
          const text = Buffer.concat([Buffer.from(before), value, Buffer.from('z')])
          expect(
            search(
              [{ kind: 'it', value }],
              [{ place: 'a place', bytes: Buffer.from(text.toString(encoding)) }],
            ),
          ).not.toEqual([])
        }
    })
  })
})
