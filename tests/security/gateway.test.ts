/**
 * Tests attacks on a gateway that runs as a real OS process. The attacks come from callers, from responses of the
 * accounting API, and from the discovery document.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import {
  type AddressInfo,
  createServer as createTcpServer,
  type Server,
  type Socket,
} from 'node:net'
import { fileURLToPath } from 'node:url'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { raw } from '@integration-host/shared/test-support/raw-http'
import {
  listeningUrl,
  type StartedProcess,
  startProcess,
} from '@integration-host/shared/test-support/start-process'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { startHttpServer } from '../support/fakes/http-server.ts'

const MAIN = fileURLToPath(
  new URL('../../services/accounting-gateway/src/main.ts', import.meta.url),
)
// No process listens on port 1 (tcpmux), and the operating system never assigns this port.
const UNREACHABLE = '127.0.0.1:1'
const KEY = 'service-key-of-the-tests-0123456789abcdef'
const AUTH = `Authorization: Bearer ${KEY}\r\n`
const PATH = '/v3/company/1/x'
const HEAD = `Host: x\r\n${AUTH}`
const get = (headers = '', path = PATH): string => `GET ${path} HTTP/1.1\r\n${HEAD}${headers}\r\n`

/** Returns the status of each response, even if one response directly follows the body of another response. */
const statuses = (text: string): number[] =>
  [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status))

let opened: AsyncDisposableStack
/** The requests that reached the accounting API. */
let seen: IncomingMessage[]
/** Sends the response of the accounting API. */
let respond: (response: ServerResponse) => void
let upstreamUrl: string
let tokenServiceUrl: string

beforeEach(async () => {
  opened = new AsyncDisposableStack()
  seen = []
  respond = (response) => void response.end('ok')
  const upstream = await startHttpServer((request, response) => {
    seen.push(request)
    respond(response)
  })
  upstreamUrl = opened.use(upstream).url
  const token = {
    Name: 'ACC-1',
    Authenticator: 'token-of-the-realm-0123456789',
    Expiry: new Date(Date.now() + 3_600_000).toISOString(),
    Version: 1,
  }
  const tokenService = await startHttpServer((_request, response) => {
    response.setHeader('Content-Type', 'application/json').end(JSON.stringify(token))
  })
  tokenServiceUrl = opened.use(tokenService).url
})
afterEach(() => opened.disposeAsync())

/** Starts a gateway without a broker and without Redis, because it can forward calls without them. */
const start = (settings: Readonly<Record<string, string>>): StartedProcess =>
  opened.use(
    startProcess([MAIN], {
      env: {
        PORT: '0',
        SERVICE_API_KEY: KEY,
        ACCOUNTING_URL: upstreamUrl,
        TOKEN_SERVICE_URL: tokenServiceUrl,
        AMQP_URL: `amqp://${UNREACHABLE}`,
        REDIS_URL: `redis://${UNREACHABLE}`,
        ...settings,
      },
    }),
  )

/** Lets a server listen on a free loopback port until the test ends. Returns the port. */
async function listenOnLoopback(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  opened.defer(() => void server.close())
  return (server.address() as AddressInfo).port
}

/** Starts a server that counts its connections and sends the same bytes on each connection. */
async function startTcpServer(bytes: string) {
  let connections = 0
  const server = createTcpServer((socket: Socket) => {
    connections += 1
    socket.on('error', () => {})
    socket.once('data', () => socket.end(bytes))
  })
  return { port: await listenOnLoopback(server), connections: () => connections }
}

describe.each(['on', 'off'])('the gateway with the setting FAST_PATH=%s', (FAST_PATH) => {
  const listening = async (settings: Readonly<Record<string, string>> = {}) => {
    const url = await listeningUrl(start({ FAST_PATH, ...settings }))
    const call = (path: string) =>
      fetch(url + path, { headers: { Authorization: `Bearer ${KEY}` } })
    return { port: Number(new URL(url).port), call }
  }

  it('the gateway responds 501 to any transfer coding other than chunked and sends nothing upstream', async () => {
    const { port } = await listening()
    for (const coding of [
      'gzip, chunked',
      'gzip',
      'identity',
      'gzip\r\nTransfer-Encoding: chunked',
    ])
      for (const method of ['GET', 'POST']) {
        const headers = `${HEAD}Transfer-Encoding: ${coding}\r\n\r\n`
        const { text } = await raw(
          port,
          `${method} ${PATH} HTTP/1.1\r\n${headers}0\r\n\r\n${get()}`,
        )
        expect([coding, statuses(text)]).toEqual([coding, [501]])
        expect(text).toContain('\r\nConnection: close\r\n')
        expect(text).toContain('"transfer_coding_unsupported"')
      }
    expect(seen).toEqual([])
  })

  it('the gateway responds 400 to Transfer-Encoding in HTTP/1.0, and serves no further request on the connection', async () => {
    const { port } = await listening()
    const head = `POST ${PATH} HTTP/1.0\r\n${HEAD}Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n`
    const { text } = await raw(port, `${head}0\r\n\r\n${get()}`)
    expect(statuses(text)).toEqual([400])
    expect(text).toContain('\r\nConnection: close\r\n')
    expect(seen).toEqual([])
  })

  it('the gateway closes the connection after it has rejected an upgrade, and serves no request pipelined after the upgrade', async () => {
    const { port } = await listening()
    const upgrade = get('Connection: upgrade\r\nUpgrade: websocket\r\n')
    const { text } = await raw(port, get() + upgrade + get())
    expect(statuses(text)).toEqual([200, 400])
    expect(text.split('HTTP/1.1 400')[1]).toContain('\r\nConnection: close\r\n')
    expect(seen).toHaveLength(1)
  })

  it('the gateway forwards a request with 1,000 headers, and responds 431 to a request with 1,001 headers', async () => {
    const wire = await startTcpServer('HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n')
    const { port } = await listening({ ACCOUNTING_URL: `http://127.0.0.1:${wire.port}` })
    expect((await raw(port, get('A: b\r\n'.repeat(998)))).status).toBe(204)
    expect(wire.connections()).toBe(1)
    const { text } = await raw(port, get('A: b\r\n'.repeat(999)))
    expect(statuses(text)).toEqual([431])
    expect(wire.connections()).toBe(1)
  })

  it("the gateway removes the caller's trace headers, and the forwarding headers that only a proxy should set", async () => {
    const { port } = await listening()
    const names = [
      'Content_Length',
      'Proxy',
      'True-Client-IP',
      'TRUE_CLIENT_IP',
      'X-Client-IP',
      'Client-IP',
      'client_ip',
      'X-Host',
      'CF-Connecting-IP',
      'X-Listed',
      'traceparent',
      'tracestate',
    ]
    const headers = names.map((name) => `${name}: 5\r\n`).join('')
    const { status } = await raw(port, get(`${headers}Connection: X-Listed\r\nX-Kept: yes\r\n`))
    expect(status).toBe(200)
    expect(Object.keys(seen[0]?.headers ?? {}).toSorted()).toEqual([
      'authorization',
      'connection',
      'host',
      'via',
      'x-kept',
    ])
  })

  it('the gateway releases the concurrency slot of a call at its deadline, even if the response is still arriving', async () => {
    const trickling = Promise.withResolvers<() => void>()
    respond = (response) => {
      response.write('first')
      trickling.resolve(() => response.end(' last'))
    }
    const { call } = await listening({ DEADLINE_SECONDS: '1', CONCURRENT_REQUESTS: '1' })
    const slow = await call(PATH)
    const finish = await trickling.promise
    respond = (response) => void response.end('ok')
    await eventually(async () => expect((await call(PATH)).status).toBe(200))
    // At the deadline, the gateway has released the concurrency slot of the call, but has not ended the response.
    finish()
    expect(await slow.text()).toBe('first last')
  })

  it('the gateway closes the connection after the response to a caller without a valid service key', async () => {
    const { port } = await listening()
    const { text } = await raw(port, get().replace(KEY, 'wrong') + get())
    expect(statuses(text)).toEqual([401])
    expect(text).toContain('\r\nConnection: close\r\n')
    expect(seen).toEqual([])
  })
})

describe('the gateway with a plain http address of the accounting API or of the discovery document', () => {
  const fixture = (name: string): URL =>
    new URL(`../../packages/fast-http/src/client/fixtures/${name}`, import.meta.url)
  const read = (name: string): string => readFileSync(fixture(name), 'utf8')

  it.each(['http:', 'HTTP:'])(
    'the gateway does not start, and sends no token, if an https discovery document names an accounting URL with the scheme %s',
    async (scheme) => {
      const plain = await startTcpServer('')
      const document = { issuer: 'x', accounting_url: `${scheme}//localhost:${plain.port}` }
      const provider = createServer(
        { cert: read('localhost.crt.pem'), key: read('localhost.key.pem') },
        (_request, response) => void response.end(JSON.stringify(document)),
      )
      const gateway = start({
        ACCOUNTING_URL: '',
        DISCOVERY_URL: `https://localhost:${await listenOnLoopback(provider)}/x`,
        NODE_EXTRA_CA_CERTS: fileURLToPath(fixture('localhost.crt.pem')),
      })
      const { code } = await gateway.ended
      expect([code, gateway.output()]).toEqual([
        1,
        expect.stringContaining('accounting_url of the discovery document is not https'),
      ])
      expect(plain.connections()).toBe(0)
    },
  )

  it.each([
    ['ACCOUNTING_URL', { ACCOUNTING_URL: 'http://accounting.invalid' }],
    ['DISCOVERY_URL', { ACCOUNTING_URL: '', DISCOVERY_URL: 'http://provider.invalid/x' }],
  ])(
    'the gateway logs one warning at start if %s is a plain http address outside the loopback interface',
    async (name, settings) => {
      const gateway = start(settings)
      await listeningUrl(gateway)
      const warnings = gateway.output().match(/.*address uses plain http.*/g) ?? []
      expect(warnings).toHaveLength(1)
      expect(JSON.parse(warnings[0] ?? '')).toMatchObject({ level: 'warn', setting: name })
    },
  )

  it('the gateway logs no warning for a plain http address on the loopback interface', async () => {
    const gateway = start({})
    await listeningUrl(gateway)
    expect(gateway.output()).not.toContain('address uses plain http')
  })
})
