// Sends the largest body that each door accepts, in the shapes that take parsers longest. Prints for each door and shape
// the processor time of the process, the longest time in which a small call to it had to wait, and the processor time that
// the process used in one such wait, which does not depend on what else the machine does. If that is more than 100 ms, the
// exit code is 1.
//   npm run bench -- hostile [--rounds 3] [--door bulk]
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { Worker } from 'node:worker_threads'
import setupBackends from '@integration-host/tests/backends'
import { type ServiceName, startSystem } from '@integration-host/tests/system'
import { connectCompany } from '@integration-host/tests/user-actions'
import { type Format, shapes } from './hostile/shapes.ts'
import type { Waits } from './hostile/probe.worker.ts'
import { processorMs } from './support/process-usage.ts'
import { median } from './support/statistics.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    door: { type: 'string', default: '' },
  },
})
const MAX_WAIT_MS = 100
const REALM = '9341453908000001'
const MIB = 1_048_576
const PROBE = new URL('hostile/probe.worker.ts', import.meta.url)
const probes = new Map<ServiceName, Worker>()

interface HostileDoor {
  readonly name: string
  readonly service: ServiceName
  readonly path: string
  readonly bytes: number
  readonly format: Format
}

await using opened = new AsyncDisposableStack()
opened.defer(await setupBackends())
const system = opened.use(await startSystem())
system.start('webhook-receiver')
await system.ready('webhook-receiver')
await (await connectCompany(system, REALM)).body?.cancel()

const transactions = '/processes/OrderProcess/transactions'
const transaction = { before: '{"TransactionID":"a","InitialData":', after: '}', bytes: 262_144 }
const grant = { before: '{"Realm":"1","RefreshToken":', after: '}', bytes: 8_192 }
const whole = { kind: 'value', before: '', after: '' } as const
const company = `/v3/company/${REALM}`
const doors: readonly HostileDoor[] = [
  {
    name: 'a transaction',
    service: 'coordinator',
    path: transactions,
    bytes: 262_144,
    format: { kind: 'value', ...transaction },
  },
  {
    name: 'bulk, lines',
    service: 'coordinator',
    path: `${transactions}/bulk`,
    bytes: 12 * MIB,
    format: { kind: 'lines', ...transaction },
  },
  {
    name: 'bulk, an array',
    service: 'coordinator',
    path: `${transactions}/bulk`,
    bytes: 12 * MIB,
    format: { kind: 'array', ...transaction },
  },
  { name: 'imports', service: 'token-service', path: '/imports', bytes: 6 * MIB, format: whole },
  {
    name: 'grants, lines',
    service: 'token-service',
    path: '/imports/grants',
    bytes: 4 * MIB,
    format: { kind: 'lines', ...grant },
  },
  {
    name: 'grants, an array',
    service: 'token-service',
    path: '/imports/grants',
    bytes: 4 * MIB,
    format: { kind: 'array', ...grant },
  },
  {
    name: 'an authorization',
    service: 'token-service',
    path: '/authorizations',
    bytes: 16_384,
    format: whole,
  },
  {
    name: 'a webhook',
    service: 'webhook-receiver',
    path: '/webhooks/intuit',
    bytes: MIB,
    format: whole,
  },
  {
    name: 'a batch',
    service: 'accounting-gateway',
    path: `${company}/batch`,
    bytes: MIB,
    format: whole,
  },
  {
    name: 'an object of the books',
    service: 'sandbox-provider',
    path: `${company}/invoice`,
    bytes: MIB,
    format: whole,
  },
]

const rows: Record<string, Record<string, string | number>> = {}
let isTooLong = false
for (const door of doors.filter(({ name }) => name.includes(values.door)))
  for (const [shape, make] of Object.entries(shapes)) {
    const body = Buffer.from(make(door.format, door.bytes))
    const measured: Awaited<ReturnType<typeof measure>>[] = []
    for (let round = 0; round < Number(values.rounds); round += 1)
      measured.push(await measure(door, body))
    const busyMs = median(measured.map((one) => one.busyMs))
    isTooLong ||= busyMs > MAX_WAIT_MS
    rows[`${door.name}: ${shape}`] = {
      bytes: body.length,
      status: measured[0]?.status ?? 0,
      'processor ms': Math.round(median(measured.map((one) => one.processorMs))),
      'longest wait ms': Math.round(median(measured.map((one) => one.waitMs))),
      'processor ms in one wait': Math.round(busyMs),
    }
  }
await Promise.all([...probes.values()].map((probe) => probe.terminate()))
console.table(rows)
console.log(
  isTooLong
    ? `A call had to wait for more than ${MAX_WAIT_MS} ms of processor time.`
    : `No call had to wait for more than ${MAX_WAIT_MS} ms of processor time.`,
)
process.exitCode = isTooLong ? 1 : 0

/** Sends the body once, while another thread sends small calls to the same service. */
async function measure({ service, path, format }: HostileDoor, body: Buffer) {
  const url = system.url(service)
  const { pid } = system.service(service)
  const headers = {
    Authorization: `Bearer ${system.serviceKey}`,
    'Content-Type': format.kind === 'lines' ? 'application/x-ndjson' : 'application/json',
    ...(service === 'webhook-receiver' && {
      'intuit-signature': createHmac('sha256', system.verifierToken).update(body).digest('base64'),
    }),
  }
  const probe =
    probes.get(service) ?? new Worker(PROBE, { workerData: { url: `${url}/health/live`, pid } })
  probes.set(service, probe)
  await longestWaits(probe)
  await delay(50)
  await longestWaits(probe)
  const before = processorMs(pid)
  const response = await fetch(url + path, { method: 'POST', headers, body })
  await response.text()
  return {
    status: response.status,
    processorMs: processorMs(pid) - before,
    ...(await longestWaits(probe)),
  }
}

/** Resolves with the longest waits of small calls since the previous request. */
async function longestWaits(probe: Worker): Promise<Waits> {
  probe.postMessage('report')
  const [waits] = (await once(probe, 'message')) as [Waits]
  return waits
}
