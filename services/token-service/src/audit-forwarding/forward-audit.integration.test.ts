import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, createServer } from 'node:net'
import { buffer, text } from 'node:stream/consumers'
import { PassThrough } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { type AuditEntry, auditStart, firstBreak } from '@integration-host/shared/contracts/audit'
import { createHealth } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import { createMetrics } from '@integration-host/shared/observability/metrics'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, describe, expect, it } from 'vitest'
import { redisStoresPerTest } from '../../test-support/redis-stores.ts'
import { openTestFile, silent, testKeys } from '../../test-support/service-fixture.ts'
import type { CredentialStore } from '../credential/credential-store.ts'
import { forwardAudit, type SendAudit } from './forward-audit.ts'
import { toStdout, toSyslog, toWebhook } from '../adapters/audit-sinks/sinks.ts'

const { openUsable, firstPrefix } = redisStoresPerTest()
const KEY = new Secret('a-secret-of-the-receiver')
/** Less than the stores of these tests keep, so that nothing is trimmed. */
const COUNT = 900

let stack = new AsyncDisposableStack()
afterEach(async () => {
  await stack.disposeAsync()
  stack = new AsyncDisposableStack()
})

/** Adds entries to the audit log. */
async function grow(store: CredentialStore, count = COUNT): Promise<void> {
  const fact = { Who: 'key erp', What: 'exported', Version: 1, Outcome: 'ok' } as const
  for (let n = 0; n < count; n += 50)
    await store.record(
      Array.from({ length: 50 }, (_, index) => ({
        ...fact,
        At: '2026-11-28T12:00:00.000Z',
        Name: `ACC-${n + index}`,
        Reason: 'für „Müller“',
      })),
    )
  while ((await store.audit(500)) > 0);
}

function forward(
  store: CredentialStore,
  send: SendAudit,
  { owner = 'a', logger = silent }: { owner?: string; logger?: Logger } = {},
) {
  const health = createHealth(silent)
  const metrics = createMetrics('test')
  const forwarding = forwardAudit({
    store,
    sink: 'stdout',
    send,
    owner,
    dependency: health.dependency('audit-sink', 'optional'),
    logger,
    metrics,
    // Shorter pauses than in production.
    sleep: (ms, signal) => delay(Math.min(ms, 20), undefined, { signal }).catch(() => {}),
  })
  stack.use(forwarding)
  const state = () => health.report().dependencies['audit-sink']
  return { stop: () => forwarding[Symbol.asyncDispose](), state, metrics }
}

/** Expects each entry at least once, the first copies in order, and hashes that chain. */
function expectWholeLog(received: readonly AuditEntry[], count = COUNT): void {
  const seen = new Map(received.map((entry) => [entry.Seq, entry]))
  const inOrder = [...seen.values()]
  expect(inOrder.map(({ Seq }) => Seq)).toEqual(Array.from({ length: count }, (_, n) => n + 1))
  expect(firstBreak(auditStart, inOrder)).toBeNull()
}
const waitFor = (received: readonly AuditEntry[], seq = COUNT) =>
  eventually(async () => expect(received.some(({ Seq }) => Seq === seq)).toBe(true))

/** Parses syslog messages framed with their length. */
function parseFrames(bytes: Buffer): AuditEntry[] {
  const entries: AuditEntry[] = []
  for (let at = 0; at < bytes.length;) {
    const space = bytes.indexOf(' ', at)
    const end = space + 1 + Number(bytes.subarray(at, space).toString())
    entries.push(parseSyslog(bytes.subarray(space + 1, end).toString()))
    at = end
  }
  return entries
}
function parseSyslog(message: string): AuditEntry {
  const [, json = ''] =
    /^<110>1 2026-11-28T12:00:00\.000Z \S+ token-service \d+ exported - (\{.*\})$/.exec(message) ??
    []
  return JSON.parse(json) as AuditEntry
}

/** Starts a TCP syslog receiver. A connection that `accepts` rejects is reset after its first bytes. */
async function tcpReceiver(accepts: () => boolean = () => true, port = 0) {
  const received: AuditEntry[] = []
  const server = createServer((socket) => {
    socket.on('error', () => {})
    if (!accepts()) socket.once('data', () => socket.resetAndDestroy())
    else void buffer(socket).then((bytes) => received.push(...parseFrames(bytes)))
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const { port: used } = server.address() as AddressInfo
  const close = () => new Promise<void>((resolve) => void server.close(() => resolve()))
  stack.defer(close)
  return { received, port: used, close, url: new URL(`tcp://127.0.0.1:${used}`) }
}

/** Starts an HTTP receiver, which responds with `status()`. */
async function httpReceiver(status: () => number = () => 204) {
  const received: AuditEntry[] = []
  const authorizations = new Set<string | undefined>()
  const server = createHttpServer((request, response) => {
    authorizations.add(request.headers.authorization)
    void text(request).then((body) => {
      const lines = body.split('\n').filter((line) => line !== '')
      const code = status()
      if (code < 300) received.push(...lines.map((line) => JSON.parse(line) as AuditEntry))
      response.writeHead(code, { Location: '/other' }).end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  stack.defer(() => new Promise<void>((resolve) => void server.close(() => resolve())))
  const { port } = server.address() as AddressInfo
  return { received, authorizations, url: `http://127.0.0.1:${port}/audit` }
}

const collect =
  (received: AuditEntry[]): SendAudit =>
  async (entries) =>
    void received.push(...entries)

describe('the audit log that is written out as it grows', () => {
  it('standard output gets a line for each entry, told from the service log by its member', async () => {
    const { store } = await openUsable()
    const output = new PassThrough()
    forward(store, toStdout(output))
    await grow(store)
    const lines: AuditEntry[] = []
    let rest = ''
    output.on('data', (chunk: Buffer) => {
      const parts = (rest + chunk.toString()).split('\n')
      rest = parts.pop() ?? ''
      for (const part of parts) lines.push((JSON.parse(part) as { audit: AuditEntry }).audit)
    })
    await waitFor(lines)
    expectWholeLog(lines)
  })

  it('a syslog receiver gets RFC 5424 messages over UDP', async () => {
    const { store } = await openUsable()
    const receiver = createSocket('udp4')
    const received: AuditEntry[] = []
    receiver.on('message', (message) => received.push(parseSyslog(message.toString())))
    receiver.bind(0, '127.0.0.1')
    await once(receiver, 'listening')
    stack.defer(() => void receiver.close())
    await grow(store, 50)
    forward(store, toSyslog(new URL(`udp://127.0.0.1:${receiver.address().port}`)))
    await waitFor(received, 50)
    expectWholeLog(received, 50)
  })

  it('a syslog receiver over TCP that was down, and resets connections, gets each entry', async () => {
    const { store } = await openUsable()
    const first = await tcpReceiver()
    await first.close()
    const { state } = forward(store, toSyslog(first.url))
    await grow(store)
    await eventually(async () =>
      expect(state()).toMatchObject({ status: 'down', reason: 'ECONNREFUSED' }),
    )
    let connections = 0
    const { received } = await tcpReceiver(() => (connections += 1) % 2 === 0, first.port)
    await waitFor(received)
    expectWholeLog(received)
    await eventually(async () => expect(state()?.status).toBe('up'))
  })

  it('an HTTP receiver gets NDJSON with the bearer token, and again what it did not accept', async () => {
    const { store } = await openUsable()
    let requests = 0
    const statuses = [503, 302, 204, 429]
    const receiver = await httpReceiver(() => statuses[requests++ % statuses.length] ?? 204)
    const { state, metrics } = forward(store, toWebhook(receiver.url, KEY))
    await grow(store)
    await waitFor(receiver.received)
    expectWholeLog(receiver.received)
    expect([...receiver.authorizations]).toEqual([`Bearer ${KEY.reveal()}`])
    await eventually(async () => expect(state()?.status).toBe('up'))
    await eventually(async () =>
      expect(await metrics.read()).toMatch(/^audit_entries_unsent\{[^}]*\} 0$/m),
    )
  })

  it('after a restart in the middle, the log continues at the stored position', async () => {
    const { store } = await openUsable()
    await grow(store)
    const received: AuditEntry[] = []
    let batches = 0
    const first = forward(store, async (entries, deadline) => {
      batches += 1
      await collect(received)(entries, deadline)
      if (batches >= 3) throw new Error('killed before the position was stored')
    })
    await eventually(async () => expect(batches).toBeGreaterThanOrEqual(3))
    await first.stop()
    const { store: again } = await openUsable(firstPrefix())
    forward(again, collect(received), { owner: 'b' })
    await waitFor(received)
    expectWholeLog(received)
    // The batch whose position was not stored was sent again, and the batches before it were not.
    expect(received.filter(({ Seq }) => Seq === 401).length).toBeGreaterThan(1)
    expect(received.filter(({ Seq }) => Seq === 400)).toHaveLength(1)
  })

  it('of two replicas one sends at a time, and the other continues when it stops', async () => {
    const { store } = await openUsable()
    const { store: other } = await openUsable(firstPrefix())
    const received: AuditEntry[] = []
    let inFlight = 0
    let most = 0
    const send: SendAudit = async (entries) => {
      most = Math.max(most, (inFlight += 1))
      await delay(5)
      received.push(...entries)
      inFlight -= 1
    }
    const one = forward(store, send, { owner: 'a' })
    forward(other, send, { owner: 'b' })
    await grow(store, 500)
    await waitFor(received, 500)
    await one.stop()
    await grow(other, COUNT - 500)
    await waitFor(received)
    expectWholeLog(received)
    expect(received).toHaveLength(COUNT)
    expect(most).toBe(1)
  })

  it('entries that were trimmed before they were sent are named in the service log', async () => {
    const { store, redis } = await openUsable()
    await grow(store, 100)
    await store.advanceAuditSink('stdout', 'other', auditStart) // changes nothing without the lease
    await store.claimAuditSink('stdout', 'x', 1_000)
    const { items } = await store.readAudit(9, 1)
    await store.advanceAuditSink('stdout', 'x', { Seq: 10, Hash: items[0]?.Hash ?? '' })
    await store.releaseAuditSink('stdout', 'x')
    await redis.xtrim('credentials:audit', 'MINID', '41-0')
    const { errors, logger } = errorLog()
    const received: AuditEntry[] = []
    forward(store, collect(received), { logger })
    await waitFor(received, 100)
    expect(received[0]?.Seq).toBe(41)
    expect(errors).toEqual([{ sink: 'stdout', after: 10, missing: 30 }])
  })

  it('if a failover has lost entries that were sent, the log is sent again from its oldest entry', async () => {
    const { store } = await openUsable()
    await grow(store, 100)
    await store.claimAuditSink('stdout', 'x', 1_000)
    await store.advanceAuditSink('stdout', 'x', { Seq: 100, Hash: 'f'.repeat(64) })
    await store.releaseAuditSink('stdout', 'x')
    const { errors, logger } = errorLog()
    const received: AuditEntry[] = []
    forward(store, collect(received), { logger })
    await waitFor(received, 100)
    expectWholeLog(received, 100)
    expect(errors).toEqual([{ sink: 'stdout', position: 100, newest: 100 }])
  })

  it('the embedded host continues at the stored position after a restart', async () => {
    const file = await openTestFile(testKeys())
    stack.defer(() => file.remove())
    await grow(file.store, 100)
    const received: AuditEntry[] = []
    const first = forward(file.store, collect(received))
    await waitFor(received, 100)
    await first.stop()
    await grow(file.store, 50)
    forward(file.store, collect(received))
    await waitFor(received, 150)
    expectWholeLog(received, 150)
    expect(received).toHaveLength(150)
  })
})

function errorLog() {
  const errors: unknown[] = []
  const logger = {
    ...silent,
    error: (data: unknown) => void errors.push(data),
  } as unknown as Logger
  return { errors, logger }
}
