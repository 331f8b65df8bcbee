/** Fakes of the services that the gateway calls. Each fake is a real server on the loopback interface. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net'

/** The service key of the tests. Callers present it to the gateway, and the gateway presents it to token-service. */
export const KEY = 'service-key-of-the-tests-0123456789abcdef'

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

/** Starts an HTTP server that records its requests. A test can replace the request handler `handle` at any time. */
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

/** Responds with a JSON description of the received request. */
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
  /** The access token to issue; by default the result of {@link tokenOf} for the realm and the version. */
  token?: string
}

export interface FakeTokenService extends FakeServer {
  readonly credentials: Map<string, Credential>
  refreshes(): Seen[]
  tokens(): Seen[]
}

/** Starts a fake token-service that implements the part of the HTTP contract that the gateway uses. */
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

/** Starts an upstream server that responds to every request head with the same bytes. */
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

/**
 * Starts a TCP listener that counts connections. Tests use it to verify that the gateway does not connect to an
 * address.
 */
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
