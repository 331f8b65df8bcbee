/** Test harness of the gateway: real servers on loopback as fakes of the services that it calls. */
import { once } from 'node:events'
import {
  type ClientRequest,
  createServer,
  type IncomingMessage,
  request as httpRequest,
  type Server,
  type ServerResponse,
} from 'node:http'
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from 'node:net'
import {
  credentialMessageId,
  type CredentialEventKind,
  credentialRoutingKey,
  CREDENTIALS_EXCHANGE,
} from '@integration-host/shared/contracts/credential-event'
import { createHealth } from '@integration-host/shared/observability/health'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import { createLogger } from '@integration-host/shared/observability/logger'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import { readEmbeddedConfig } from '../src/config.ts'
import type { GatewayLimits } from '../src/realm/throttle.ts'
import { startAccountingGateway } from '../src/service.ts'

export const KEY = 'service-key-of-the-tests-0123456789abcdef'
/** The key as a header line of a raw request. */
export const AUTH = `Authorization: Bearer ${KEY}\r\n`
/** A company call for a realm that every fixture knows. */
export const PATH = '/v3/company/1/x'

export interface Seen {
  readonly method: string
  readonly url: string
  readonly rawHeaders: readonly string[]
  readonly headers: IncomingMessage['headers']
}

export type RequestHandler = (request: IncomingMessage, response: ServerResponse) => unknown

export interface FakeServer extends AsyncDisposable {
  readonly url: string
  readonly port: number
  readonly server: Server
  readonly seen: Seen[]
  handle: RequestHandler
}

/** Starts an HTTP server that records its requests; `handle` can be replaced at any time. */
export async function startFakeServer(first: RequestHandler, port = 0): Promise<FakeServer> {
  const seen: Seen[] = []
  const server = createServer({ requestTimeout: 0 }, (request, response) => {
    const { method = '', url = '', rawHeaders, headers } = request
    seen.push({ method, url, rawHeaders, headers })
    Promise.resolve(self.handle(request, response)).catch(() => response.destroy())
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const bound = (server.address() as AddressInfo).port
  const self: FakeServer = {
    url: `http://127.0.0.1:${bound}`,
    port: bound,
    server,
    seen,
    handle: first,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
  return self
}

export async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part as Buffer)
  return Buffer.concat(parts)
}

/** Responds with the request it got, as JSON. */
export const echo: RequestHandler = async (request, response) => {
  const body = (await bodyOf(request)).toString('latin1')
  const { method, url, headers } = request
  response.setHeader('Content-Type', 'application/json')
  response.setHeader('intuit_tid', '1-tid-of-the-response')
  response.end(JSON.stringify({ method, url, headers, body }))
}

export const tokenOf = (realm: string, version: number): string =>
  `token-${realm}-v${version}-canary-0123456789`

export interface Credential {
  version: number
  expiresAt: number
  fault: string | null
  /** The access token if it is not {@link tokenOf} the realm and version. */
  token?: string
}

export interface FakeTokenService extends FakeServer {
  readonly credentials: Map<string, Credential>
  refreshes(): Seen[]
  tokens(): Seen[]
}

/** Starts a fake of token-service with the part of its HTTP contract that the gateway uses. */
export async function startFakeTokenService(realms: readonly string[], port = 0) {
  const credentials = new Map<string, Credential>(
    realms.map((realm) => [realm, { version: 1, expiresAt: Date.now() + 3_600_000, fault: null }]),
  )
  const reject = (response: ServerResponse, status: number, code: string, more: object = {}) => {
    response.writeHead(status, { 'Content-Type': 'application/problem+json' })
    response.end(JSON.stringify({ type: `urn:x:${code}`, title: code, status, code, ...more }))
  }
  const handle: RequestHandler = async (request, response) => {
    if (request.url === '/health/live') return response.end('{}')
    if (request.headers.authorization !== `Bearer ${KEY}`)
      return reject(response, 401, 'unauthorized')
    const [, name = '', action] =
      /^\/credentials\/(ACC-[^/]+)\/(token|refresh)$/.exec(request.url ?? '') ?? []
    const realm = name.slice('ACC-'.length)
    const credential = credentials.get(realm)
    if (credential === undefined) return reject(response, 404, 'credential_not_found')
    if (credential.fault !== null)
      return reject(response, 424, 'credential_faulted', {
        detail: credential.fault,
        Fault: { Code: 'invalid_grant' },
      })
    if (action === 'refresh') {
      const { Version } = JSON.parse((await bodyOf(request)).toString()) as { Version: number }
      if (credential.version <= Version) credential.version = Version + 1
    }
    response.setHeader('Content-Type', 'application/json')
    const view = {
      Name: name,
      Expiry: new Date(credential.expiresAt).toISOString(),
      Version: credential.version,
    }
    return response.end(
      JSON.stringify(
        action === 'token'
          ? { ...view, Authenticator: credential.token ?? tokenOf(realm, credential.version) }
          : { ...view, Environment: realm, Status: 'active', RefreshedAt: view.Expiry },
      ),
    )
  }
  const server = await startFakeServer(handle, port)
  return Object.assign(server, {
    credentials,
    refreshes: () => server.seen.filter(({ url }) => url.endsWith('/refresh')),
    tokens: () => server.seen.filter(({ url }) => url.endsWith('/token')),
  }) satisfies FakeTokenService
}

export interface Gateway extends AsyncDisposable {
  readonly url: string
  readonly port: number
  readonly bus: MessageBus
  readonly log: Record<string, unknown>[]
  /** Returns everything that was logged, as text. */
  logText(): string
  call(path: string, init?: RequestInit): Promise<Response>
}

export interface GatewayOptions {
  readonly settings?: Readonly<Record<string, string>>
  readonly limits?: GatewayLimits
  readonly bus?: MessageBus
}

/** Starts a gateway as the embedded host does, with high limits unless the settings say otherwise. */
export async function startGateway(
  upstreamUrl: string,
  tokenServiceUrl: string,
  { settings = {}, limits, bus: givenBus }: GatewayOptions = {},
): Promise<Gateway> {
  const lines: string[] = []
  const logger = createLogger('gateway', 'trace', { write: (line) => void lines.push(line) })
  const bus = givenBus ?? createInProcessBus(logger)
  const config = readEmbeddedConfig({
    PORT: '0',
    SERVICE_API_KEY: KEY,
    ACCOUNTING_URL: upstreamUrl,
    TOKEN_SERVICE_URL: tokenServiceUrl,
    REQUESTS_PER_SECOND: '1000',
    REQUESTS_PER_MINUTE: '10000',
    CONCURRENT_REQUESTS: '1000',
    BATCHES_PER_MINUTE: '1000',
    // `off` in the vitest project `gateway without fast path`.
    FAST_PATH: process.env['FAST_PATH'] ?? 'on',
    ...settings,
  })
  const service = await startAccountingGateway(config, {
    logger,
    health: createHealth(logger),
    bus,
    ...(limits !== undefined && { limits }),
  })
  return {
    url: service.url,
    port: Number(new URL(service.url).port),
    bus,
    get log() {
      return lines.map((line) => JSON.parse(line) as Record<string, unknown>)
    },
    logText: () => lines.join(''),
    call: (path, init = {}) =>
      fetch(service.url + path, {
        redirect: 'manual',
        ...init,
        headers: { Authorization: `Bearer ${KEY}`, ...(init.headers as Record<string, string>) },
      }),
    async [Symbol.asyncDispose]() {
      await service[Symbol.asyncDispose]()
      if (givenBus === undefined) await bus[Symbol.asyncDispose]()
    },
  }
}

export interface Fixture {
  readonly upstream: FakeServer
  readonly tokens: FakeTokenService
  /** Owns both, and what the test opens in addition. */
  readonly opened: AsyncDisposableStack
}

/** Starts fakes of the accounting API and of a token-service that knows the realms. */
export async function startFixture(
  realms: readonly string[] = ['1', '2'],
  handler: RequestHandler = echo,
): Promise<Fixture> {
  const opened = new AsyncDisposableStack()
  const upstream = opened.use(await startFakeServer(handler))
  return { opened, upstream, tokens: opened.use(await startFakeTokenService(realms)) }
}

/** Makes a call with Node's own client, which does not change the response. */
export function send(
  port: number,
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
): { readonly request: ClientRequest; readonly answer: Promise<IncomingMessage> } {
  const authorization = `Bearer ${KEY}`
  const request = httpRequest({ port, path, method, headers: { authorization, ...headers } })
  const answer = once(request, 'response').then(([response]) => response as IncomingMessage)
  return { request, answer }
}

/** Resolves with the bytes written once that number no longer grows, because all buffers are full. */
export async function stalled(written: () => number): Promise<number> {
  let before = -1
  await eventually(
    () => {
      const now = written()
      const isStalled = now === before
      before = now
      expect(isStalled).toBe(true)
    },
    { everyMs: 500 },
  )
  return before
}

export interface RawResponse {
  readonly status: number
  readonly head: string
  readonly body: string
  readonly text: string
}

const TICK_MS = 50
const FIRST_BYTE_MS = 20_000

/**
 * Sends raw bytes, which ordinary clients would normalize. Reads until the peer closes, or has sent something and then
 * nothing for `quietMs`. That time is counted in ticks of a timer, so it does not pass while this process is blocked.
 */
export async function raw(port: number, bytes: string, quietMs = 300): Promise<RawResponse> {
  const socket = connect(port, '127.0.0.1')
  const parts: Buffer[] = []
  let ticks = 0
  socket.on('data', (part: Buffer) => {
    parts.push(part)
    ticks = 0
  })
  socket.on('error', () => {})
  const ticking = setInterval(() => {
    ticks += 1
    if (ticks * TICK_MS >= (parts.length === 0 ? FIRST_BYTE_MS : quietMs)) socket.destroy()
  }, TICK_MS)
  socket.write(bytes, 'latin1')
  await once(socket, 'close')
  clearInterval(ticking)
  const text = Buffer.concat(parts).toString('latin1')
  const [head = '', ...rest] = text.split('\r\n\r\n')
  return {
    status: Number(/^HTTP\/1\.[01] (\d{3})/.exec(text)?.[1] ?? 0),
    head,
    body: rest.join('\r\n\r\n'),
    text,
  }
}

/** Starts an upstream that responds to every request head with the same bytes. */
export async function startRawUpstream(bytes: string) {
  const sockets = new Set<Socket>()
  let connections = 0
  const server = createTcpServer((socket) => {
    connections += 1
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => {})
    socket.on('data', (data: Buffer) => {
      if (!data.includes('\r\n\r\n')) return
      const closes = /\r\nConnection: close\r\n/.test(bytes)
      if (closes) socket.end(bytes, 'latin1')
      else socket.write(bytes, 'latin1')
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    connections: () => connections,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close')
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}

/** Starts a TCP listener that must never be contacted. */
export async function evilListener() {
  let connections = 0
  const server = createTcpServer((socket) => {
    connections += 1
    socket.destroy()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    connections: () => connections,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close')
      server.close()
      await closed
    },
  }
}

/** Publishes a credential event as token-service does. */
export async function publishEvent(
  bus: MessageBus,
  realm: string,
  kind: CredentialEventKind,
  version: number,
): Promise<void> {
  const at = new Date().toISOString()
  const body = { Name: `ACC-${realm}`, Environment: realm, Expiry: at, Version: version, At: at }
  await bus.publish({
    exchange: CREDENTIALS_EXCHANGE,
    routingKey: credentialRoutingKey(kind),
    messageId: credentialMessageId(body, kind),
    type: credentialRoutingKey(kind),
    body,
    mandatory: false,
  })
}
