import { createServer, type IncomingMessage } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { request } from 'node:http'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { readConfig } from '../src/config.ts'
import { startDemoApi } from '../src/service.ts'

export const SERVICE_KEY = 'service-key-of-the-demo-api-fixture'

export interface CoordinatorCall {
  readonly method: string | undefined
  readonly path: string | undefined
  readonly authorization: string | undefined
  readonly body: unknown
}

/** A fake coordinator. It records its calls and sends the response that the test has set. */
export interface FakeCoordinator extends AsyncDisposable {
  readonly url: string
  readonly calls: CoordinatorCall[]
  /** Sets the response to all further calls. With `none`, the connection is closed without a response. */
  response: { status: number; code?: string; retryAfter?: string } | 'none'
}

export async function startFakeCoordinator(): Promise<FakeCoordinator> {
  const fake: Omit<FakeCoordinator, 'url'> & { url: string } = {
    url: '',
    calls: [],
    response: { status: 202 },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  const server = createServer((incoming, outgoing) => {
    void bodyOf(incoming).then((body) => {
      if (incoming.url === '/health/live') return outgoing.end('{}')
      fake.calls.push({
        method: incoming.method,
        path: incoming.url,
        authorization: incoming.headers.authorization,
        body: JSON.parse(body),
      })
      if (fake.response === 'none') return incoming.socket.destroy()
      const { status, code, retryAfter } = fake.response
      outgoing.writeHead(status, {
        'Content-Type': code === undefined ? 'application/json' : 'application/problem+json',
        ...(retryAfter !== undefined && { 'Retry-After': retryAfter }),
      })
      const problem = { type: `urn:integration-host:error:${code}`, title: code, status, code }
      return outgoing.end(code === undefined ? '{}' : JSON.stringify(problem))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  fake.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return fake
}

async function bodyOf(incoming: IncomingMessage): Promise<string> {
  let body = ''
  for await (const chunk of incoming) body += String(chunk)
  return body
}

export interface TextResponse {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly text: string
}

export interface DemoApiFixture extends AsyncDisposable {
  readonly url: string
  /** Sends a request with exactly this target and these headers. `fetch` would normalize or reject some of them. */
  send(
    target: string,
    options?: {
      readonly method?: string
      readonly headers?: Readonly<Record<string, string | string[]>>
      readonly body?: string
    },
  ): Promise<TextResponse>
}

export async function startDemoApiFixture(
  coordinatorUrl: string,
  env: Readonly<Record<string, string>> = {},
): Promise<DemoApiFixture> {
  const logger = createLogger('demo-api', 'silent')
  const service = await startDemoApi(
    readConfig({
      PORT: '0',
      COORDINATOR_URL: coordinatorUrl,
      SERVICE_API_KEY: SERVICE_KEY,
      ...env,
    }),
    { logger, health: createHealth(logger) },
  )
  const { hostname, port } = new URL(service.url)
  return {
    url: service.url,
    send: (target, { method = 'GET', headers = {}, body } = {}) =>
      new Promise((resolve, reject) => {
        const outgoing = request(
          { hostname, port, path: target, method, headers, agent: false },
          (incoming) => {
            bodyOf(incoming).then(
              (text) =>
                resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, text }),
              reject,
            )
          },
        )
        outgoing.on('error', reject)
        outgoing.end(body)
      }),
    [Symbol.asyncDispose]: () => service[Symbol.asyncDispose](),
  }
}
