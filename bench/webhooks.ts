// Measures how many signed webhooks the receiver acknowledges. The receiver publishes each event to a durable quorum
// queue and waits for RabbitMQ's confirm before it acknowledges. Prints a table with events per second and response
// times, and the memory of the receiver.
//   npm run bench -- webhooks [--seconds 10]
import { createHmac } from 'node:crypto'
import { parseArgs } from 'node:util'
import { PROVIDER_EXCHANGE } from '@integration-host/shared/contracts/provider-event'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import setupBackends from '@integration-host/tests/backends'
import { backend, startSystem } from '@integration-host/tests/system'
import { BENCH_QUEUE } from '@integration-host/tests/topology'
import { type LoadResult, saturate, steady, type Target } from './support/load.ts'
import { cpuSeconds, residentMb } from './support/process-usage.ts'

const { values } = parseArgs({ options: { seconds: { type: 'string', default: '10' } } })
const SECONDS = Number(values.seconds)
const WARM_UP_SECONDS = 3
const PER_SECOND = 1_000
const CONNECTIONS = 64
/** The number of different notifications. They are signed before the measurement. */
const NOTIFICATIONS = 500

const stopBackends = await setupBackends()
const system = await startSystem(['webhook-receiver'])
const logger = createLogger('bench', 'silent')
const bus = connectRabbitMq(new Secret(backend('TEST_AMQP_URL')), {
  name: 'bench',
  dependency: createHealth(logger).dependency('rabbitmq'),
  logger,
  prefix: system.amqpPrefix,
})
await bus.ready()
await bus.declare({
  exchanges: [{ name: PROVIDER_EXCHANGE, type: 'topic' }],
  queues: [
    {
      name: BENCH_QUEUE,
      bindings: [{ exchange: PROVIDER_EXCHANGE, routingKey: 'intuit.#' }],
    },
  ],
})
let received = 0
bus.consume(BENCH_QUEUE, { prefetch: 500, tag: 'bench' }, async () => {
  received += 1
  return 'ack'
})

const target = (eventsPerDelivery: number): Target => {
  const messages = Array.from({ length: NOTIFICATIONS }, (_, n) => {
    const body = JSON.stringify(
      Array.from({ length: eventsPerDelivery }, (_event, index) => ({
        specversion: '1.0',
        id: crypto.randomUUID(),
        source: 'intuit.bench=',
        type: 'qbo.invoice.updated.v1',
        datacontenttype: 'application/json',
        time: '2026-11-23T17:05:09.179851517Z',
        intuitentityid: String(n * eventsPerDelivery + index),
        intuitaccountid: '9341453908059889',
        data: {},
      })),
    )
    const signature = createHmac('sha256', system.verifierToken).update(body).digest('base64')
    return { headers: { 'intuit-signature': signature }, body }
  })
  return {
    origin: system.url('webhook-receiver'),
    method: 'POST',
    path: () => '/webhooks/intuit',
    headers: { 'content-type': 'application/cloudevents+json' },
    message: (n) => messages[n % NOTIFICATIONS] ?? { headers: {}, body: '' },
  }
}

const { pid } = system.service('webhook-receiver')
interface Row {
  readonly 'events/s': string
  readonly 'p50 ms': string
  readonly 'p99 ms': string
  readonly 'CPU µs per event': string
  readonly 'resident MB': string
}
const rows: Record<string, Row> = {}
let acknowledged = 0
async function measure(
  title: string,
  eventsPerDelivery: number,
  load: (target: Target) => Promise<LoadResult>,
): Promise<void> {
  const cpuBefore = cpuSeconds(pid)
  const { requests, perSecond, p50Ms, p99Ms } = await load(target(eventsPerDelivery))
  acknowledged += requests * eventsPerDelivery
  const cpu = (cpuSeconds(pid) - cpuBefore) / (requests * eventsPerDelivery)
  rows[title] = {
    'events/s': (perSecond * eventsPerDelivery).toFixed(0),
    'p50 ms': p50Ms.toFixed(1),
    'p99 ms': p99Ms.toFixed(1),
    'CPU µs per event': (cpu * 1e6).toFixed(0),
    'resident MB': residentMb(pid).toFixed(0),
  }
}

const fast = { connections: CONNECTIONS, seconds: SECONDS }
await measure('warm-up', 1, (to) => saturate(to, { ...fast, seconds: WARM_UP_SECONDS }))
delete rows['warm-up']
await measure(`${PER_SECOND} deliveries/s, 1 event each`, 1, (to) =>
  steady(to, { perSecond: PER_SECOND, seconds: SECONDS }),
)
await measure(`${CONNECTIONS} in flight, 1 event each`, 1, (to) => saturate(to, fast))
await measure(`${CONNECTIONS} in flight, 20 events each`, 20, (to) => saturate(to, fast))
console.table(rows)
while (received < acknowledged) await new Promise((done) => setTimeout(done, 50))
console.log(`${acknowledged} events acknowledged, ${received} received from the broker`)

await bus[Symbol.asyncDispose]()
await system[Symbol.asyncDispose]()
await stopBackends()
process.exit()
