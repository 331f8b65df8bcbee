import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { chooseProxy } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import {
  startForwardProxy,
  type TestForwardProxy,
} from '@integration-host/shared/test-support/forward-proxy'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { probesOf, readEmbeddedConfig } from '../../config.ts'
import { createProbe } from './probe.ts'

let stack: AsyncDisposableStack
let proxy: TestForwardProxy
let port: number

beforeEach(async () => {
  stack = new AsyncDisposableStack()
  const server = createServer((_, response) => void response.writeHead(404).end())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  stack.defer(() => void server.close())
  stack.defer(() => server.closeAllConnections())
  port = (server.address() as AddressInfo).port
  proxy = stack.use(
    await startForwardProxy({ routes: { 'host.test:80': port, 'host.test:53': port } }),
  )
})
afterEach(() => stack.disposeAsync())

/** Runs the only probe of these settings, with the proxy for http and https. */
async function isOnline(settings: Readonly<Record<string, string>>): Promise<boolean> {
  const url = `http://${proxy.address}`
  const config = readEmbeddedConfig({
    SERVICE_API_KEY: 'k'.repeat(32),
    HTTPS_PROXY: url,
    HTTP_PROXY: url,
    ...settings,
  })
  const [probe] = probesOf(config)
  if (probe === undefined) throw new TypeError('there is no probe')
  return createProbe(probe, chooseProxy(config))(AbortSignal.timeout(5_000))
}
const tunnels = () => proxy.requests.map(({ to }) => to)

describe('an internet probe', () => {
  it.each([
    [{ INTERNET_PROBES: 'http://host.test/' }, 'host.test:80'],
    [{ INTERNET_PROBES: 'host.test:53' }, 'host.test:53'],
    [{ DISCOVERY_URL: 'http://host.test/discovery' }, 'host.test:80'],
  ])('%j leads through the forward proxy', async (settings, to) => {
    expect(await isOnline(settings)).toBe(true)
    expect(tunnels()).toEqual([to])
  })

  it.each(['http://unknown.test/', 'unknown.test:53'])(
    'reports no internet if the proxy refuses the connection to %s',
    async (INTERNET_PROBES) => expect(await isOnline({ INTERNET_PROBES })).toBe(false),
  )

  it('connects directly to loopback and to the hosts of NO_PROXY', async () => {
    expect(await isOnline({ INTERNET_PROBES: `127.0.0.1:${port}` })).toBe(true)
    // The name can only be resolved by the proxy.
    expect(await isOnline({ INTERNET_PROBES: 'host.test:53', NO_PROXY: '.test' })).toBe(false)
    expect(tunnels()).toEqual([])
  })
})
