import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Secret } from '@integration-host/shared/secrets/secret'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { createCompanyNames } from './company-names.ts'
import { createIntegrityCheck } from './integrity.ts'
import { createSandboxClient } from './sandbox-client.ts'
import { createServiceClient, type ServiceClient } from './service-client.ts'

it('the failure of a request says since when the service has not responded, until it responds again', async () => {
  const unused = await freePort()
  let now = Date.UTC(2026, 0, 1)
  const client = createServiceClient({
    name: 'fake',
    url: `http://127.0.0.1:${unused}`,
    key: new Secret('key'),
    canActFor: false,
    now: () => now,
  })
  const since = (time: string) => ({ code: 'service_unavailable', members: { since: time } })
  const send = () => client.send('/x', { person: 'ada' }, z.unknown())
  // The console itself reads the service at intervals, so the time is that of the first failed read.
  await expect(client.read('/x', z.unknown())).rejects.toMatchObject({
    problem: { code: 'connection_failed' },
  })
  now += 60_000
  await expect(send()).rejects.toMatchObject(since('2026-01-01T00:00:00.000Z'))
  const server = createServer((_, response) => response.writeHead(200).end('{}'))
  server.listen(unused, '127.0.0.1')
  await once(server, 'listening')
  await client.read('/x', z.unknown())
  server.close()
  server.closeAllConnections()
  await once(server, 'close')
  now += 60_000
  await expect(send()).rejects.toMatchObject(since('2026-01-01T00:02:00.000Z'))
})

it('the outcome of an action is unknown if the service has received it and sends no response, and known if nothing was sent', async () => {
  const server = createServer(({ socket }) => socket.destroy()).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const ports = [(server.address() as AddressInfo).port, await freePort()]
  const expectCode = async (index: number, method: 'GET' | 'POST' | 'DELETE', code: string) => {
    const url = `http://127.0.0.1:${ports[index]}`
    const client = createServiceClient({
      name: 'fake',
      url,
      key: new Secret('key'),
      canActFor: false,
    })
    const sent = client.send('/x', { method, person: 'ada' }, z.unknown())
    await expect(sent, method).rejects.toMatchObject({ code })
  }
  for (const method of ['POST', 'DELETE'] as const) {
    await expectCode(0, method, 'outcome_unknown')
    await expectCode(1, method, 'service_unavailable')
  }
  await expectCode(0, 'GET', 'service_unavailable')
  server.close()
  await once(server, 'close')
})

it.each([
  [502, '<h1>Bad gateway</h1>'],
  [200, '{"Another":"form"}'],
])(
  'the outcome of an action is unknown after a response with the status %i that is not of the service',
  async (status, body) => {
    const server = createServer((_, response) => response.writeHead(status).end(body))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const client = createServiceClient({
      name: 'fake',
      url: `http://127.0.0.1:${port}`,
      key: new Secret('key'),
      canActFor: false,
    })
    const send = (method: 'GET' | 'POST') =>
      client.send('/x', { method, person: 'ada' }, z.object({ Expected: z.string() }))
    await expect(send('POST')).rejects.toMatchObject({ code: 'outcome_unknown' })
    await expect(send('GET')).rejects.toMatchObject({ code: 'service_unavailable' })
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  },
)

describe('the client of a service that sends only the head of its response', () => {
  let opened: AsyncDisposableStack
  let url: string
  let client: ServiceClient

  beforeEach(async () => {
    opened = new AsyncDisposableStack()
    // The deadline of a request passes as soon as the service has sent the head of the response.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const fetched = globalThis.fetch
    vi.spyOn(globalThis, 'fetch').mockImplementation(async (...request) => {
      const response = await fetched(...request)
      vi.runAllTimers()
      return response
    })
    opened.defer(() => {
      vi.useRealTimers()
      vi.restoreAllMocks()
    })
    const server = createServer((_, response) => {
      response.writeHead(200, { 'Content-Type': 'application/json' }).flushHeaders()
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    opened.defer(async () => {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    })
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    client = createServiceClient({ name: 'fake', url, key: new Secret('key'), canActFor: false })
  })
  afterEach(() => opened.disposeAsync())

  it('a read fails as it does for a service that does not respond', async () => {
    await expect(client.read('/x', z.unknown())).rejects.toMatchObject({
      problem: { code: 'connection_failed' },
      cause: { name: 'TimeoutError' },
    })
  })

  it('a request of a person fails with service_unavailable, also one to the sandbox', async () => {
    const failure = { code: 'service_unavailable' }
    await expect(client.send('/x', { person: 'ada' }, z.unknown())).rejects.toMatchObject(failure)
    await expect(createSandboxClient(url).faults()).rejects.toMatchObject(failure)
  })

  it('companies are shown without names, and the integrity check reports that the store cannot be checked', async () => {
    expect(await createCompanyNames(client, Date.now).of(['42'])).toEqual({})
    await expect(createIntegrityCheck(client, Date.now)()).rejects.toMatchObject({
      code: 'store_unavailable',
    })
  })
})
