/**
 * Tests `GET /events` of a real coordinator with clients that read slowly or not at all, and with more clients than
 * allowed.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { startSystem, type System } from '../support/system.ts'

const MAX_WATCHERS = 100
const PROCESS = 'OrderProcess'
const ORDERS = 300
/**
 * The maximum number of rounds until all clients that read nothing are disconnected. In each round, orders with 2 MB
 * of events are queued.
 */
const MAX_ROUNDS = 10

let system: System
const sockets = new Set<Socket>()

beforeAll(async () => {
  system = await startSystem(['coordinator', 'demo-api'])
  await system.ready('coordinator', 'demo-api')
})
afterAll(() => system[Symbol.asyncDispose]())

/** Opens `/events` and resolves with the response status. Afterwards nothing is read from the connection. */
async function openWithoutReading(): Promise<{ socket: Socket; head: string; status: number }> {
  const { hostname, port } = new URL(system.url('coordinator'))
  const socket = connect(Number(port), hostname)
  sockets.add(socket)
  socket.on('error', () => {}) // the coordinator resets a connection that it cuts off
  socket.write(
    `GET /events HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${system.serviceKey}\r\n\r\n`,
  )
  const [head] = (await once(socket, 'data')) as [Buffer]
  socket.pause()
  return {
    socket,
    head: head.toString(),
    status: Number(/^HTTP\/1\.1 (\d+)/.exec(head.toString())?.[1]),
  }
}

function closeSockets(): void {
  for (const socket of sockets) socket.destroy()
  sockets.clear()
}

async function metric(name: string): Promise<number> {
  const text = await (await fetch(`${system.url('coordinator')}/metrics`)).text()
  const lines = text.split('\n').filter((line) => line.startsWith(`${name}{`))
  return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0)
}

/** Queues orders and resolves with their ids. The ids are long, so that the events have many bytes. */
async function queueOrders(count: number): Promise<readonly string[]> {
  const run = crypto.randomUUID()
  const ids = Array.from({ length: count }, (_, n) => `${run}-${n}-`.padEnd(128, '漢'))
  const response = await system.call(
    `${system.url('coordinator')}/processes/${PROCESS}/transactions/bulk`,
    {
      method: 'POST',
      headers: { 'Content-Type': 'application/x-ndjson' },
      body: ids.map((id) => JSON.stringify({ TransactionID: id, InitialData: '1' })).join('\n'),
    },
  )
  expect(await response.json()).toMatchObject({ queued: count })
  return ids
}

/** Resolves when `count` orders have been completed since the coordinator was started. */
const completed = async (count: number): Promise<void> =>
  eventually(
    async () => {
      const { headers } = (await (
        await system.call(`${system.url('coordinator')}/integrity`)
      ).json()) as { headers: Record<string, number> }
      expect(headers['Completed']).toBe(count)
    },
    { seconds: 120, everyMs: 200 },
  )

it('GET /events rejects the 101st client with 503 and Retry-After, and accepts a client after another has disconnected', async () => {
  const watchers = await Promise.all(Array.from({ length: MAX_WATCHERS }, openWithoutReading))
  expect(new Set(watchers.map(({ status }) => status))).toEqual(new Set([200]))
  const rejected = await system.call(`${system.url('coordinator')}/events`)
  expect([rejected.status, rejected.headers.get('Retry-After')]).toEqual([503, '5'])
  expect(await rejected.json()).toMatchObject({ code: 'too_many_watchers' })
  watchers[0]?.socket.destroy()
  await eventually(async () => {
    const { status, socket } = await openWithoutReading()
    socket.destroy()
    expect(status).toBe(200)
  })
  closeSockets()
  await eventually(async () => expect(await metric('coordinator_event_watchers')).toBe(0))
}, 60_000)

it('while 300 clients of /events read nothing, the coordinator completes orders with bounded memory, and disconnects these clients', async () => {
  // The test first queues the same number of orders without clients. Any later growth of the memory is then caused
  // by the clients.
  await queueOrders(ORDERS)
  await completed(ORDERS)
  const memoryBefore = await metric('process_resident_memory_bytes')
  const watchers = await Promise.all(Array.from({ length: 3 * MAX_WATCHERS }, openWithoutReading))
  expect(watchers.filter(({ status }) => status === 200)).toHaveLength(MAX_WATCHERS)
  expect(watchers.filter(({ status }) => status === 503)).toHaveLength(2 * MAX_WATCHERS)
  // The kernel buffers up to 4 MB for a client that does not read. Only the bytes beyond that wait in the
  // coordinator.
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    await queueOrders(ORDERS)
    await completed((round + 2) * ORDERS)
    if ((await metric('coordinator_event_watchers')) === 0) break
  }
  await eventually(
    async () =>
      expect(await metric('coordinator_event_streams_cut_total')).toBeGreaterThanOrEqual(
        MAX_WATCHERS,
      ),
    { everyMs: 200 },
  )
  expect(await metric('coordinator_event_watchers')).toBe(0)
  const grownMegabytes = ((await metric('process_resident_memory_bytes')) - memoryBefore) / 1e6
  expect(grownMegabytes).toBeLessThan(150)
  closeSockets()
}, 240_000)

it('GET /events sends every event of a business process to a client that reads, while 20 other clients read nothing', async () => {
  const cutBefore = await metric('coordinator_event_streams_cut_total')
  const controller = new AbortController()
  const url = `${system.url('coordinator')}/events?process=${PROCESS}`
  const response = await system.call(url, { signal: controller.signal })
  const seen = new Set<string>()
  const reading = (async () => {
    let text = ''
    const decoder = new TextDecoder()
    for await (const chunk of response.body ?? []) {
      const lines = (text + decoder.decode(chunk as Uint8Array, { stream: true })).split('\n')
      text = lines.pop() ?? ''
      for (const line of lines) if (line.startsWith('id: ')) seen.add(line.slice(4))
    }
  })().catch(() => {})
  await Promise.all(Array.from({ length: 20 }, openWithoutReading))
  const ids = await queueOrders(50)
  // An order has five events: Queued, Running for each of the three steps, and Completed.
  await eventually(() => {
    for (const id of ids) {
      const prefix = `${PROCESS}/${encodeURIComponent(id)}/0/`
      expect([...seen].filter((one) => one.startsWith(prefix)).length).toBeGreaterThanOrEqual(5)
    }
  })
  expect(await metric('coordinator_event_streams_cut_total')).toBe(cutBefore)
  controller.abort()
  await reading
  closeSockets()
}, 120_000)

it('GET /events responds 404 for an unknown business process and 400 for an unknown parameter', async () => {
  const status = async (query: string) =>
    (await system.call(`${system.url('coordinator')}/events?${query}`)).status
  expect(await status('process=Unknown')).toBe(404)
  expect(await status('proces=OrderProcess')).toBe(400)
  expect(await status(`process=${PROCESS}&process=${PROCESS}`)).toBe(400)
})
