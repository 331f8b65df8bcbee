import { Agent, request } from 'node:http'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { createHealth } from '../observability/health.ts'
import { createLogger } from '../observability/logger.ts'
import { createMetrics } from '../observability/metrics.ts'
import { AccessKeys } from '../access/access-keys.ts'
import { Secret } from '../secrets/secret.ts'
import { honoListener, listen } from './http-server.ts'
import { createServiceApp } from './service-app.ts'

const KEY = 'k'.repeat(32)

let opened: AsyncDisposableStack
beforeEach(() => {
  opened = new AsyncDisposableStack()
})
afterEach(() => opened.disposeAsync())

/**
 * Starts a service and returns a client. The client sends all requests over one connection until the service
 * closes this connection.
 */
async function start(keys: AccessKeys | null) {
  const logger = createLogger('test', 'silent')
  const metrics = createMetrics('test')
  const app = createServiceApp(
    { name: 'test', purpose: 'test', logger, health: createHealth(logger), metrics, keys },
    (routes) => routes.get('/thing', (c) => c.text('thing')),
  )
  const server = opened.use(
    await listen(honoListener(app), { host: '127.0.0.1', port: 0, metrics }),
  )
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  opened.defer(() => agent.destroy())
  return (path: string, headers: Record<string, string> = {}) =>
    new Promise<Record<string, unknown>>((resolve, reject) => {
      const outgoing = request(server.url + path, { agent, headers }, (incoming) => {
        incoming.resume()
        incoming.on('end', () => resolve({ ...incoming.headers, status: incoming.statusCode }))
      })
      outgoing.on('error', reject)
      outgoing.end()
    })
}

it.each(['/thing', '/health/live', '/nothing'])(
  'a service closes the connection after a request for %s without a service key',
  async (path) => {
    const get = await start(new AccessKeys([new Secret(KEY)]))
    expect(await get(path)).toMatchObject({ connection: 'close' })
    expect(await get(path, { Authorization: `Bearer ${KEY}x` })).toMatchObject({
      connection: 'close',
    })
  },
)

it('after one authenticated request, a service keeps the connection open even for requests without a service key', async () => {
  const get = await start(new AccessKeys([new Secret(KEY)]))
  const kept = { connection: 'keep-alive', 'keep-alive': 'timeout=65' }
  expect(await get('/thing', { Authorization: `Bearer ${KEY}` })).toMatchObject(kept)
  expect(await get('/health/live')).toMatchObject({ status: 200, ...kept })
  expect(await get('/thing')).toMatchObject({ status: 401, ...kept })
})

it('after a request with a valid service key, a service keeps the connection open even if the path requires no key', async () => {
  const get = await start(new AccessKeys([new Secret(KEY)]))
  expect(await get('/metrics', { Authorization: `Bearer ${KEY}` })).toMatchObject({
    connection: 'keep-alive',
  })
})

it('a service without service keys announces an idle time of five seconds for its connections', async () => {
  const get = await start(null)
  expect(await get('/thing')).toMatchObject({
    connection: 'keep-alive',
    'keep-alive': 'timeout=5',
  })
  const last = await get('/thing', { Connection: 'close' })
  expect(last).toMatchObject({ connection: 'close' })
  expect(last).not.toHaveProperty('keep-alive')
})
