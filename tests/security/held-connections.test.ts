/**
 * Tests that connections of clients without a key do not prevent a service from responding to a caller with a key or to
 * a health probe.
 */
import { once } from 'node:events'
import { request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { connectCompany } from '../support/clients/user-actions.ts'
import { type ServiceName, serviceNames, startSystem, type System } from '../support/system.ts'

/** The maximum number of open connections that a service keeps. */
const LIMIT = 4_096
const REALM = '9341453908059889'
const KEYED = ['token-service', 'accounting-gateway', 'coordinator'] as const

let system: System
beforeAll(async () => {
  system = await startSystem([...serviceNames, 'webhook-receiver'])
  await connectCompany(system, REALM)
})
afterAll(() => system[Symbol.asyncDispose]())

let held: Held[]
beforeEach(() => {
  held = []
})
afterEach(() => {
  for (const { socket } of held) socket.destroy()
})

interface Held {
  readonly socket: Socket
  /** All bytes that the service has sent on this connection. */
  received: string
  isClosed: boolean
}

/** Opens connections and sends `text` on each of them, without waiting for responses. */
async function hold(name: ServiceName, count: number, text: string): Promise<readonly Held[]> {
  const port = Number(new URL(system.url(name)).port)
  const opened = Array.from({ length: count }, () => {
    const socket = connect({ port, host: '127.0.0.1' })
    const one: Held = { socket, received: '', isClosed: false }
    socket.on('data', (bytes: Buffer) => (one.received += bytes.toString('latin1')))
    socket.on('error', () => {})
    socket.on('close', () => (one.isClosed = true))
    socket.once('connect', () => socket.write(text))
    return one
  })
  held.push(...opened)
  // If the service closes a connection immediately, the socket may emit `close` without `connect`.
  await eventually(() =>
    expect(opened.every(({ socket, isClosed }) => isClosed || !socket.connecting)).toBe(true),
  )
  return opened
}

/**
 * Opens connections that send nothing, or only a part of a request, until the service closes some of them. From then on
 * the service has as many connections as it accepts. The number of established sockets would not show this, because the
 * kernel completes a connection before the service accepts it.
 */
async function fill(name: ServiceName): Promise<void> {
  const before = await closedBy(name, 'room')
  while ((await closedBy(name, 'room')) === before) {
    await hold(name, 200, '')
    await hold(name, 200, 'GET / HTTP/1.1\r\nX: ')
  }
}

const openOnes = (connections: readonly Held[]): readonly Held[] =>
  connections.filter(({ isClosed }) => !isClosed)

async function expectServed(name: ServiceName): Promise<void> {
  const probe = await fetch(`${system.url(name)}/health/live`, { headers: { Connection: 'close' } })
  expect([name, probe.status]).toEqual([name, 200])
  await probe.body?.cancel()
  if (!KEYED.some((keyed) => keyed === name)) return
  const call = await system.call(`${system.url(name)}/nowhere`, {
    headers: { Connection: 'close' },
  })
  expect([name, call.status]).toEqual([name, 404])
  await call.body?.cancel()
}

/** Returns the number of connections that a service has closed with the given reason. */
async function closedBy(name: ServiceName, reason: string): Promise<number> {
  const headers = { Connection: 'close' }
  const metrics = await (await fetch(`${system.url(name)}/metrics`, { headers })).text()
  const count = new RegExp(
    `^http_connections_closed_total\\{[^}]*reason="${reason}"[^}]*\\} (\\d+)$`,
    'm',
  ).exec(metrics)?.[1]
  return Number(count ?? 0)
}

const PROBE = 'GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n'
const WITHOUT_KEY = 'GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n'

describe.each(KEYED)('connections of clients without a key to %s', (name) => {
  it.each([
    ['a health probe', PROBE, 'HTTP/1.1 200 '],
    ['an unauthorized request', WITHOUT_KEY, 'HTTP/1.1 401 '],
  ])(
    'a service closes the connection of a client without a key after its response to %s',
    async (_, text, status) => {
      const connections = await hold(name, 100, text)
      await eventually(() => expect(openOnes(connections)).toEqual([]))
      for (const { received } of connections) {
        expect(received.startsWith(status)).toBe(true)
        expect(received).toMatch(/\r\nconnection: close\r\n/i)
      }
    },
  )
})

it.each(serviceNames)(
  '%s serves a health probe and an authorized call while clients that send no request hold all of its connections',
  async (name) => {
    await fill(name)
    await expectServed(name)
  },
)

describe.each(['demo-api', 'sandbox-provider', 'webhook-receiver'] as const)(
  'idle connections to %s, which has no service key',
  (name) => {
    it('a service without a service key serves a health probe while 4,096 connections are idle, and closes them after 5 s', async () => {
      const connections = await hold(name, LIMIT, PROBE)
      await expectServed(name)
      await eventually(() => expect(openOnes(connections)).toEqual([]))
      expect(await closedBy(name, 'idle')).toBeGreaterThan(0)
    })
  },
)

it.each([
  ['token-service', '/imports', 400],
  ['accounting-gateway', `/v3/company/${REALM}/invoice`, 200],
  ['coordinator', '/processes/OrderProcess/transactions', 400],
] as const)(
  'the service %s closes no connection with an authorized request in flight when idle clients reach the connection limit',
  async (name, path, status) => {
    const { port } = new URL(system.url(name))
    const outgoing = request({
      host: '127.0.0.1',
      port,
      method: 'POST',
      path,
      headers: {
        Authorization: `Bearer ${system.serviceKey}`,
        'Content-Type': 'application/json',
        'Content-Length': '2',
        Expect: '100-continue',
      },
    })
    const response = once(outgoing, 'response')
    outgoing.flushHeaders()
    await once(outgoing, 'continue')
    await fill(name)
    await expectServed(name)
    outgoing.end('{}')
    const [{ statusCode }] = (await response) as [{ statusCode: number }]
    expect(statusCode).toBe(status)
  },
)
