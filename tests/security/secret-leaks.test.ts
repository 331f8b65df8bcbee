/**
 * Searches for leaked secrets. The test runs a whole system through successful calls, failures and crashes, and records
 * every secret of the run. Then it searches for these secrets in all data that the system wrote. As a control, the test
 * plants a secret in each place and in each encoding, which proves that the search would find a real leak.
 *
 * A token may occur only in the response that issues the token, and in the `Authorization` header and the form body of
 * a call to the provider. The test reads Redis, RabbitMQ and PostgreSQL through their protocols, not their files and
 * logs. It does not search core dumps, which always contain the memory of a program.
 */
import { randomBytes } from 'node:crypto'
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { digestOf } from '@integration-host/shared/access/key-list'
import type { Scope } from '@integration-host/shared/access/scope'
import { type KeyRing, parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { changeRecord, expiringIn } from '@integration-host/shared/test-support/change-record'
import { eventually } from '@integration-host/shared/test-support/eventually'
import {
  createWebhooksFile,
  startWebhookReceiver,
  type WebhookReceiver,
} from '@integration-host/shared/test-support/webhook-receiver'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { foreignGrant } from '../support/clients/foreign-program.ts'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { requestDemoApi, companyInfoUrl, waitForRun } from '../support/clients/user-actions.ts'
import { runCli } from '../support/processes/cli.ts'
import { tokenServiceWithFailpoints } from '../support/processes/failpoints.ts'
import {
  backend,
  type ServiceName,
  serviceNames,
  type ServiceProcess,
  startSystem,
  type System,
} from '../support/system.ts'
import { postNotification, signedNotification } from '../support/clients/provider-webhooks.ts'
import { startHttpServer } from '../support/fakes/http-server.ts'
import { startTraceCollector, type TraceCollector } from '../support/fakes/trace-collector.ts'
import {
  type KnownSecret,
  knownSecret,
  type WrittenData,
  formsOf,
  search,
} from '../support/secrets/secret-search.ts'
import {
  exchangeNames,
  type MessageRecorder,
  readFolder,
  readPostgres,
  readRedis,
  recordMessages,
} from '../support/secrets/written-data.ts'
import {
  type LeakyResponse,
  type RecordingProvider,
  startRecordingProvider,
} from '../support/secrets/recording-provider.ts'

const REALM = '9341453908059889'
const NAME = `ACC-${REALM}`
const SECOND = 'ACC-4620816365291'
const OPEN_PATHS = ['/health/live', '/health/ready', '/metrics', '/openapi.json', '/docs']

const names: readonly ServiceName[] = [...serviceNames, 'webhook-receiver']

const absolute = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
const builtInProcesses = absolute('../../services/coordinator/src/processes')
const leakyProcesses = absolute('../support/secrets/processes')

const random = (kind: string): string => `${kind}-${randomBytes(24).toString('base64url')}`
const hex = (text: string): string => Buffer.from(text).toString('hex')
const base64 = (text: string): string => Buffer.from(text).toString('base64')

/**
 * Malformed token responses as real providers and proxies have sent them. Each response contains as many secrets of its
 * request as possible.
 */
const leakyResponses: readonly (readonly [string, LeakyResponse])[] = [
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
    'the header and the form of the request in an HTML page',
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
    'the new pair with other member names',
    {
      status: 200,
      contentType: 'application/json',
      body: ({ accessToken, nextRefreshToken }) =>
        JSON.stringify({ accessToken, data: { 'refresh-token': nextRefreshToken } }),
    },
  ],
  [
    'the new pair, truncated in the middle of a token',
    {
      status: 200,
      contentType: 'application/json',
      body: ({ accessToken, nextRefreshToken }) =>
        JSON.stringify({ access_token: accessToken, refresh_token: nextRefreshToken }).slice(0, -8),
    },
  ],
  [
    'the new pair in a sentence',
    {
      status: 500,
      contentType: 'text/plain',
      body: ({ accessToken, nextRefreshToken }) =>
        `could not save ${accessToken} and ${nextRefreshToken} of the user`,
    },
  ],
]

describe('the search for leaked secrets in a running system', () => {
  const opened = new AsyncDisposableStack()
  const secrets: KnownSecret[] = []
  const processes: { readonly name: string; readonly process: ServiceProcess }[] = []
  const recorded: WrittenData[] = []
  let system: System
  let keys: KeyRing
  let settings: Partial<Record<ServiceName, Record<string, string>>>
  let provider: RecordingProvider
  let messages: MessageRecorder
  let traces: TraceCollector
  let webhooks: WebhookReceiver
  /** The authentication and the path of each call of LeakyProcess. */
  const leakyCalls: string[] = []

  const register = (kind: string, value: string | Buffer): string => {
    secrets.push(knownSecret(kind, value))
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
  /** Records a response for the later search. The secrets that the response is meant to contain are removed first. */
  async function record(what: string, response: Response, issued: readonly string[] = []) {
    const text = await response.text()
    const head = [...response.headers].map((header) => header.join(': ')).join('\n')
    const whole = issued.reduce(
      (rest, value) => rest.replaceAll(value, 'issued'),
      `${response.status}\n${head}\n\n${text}`,
    )
    recorded.push({ place: `response to ${what}`, bytes: Buffer.from(whole) })
    return { status: response.status, headers: response.headers, text }
  }
  const call = async (name: ServiceName, path: string, init: RequestInit = {}) =>
    record(
      `${init.method ?? 'GET'} ${path} of ${name}`,
      await system.call(system.url(name) + path, { redirect: 'manual', ...init }),
    )
  const post = (name: ServiceName, path: string, body: string | object = {}) =>
    call(name, path, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    })

  async function requestToken(name = NAME): Promise<string> {
    const path = `/credentials/${name}/token`
    const response = await system.call(system.url('token-service') + path)
    const body = (await response.clone().json()) as { Authenticator?: string }
    await record(
      `GET ${path}`,
      response,
      body.Authenticator === undefined ? [] : [body.Authenticator],
    )
    return body.Authenticator ?? ''
  }

  /** Consents as the owner of a company. Resolves with the URL to which the provider redirects. */
  async function consentTo(url: URL, realm: string): Promise<URL> {
    url.searchParams.set('sandbox_company', `${realm}:Test Company`)
    const granted = await fetch(url, { redirect: 'manual' })
    const redirect = new URL(granted.headers.get('Location') ?? '')
    register('authorization code', redirect.searchParams.get('code') ?? '')
    return redirect
  }

  /** Connects a company as a browser does. `change` may manipulate the callback URL. */
  async function connect(realm: string, change: (callback: URL) => void = () => {}) {
    const started = await fetch(`${system.url('token-service')}/authorize`, { redirect: 'manual' })
    const consent = new URL(started.headers.get('Location') ?? '')
    const state = register('state', consent.searchParams.get('state') ?? '')
    const cookie = started.headers.getSetCookie()[0]?.split(';')[0] ?? ''
    const browser = register('browser cookie', cookie.split('=')[1] ?? '')
    await record('GET /authorize', started, [state, browser])
    const callback = await consentTo(consent, realm)
    change(callback)
    return record(
      'GET /callback',
      await fetch(callback, { redirect: 'manual', headers: { Cookie: cookie } }),
    )
  }

  /**
   * Plays the part of an application that receives the provider's redirect itself, and connects a company. Resolves
   * with the authorization code.
   */
  async function connectForApplication(realm: string): Promise<string> {
    const response = await system.call(`${system.url('token-service')}/authorizations`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: '{}',
    })
    const { url, state } = (await response.clone().json()) as { url: string; state: string }
    await record('POST /authorizations', response, [register('state', state)])
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
    await changeRecord(redis, keys, name, expiringIn(-1_000))
    redis.disconnect()
  }

  const refresh = (name: string) => post('token-service', `/credentials/${name}/refresh`)
  /**
   * Records the content of Redis. Keys are deleted or expire, so this function is called at several points of the run.
   */
  const recordRedis = async (): Promise<void> => {
    recorded.push(...(await readRedis(backend('TEST_REDIS_URL'), system.redisKeyPrefix)))
  }

  /** Starts the server that the steps call. Before each response, this server reads the company through the gateway. */
  async function startApplication(): Promise<string> {
    const server = await startHttpServer(async (request, response) => {
      const { status } = await record(
        'the company, by an application',
        await system.call(companyInfoUrl(system, REALM)),
      )
      expect(status).toBe(200)
      const order = await fetch(system.url('demo-api') + request.url)
      response.writeHead(order.status, {
        'Content-Type': order.headers.get('Content-Type') ?? '',
      })
      response.end(await order.text())
    })
    return opened.use(server).url
  }

  /**
   * Starts the target of LeakyProcess. Its response contains the authentication header of the call, in several
   * encodings. A password is returned in plain text, too.
   */
  async function startLeakyTarget(): Promise<string> {
    const server = await startHttpServer((request, response) => {
      const { authorization, 'x-api-key': apiKey } = request.headers
      const whole = authorization ?? String(apiKey)
      const [, scheme, credentials = whole] = /^(Bearer|Basic) (.*)$/.exec(whole) ?? []
      leakyCalls.push(`${scheme ?? 'X-Api-Key'} ${request.url}`)
      const token =
        scheme === 'Basic'
          ? Buffer.from(credentials, 'base64').toString().replace('me:', '')
          : credentials
      response.writeHead(200, { 'X-Echo': whole, 'X-Request-Id': 'r-1' })
      response.end(
        JSON.stringify({
          whole,
          token,
          base64: base64(whole),
          shifted: base64(`xx${token}`),
          hex: hex(token),
          upper: hex(token).toUpperCase(),
          percent: hex(token).replace(/../g, '%$&'),
        }),
      )
    })
    return opened.use(server).url
  }

  beforeAll(async () => {
    system = opened.use(await startSystem([]))
    traces = opened.use(await startTraceCollector())
    provider = opened.use(await startRecordingProvider(system.url('sandbox-provider')))
    register('service key', system.serviceKey)
    register('verifier token', system.verifierToken)
    const CLIENT_SECRET = register('client secret', random('client-secret'))
    const key = randomBytes(32)
    keys = parseKeyRing(new Secret(`k1:${key.toString('base64')}`))
    register('encryption key', key)
    register('encryption key as configured', key.toString('base64'))
    const payloadKey = randomBytes(32)
    register('payload key', payloadKey)
    register('payload key as configured', payloadKey.toString('base64'))
    const database = new URL(system.databaseUrl)
    // PostgreSQL accepts any password if it is configured to trust local connections.
    database.password ||= random('database-password')
    register('database password', database.password)
    // The path of a webhook URL is treated as a secret, because many receivers recognize their senders by it.
    const path = `/${register('path of a webhook receiver', random('path'))}`
    webhooks = opened.use(await startWebhookReceiver(path))
    register('webhook secret', webhooks.secret)
    const webhooksFile = opened.use(await createWebhooksFile([webhooks.entry()]))
    const basicKey = register('password of a target', random('basic-key'))
    register('basic credentials of a target', base64(`me:${basicKey}`))
    const discovery = `${provider.url}/.well-known/openid_configuration`
    settings = {
      'sandbox-provider': { CLIENT_SECRET, BASE_URL: provider.url },
      'token-service': {
        CLIENT_SECRET,
        DISCOVERY_URL: discovery,
        CREDENTIAL_KEYS: `k1:${key.toString('base64')}`,
      },
      'accounting-gateway': { DISCOVERY_URL: discovery, ACCOUNTING_URL: provider.url },
      coordinator: {
        DATABASE_URL: database.href,
        PAYLOAD_KEYS: `p1:${payloadKey.toString('base64')}`,
        DEMO_API_URL: await startApplication(),
        PROCESSES: [builtInProcesses, leakyProcesses].join(','),
        LEAKY_PROCESS_URL: await startLeakyTarget(),
        LEAKY_PROCESS_BEARER_KEY: register('bearer token of a target', random('bearer-key')),
        LEAKY_PROCESS_BASIC_KEY: basicKey,
        LEAKY_PROCESS_HEADER_KEY: register('header of a target', random('header-key')),
        ...webhooksFile.env,
      },
    }
    // A code verifier is a secret too, so PKCE is enabled although Intuit does not support it.
    start('sandbox-provider')
    await system.ready('sandbox-provider')
    await sandboxClient(system).set({ pkce: true })
    for (const name of names) if (name !== 'sandbox-provider') start(name)
    await system.ready(...names)
    messages = opened.use(await recordMessages(backend('TEST_AMQP_URL'), system.amqpPrefix))

    await exerciseSuccess()
    await exerciseLeakyProcess()
    await exerciseProviderFailures()
    await exerciseRejections()
    await exerciseNotifications()
    await exerciseOperations()
    await exerciseKeysAndLinks()
    await exerciseAdoption()
    await exerciseCrashes()
    await exerciseMisconfiguration()
    await readAllRoutes()
  }, 300_000)
  afterAll(() => opened.disposeAsync())

  async function exerciseSuccess(): Promise<void> {
    expect((await connect(REALM)).status).toBe(302)
    await sandboxClient(system).set({ pkce: false }) // the authorization request of the application has no code challenge
    await connectForApplication(SECOND.slice(4))
    await requestToken()
    expect((await refresh(NAME)).status).toBe(200)
    expect(provider.bearers).not.toContain(await requestToken())
    expect((await record('gateway', await system.call(companyInfoUrl(system, REALM)))).status).toBe(
      200,
    )
    // The provider ends the validity of the access token, so that the gateway requests a refresh and repeats the call.
    await sandboxClient(system).expire(REALM)
    expect((await record('gateway', await system.call(companyInfoUrl(system, REALM)))).status).toBe(
      200,
    )
    expect((await requestDemoApi(system, '/queue?number=66')).status).toBe(200)
    await waitForRun(system, '66', 0, 'Completed')
    await eventually(() =>
      expect(new Set(webhooks.received.map(({ type }) => type))).toEqual(
        new Set(['credential.stored', 'transaction.completed']),
      ),
    )
    expect(provider.bearers).toContain(await requestToken())
    await recordRedis()
  }

  /** Each run tries to leak the key of a target in another way. */
  async function exerciseLeakyProcess(): Promise<void> {
    const path = '/processes/LeakyProcess/transactions'
    const endings = {
      echo: 'Completed',
      url: 'secret_in_request',
      query: 'secret_in_request',
      header: 'secret_in_request',
      body: 'secret_in_request',
      reason: 'step_failed',
      error: 'step_threw',
    }
    for (const target of ['bearer', 'basic', 'header'])
      for (const [way, ending] of Object.entries(endings)) {
        const id = `leak-${target}-${way}`
        const body = { TransactionID: id, InitialData: { target, way } }
        expect((await post('coordinator', path, body)).status).toBe(202)
        await eventually(async () => {
          const run = await system.call(`${system.url('coordinator')}${path}/${id}`)
          const { Status, ErrorClass } = (await run.json()) as Record<string, unknown>
          expect(ErrorClass ?? Status, id).toBe(ending)
        })
        for (const part of ['', '/items/echo/body', '/runs'])
          await call('coordinator', `${path}/${id}${part}`)
      }
    expect(new Set(leakyCalls)).toEqual(new Set(['Bearer /echo', 'Basic /echo', 'X-Api-Key /echo']))
    await call('coordinator', '/processes/LeakyProcess')
    await call('coordinator', '/processes/LeakyProcess/summary')
    expect((await post('coordinator', path, { TransactionID: 'x', InitialData: 1 })).status).toBe(
      400,
    )
  }

  async function exerciseProviderFailures(): Promise<void> {
    for (const [index, [what, response]] of leakyResponses.entries()) {
      // Each response uses another company, because the gateway delays the next call of a company after a call with an
      // unknown outcome.
      const realm = String(4_620_816_365_000 + index)
      const code = await connectForApplication(realm)
      await expire(`ACC-${realm}`) // a failed refresh is recorded as a fault only after the access token has expired
      // token-service does not retry a refresh at once after a valid OAuth error, or after a success that may hold new
      // tokens. After any other response, it retries the refresh once.
      if (response.status === 500) provider.leakNext(code, response, response)
      else provider.leakNext(code, response)
      expect((await refresh(`ACC-${realm}`)).status, what).toBe(503)
      expect(provider.remainingLeaks(code), what).toBe(0)
      await call('token-service', `/credentials/ACC-${realm}`)
      await requestToken(`ACC-${realm}`)
      await record('gateway', await system.call(companyInfoUrl(system, realm)))
    }
    await sandboxClient(system).revoke(SECOND.slice(4))
    expect((await refresh(SECOND)).status).toBe(424)
    await call('token-service', '/credentials')
    await recordRedis()
    await connectForApplication(SECOND.slice(4))
  }

  async function exerciseNotifications(): Promise<void> {
    const notification = signedNotification(system.verifierToken)
    const forged = random('forged-signature')
    for (const [signature, status] of [
      [register('signature of a notification', notification.signature), 200],
      [register('forged signature of a notification', forged), 403],
    ] as const) {
      const response = await postNotification(system, { ...notification, signature })
      expect((await record('a notification', response)).status).toBe(status)
    }
    const ignored = signedNotification(system.verifierToken, [{ id: 'not an id', realm: '?' }])
    register('signature of an ignored notification', ignored.signature)
    const { status } = await record('a notification', await postNotification(system, ignored))
    expect(status).toBe(200)
  }

  async function exerciseRejections(): Promise<void> {
    const pasted = register('pasted secret', random('pasted'))
    const token = await requestToken()
    for (const name of names) {
      for (const header of [`Bearer ${pasted}`, `Basic ${btoa(`:${pasted}`)}`, pasted])
        for (const path of ['/credentials', '/processes', '/v3/company/1/query', '/queue', '/none'])
          await record(
            `a wrong key at ${name}`,
            await fetch(system.url(name) + path, { headers: { Authorization: header } }),
          )
      await call(name, `/${pasted}?access_token=${pasted}&api_key=${pasted}`)
      await post(name, '/callback', `{"RealmID":"1","Code":"${pasted}`)
    }
    // Each of these functions manipulates one parameter of the callback.
    for (const manipulate of [
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
      expect((await connect(REALM, manipulate)).status).toBeGreaterThanOrEqual(400)
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
    await recordRedis()
  }

  /** Runs the operator commands: export, import, key rotation and removal. `readAllRoutes` reads the audit log. */
  async function exerciseOperations(): Promise<void> {
    const Passphrase = register('passphrase', random('passphrase'))
    const wrong = register('wrong passphrase', random('passphrase'))
    const exported = await post('token-service', '/exports', { Names: [SECOND], Passphrase })
    expect(exported.status).toBe(200)
    const Document: unknown = JSON.parse(exported.text)
    const load = (body: object) => post('token-service', '/imports', { Document, ...body })
    expect((await load({ Passphrase: wrong })).status).toBeGreaterThanOrEqual(400)
    expect((await load({ Passphrase, Overwrite: true })).status).toBe(200)
    expect((await post('token-service', '/key-rotations')).status).toBe(200)
    const path = `/credentials/${SECOND}`
    expect((await call('token-service', path, { method: 'DELETE' })).status).toBe(204)
    // Sends accepted, rejected and malformed actions on a run. `readAllRoutes` reads the action log later.
    const run = '/processes/OrderProcess/transactions/66'
    const replay = { Reason: 'the file was deleted' }
    expect((await post('coordinator', `${run}/replays`, replay)).status).toBe(202)
    await waitForRun(system, '66', 1, 'Completed')
    expect((await post('coordinator', `${run}/cancel`, {})).status).toBe(409)
    expect((await post('coordinator', `${run}/cancel`, { Reason: `${wrong}\n` })).status).toBe(400)
    const headers = { 'If-Match': wrong }
    const mismatched = await call('coordinator', `${run}/resume`, { method: 'POST', headers })
    expect(mismatched.status).toBe(400)
    await recordRedis()
  }

  /** Uses a key of a key file, a key file that contains a key in the place of its digest, and connect links. */
  async function exerciseKeysAndLinks(): Promise<void> {
    const key = register('key of the key file', random('ihk'))
    const misplaced = register('key in place of its digest', random('ihk'))
    const folder = await mkdtemp(join(tmpdir(), 'leaks-'))
    opened.defer(() => rm(folder, { recursive: true }))
    const file = join(folder, 'keys.json')
    const scopes: Scope[] = ['credentials:read', 'credentials:manage', 'act-for']
    const entry = { id: 'console', sha256: digestOf(key), scopes, realms: ['*'] }
    await writeFile(file, JSON.stringify([entry]))
    await system.service('token-service').stop('SIGTERM')
    settings['token-service'] = { ...settings['token-service'], SERVICE_KEYS_FILE: file }
    const running = start('token-service')
    await system.ready('token-service')

    const origin = system.url('token-service')
    const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' }
    const withKey = async (path: string, init: RequestInit = {}) =>
      record(`${path} with a key of the key file`, await fetch(origin + path, { headers, ...init }))
    expect((await withKey('/credentials')).status).toBe(200)
    expect((await withKey('/audit')).status).toBe(403)
    expect((await withKey('/exports', { method: 'POST', body: '{}' })).status).toBe(403)
    const person = { headers: { ...headers, 'Acting-For': `ada ${key}` } }
    expect((await withKey('/credentials', person)).status).toBe(400)

    const created = await fetch(`${origin}/connect-links`, { method: 'POST', headers, body: '{}' })
    const { url } = (await created.clone().json()) as { url: string }
    const ticket = register(
      'ticket of a connect link',
      new URL(url).pathname.split('/').at(-1) ?? '',
    )
    await record('POST /connect-links', created, [ticket])
    expect((await record('GET /connect', await fetch(url))).status).toBe(200)
    const used = await fetch(url, { method: 'POST', redirect: 'manual' })
    const state = new URL(used.headers.get('Location') ?? '').searchParams.get('state') ?? ''
    const browser = used.headers.getSetCookie()[0]?.split(';')[0]?.split('=')[1] ?? ''
    await record('POST /connect', used, [
      register('state', state),
      register('browser cookie', browser),
    ])
    expect((await record('GET /connect', await fetch(url))).status).toBe(410)
    expect((await withKey('/connect-links')).status).toBe(200)

    await writeFile(file, JSON.stringify([{ ...entry, id: misplaced, sha256: misplaced }]))
    await eventually(() => expect(running.output()).toContain('list file is not valid'))
    await call('token-service', '/health/ready')
    await writeFile(file, JSON.stringify([entry]))
    await recordRedis()
  }

  /**
   * Adopts grants of another program: valid grants, malformed lines, and grants whose token leaks in the provider's
   * response.
   */
  async function exerciseAdoption(): Promise<void> {
    const secret = settings['token-service']?.['CLIENT_SECRET'] ?? ''
    const grant = async (Realm: string) => {
      const { token, code } = await foreignGrant(system, Realm, secret, provider.url)
      return { Realm, RefreshToken: token, code }
    }
    const { code: _, ...valid } = await grant('4620816366000')
    const misplaced = register('misplaced token', random('rt'))
    const leaked: object[] = []
    for (const [index, [, response]] of leakyResponses.entries()) {
      const { code, ...line } = await grant(String(4_620_816_366_001 + index))
      provider.leakNext(code, response, response)
      leaked.push(line)
    }
    const lines = [
      JSON.stringify(valid),
      ...leaked.map((line) => JSON.stringify(line)),
      `{"Realm":"1","RefreshToken":"${misplaced}`,
      JSON.stringify({ Realm: misplaced, RefreshToken: '9341453908059889' }),
      JSON.stringify({ Realm: '2', RefreshToken: `${misplaced}\n` }),
      JSON.stringify({ Realm: '3', RefreshToken: misplaced, [misplaced]: misplaced }),
      JSON.stringify({ Realm: '4', RefreshToken: misplaced, Label: `\u202e${misplaced}` }),
      JSON.stringify({ Realm: valid.Realm, RefreshToken: misplaced }),
    ].join('\n')
    const adopted = await call('token-service', '/imports/grants', {
      method: 'POST',
      headers: { 'Content-Type': 'application/x-ndjson' },
      body: lines,
    })
    expect(JSON.parse(adopted.text)).toMatchObject({ stored: 1, invalid: 6 })
    await requestToken(`ACC-${valid.Realm}`)
    await call('token-service', '/imports/grants', {
      method: 'POST',
      headers: { 'Content-Type': 'text/plain' },
      body: lines,
    })
    const folder = await mkdtemp(join(tmpdir(), 'grants-'))
    const file = join(folder, 'grants.ndjson')
    await writeFile(file, `${lines}\n`, { mode: 0o600 })
    for (const options of [[], ['--json']]) {
      const command = ['credentials', 'adopt', '--yes', '--file', file, ...options]
      const { code, stdout, stderr } = await runCli(command, {
        cwd: folder,
        env: { SERVICE_API_KEY: system.serviceKey, TOKEN_SERVICE_URL: system.url('token-service') },
      })
      expect(code, stderr).toBe(1)
      recorded.push({ place: 'output of the command line', bytes: Buffer.from(stdout + stderr) })
    }
    await rm(folder, { recursive: true })
    await recordRedis()
  }

  async function exerciseCrashes(): Promise<void> {
    const other = '4620816365292'
    await connectForApplication(other)
    const defects = { exception: NAME, rejection: `ACC-${other}` }
    for (const [defect, name] of Object.entries(defects)) {
      await system.service('token-service').stop('SIGKILL')
      const doomed = start('token-service', { DIES_OF: defect }, tokenServiceWithFailpoints)
      await system.ready('token-service')
      await refresh(name).catch(() => null)
      await eventually(() =>
        expect(doomed.output()).toContain('"msg":"service is exiting after an unexpected error"'),
      )
      await doomed.stop('SIGKILL')
      await recordRedis()
    }
    start('token-service')
    await system.ready('token-service')
  }

  /** Starts services with passwords that the backends reject, and services with invalid settings. */
  async function exerciseMisconfiguration(): Promise<void> {
    const withWrongPassword = (
      variable: 'TEST_AMQP_URL' | 'TEST_DATABASE_URL' | 'TEST_REDIS_URL',
    ): string => {
      const url = new URL(backend(variable))
      url.username = 'unknown-user'
      url.password = register(`wrong password of ${variable}`, random('wrong-password'))
      return url.href
    }
    const stop = async (name: ServiceName): Promise<void> => {
      await system.service(name).stop('SIGTERM')
    }
    await stop('token-service')
    const lockedOut = start('token-service', {
      REDIS_URL: withWrongPassword('TEST_REDIS_URL'),
      AMQP_URL: withWrongPassword('TEST_AMQP_URL'),
    })
    await eventually(() => expect(lockedOut.output()).toContain('rabbitmq'))
    await call('token-service', '/health/ready')
    await call('token-service', `/credentials/${NAME}/token`)
    await stop('token-service')
    await stop('coordinator')
    const lockedOutCoordinator = start('coordinator', {
      DATABASE_URL: withWrongPassword('TEST_DATABASE_URL'),
    })
    await eventually(() => expect(lockedOutCoordinator.output()).toContain('postgres'))
    await call('coordinator', '/health/ready')
    await stop('coordinator')

    const short = register('rejected setting', random('short').slice(0, 20))
    for (const env of [
      { SERVICE_API_KEY: short },
      { CREDENTIAL_KEYS: `k1:${short}` },
      { DISCOVERY_URL: `https://user:${short}@provider.example/` },
      { REDIS_URL: `rediss//:${short}@host` },
      { CLIENT_SECRET: `${short},` },
      { REDIRECT: `https://host/callback?secret=${short}` },
    ]) {
      const rejected = start('token-service', env)
      await eventually(() => expect(rejected.output()).toContain(Object.keys(env)[0]))
      await rejected.stop('SIGKILL')
    }
    const invalid = [
      { url: `https://user:${short}@hooks.example/${short}`, secret: `whsec_${short}` },
    ]
    await using file = await createWebhooksFile(invalid)
    const rejected = start('coordinator', file.env)
    await eventually(() => expect(rejected.output()).toContain('WEBHOOKS_FILE: entry 1: secret'))
    await rejected.stop('SIGKILL')
    start('token-service')
    start('coordinator')
    await system.ready('token-service', 'coordinator')
  }

  /** Reads all routes that need no key. With the key, reads every GET route of each OpenAPI document. */
  async function readAllRoutes(): Promise<void> {
    for (const name of names) {
      for (const path of OPEN_PATHS)
        await record(`${path} of ${name}`, await fetch(system.url(name) + path))
      const document = await fetch(`${system.url(name)}/openapi.json`)
      const { paths } = (await document.json()) as { paths: Record<string, object> }
      for (const [path, methods] of Object.entries(paths)) {
        // These routes are left out. The token route was called before, event streams do not end, `/authorize` would
        // start an authorization, and the script of the reference page is a file of a dependency.
        if (
          !('get' in methods) ||
          /token$|events|authorize|callback|sandbox|oauth2|reference\.js$/.test(path)
        )
          continue
        const values: Record<string, string> = { name: NAME, process: 'OrderProcess', id: '66' }
        await call(
          name,
          path.replace(/\{(\w+)\}/g, (_, part: string) => values[part] ?? '1'),
        )
      }
    }
  }

  const everything = async (): Promise<WrittenData[]> => [
    ...processes.map(({ name, process }) => ({
      place: `output of ${name}`,
      bytes: Buffer.from(process.output()),
    })),
    ...recorded,
    ...(await readRedis(backend('TEST_REDIS_URL'), system.redisKeyPrefix)),
    ...(await messages.read()),
    ...(await readPostgres(system.databaseUrl)),
    ...(await readFolder(system.dataDir)),
    { place: 'traces', bytes: traces.received() },
    ...webhooks.received.map(({ id, text }) => ({
      place: 'webhook',
      bytes: Buffer.from(`${id}\n${text}`),
    })),
  ]
  const allSecrets = (): KnownSecret[] => [...secrets, ...provider.secrets()]

  it('the run produced at least one secret of every kind that is searched for', () => {
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
        'key of the key file',
        'key in place of its digest',
        'ticket of a connect link',
        'verifier token',
        'signature of a notification',
        'forged signature of a notification',
        'signature of an ignored notification',
        'path of a webhook receiver',
        'webhook secret',
        'bearer token of a target',
        'password of a target',
        'basic credentials of a target',
        'header of a target',
      ]),
    )
    for (const { kind, value } of allSecrets())
      expect(value.length, kind).toBeGreaterThanOrEqual(16)
  })

  it('no output, key, message, row, file, metric, document, error, header or span contains a secret', async () => {
    const written = await everything()
    const places = new Set(written.map(({ place }) => place.split(' ')[0]))
    expect(places).toEqual(
      new Set(['output', 'response', 'Redis', 'RabbitMQ', 'Postgres', 'file', 'traces', 'webhook']),
    )
    expect(new Set(traces.spans.map(({ service }) => service))).toEqual(new Set(names))
    expect(search(allSecrets(), written)).toEqual([])
  })

  it('the working directory contains no core dump, diagnostic report or heap snapshot', async () => {
    const entries = await readdir(new URL('../../', import.meta.url))
    expect(
      entries.filter((name) => /^core(\.|$)|^report\..*json$|\.heapsnapshot$/.test(name)),
    ).toEqual([])
  })

  describe('the search for leaked secrets in data with planted secrets', () => {
    const planted: { readonly place: string; readonly secret: KnownSecret }[] = []
    const plant = (place: string): string => {
      const value = random('planted')
      planted.push({ place, secret: knownSecret('planted', value) })
      return value
    }
    let written: WrittenData[]

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
        messages.channel.publish(system.amqpPrefix + exchange, key, Buffer.from(plant(place)), {
          headers: { reason: base64(plant(place)) },
          messageId: plant(place),
        })
      }

      const sql = postgres(system.databaseUrl, { max: 1, onnotice: () => {} })
      await sql`insert into "Order_Header" ("Process", "TransactionID", "InitialData", "Status")
        values ('Planted', 'x', ${sql.json({ deep: [plant('Postgres Order_Header')] })}, 'Completed')`
      await sql`create table "Unknown_table" (bytes bytea)`
      await sql`insert into "Unknown_table"
        values (${Buffer.from(plant('Postgres Unknown_table'))})`
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

      await using leakyServer = await startHttpServer((request, response) => {
        const value = plant(`response to ${request.url}`)
        if (request.url === '/header') response.setHeader('X-Token', encodeURIComponent(value))
        response.end(request.url === '/header' ? '' : value)
      })
      for (const path of [...OPEN_PATHS, '/header'])
        await record(path, await fetch(leakyServer.url + path))

      written = await eventually(async () => {
        const all = await everything()
        // Only messages arrive asynchronously, so all other data has already been written here.
        for (const { secret, place } of planted.filter((one) => one.place.startsWith('RabbitMQ')))
          expect(search([secret], all).join(), place).toContain(place)
        return all
      })
    })

    it('the search finds a planted secret in every place', () => {
      expect(planted.length).toBeGreaterThan(40)
      for (const { place, secret } of planted)
        expect(search([secret], written).join('\n'), place).toContain(`planted in ${place}`)
    })

    it('the search finds a secret in every encoded form', () => {
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
