/**
 * Measures how many messages per second of a queue `start.<Process>` one coordinator stores as runs. Prints the rate
 * and the processor time of the coordinator.
 *
 *   npm run bench -- start-messages [--rounds 5] [--messages 20000]
 *
 * OrderProcess is paused while the messages are published, so that only their intake is measured. After the intake, the
 * coordinator publishes the step messages of the runs but runs no step. The reason is that OrderProcess needs the
 * internet, and the coordinator's internet probe fails. Uses the PostgreSQL and RabbitMQ on this machine's standard
 * ports.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { START_EXCHANGE } from '@integration-host/shared/contracts/topology'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import setupBackends from '@integration-host/tests/backends'
import { startSystem } from '@integration-host/tests/system'
import { cpuSeconds, residentMb } from './support/process-usage.ts'
import { median } from './support/statistics.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    messages: { type: 'string', default: '20000' },
  },
})
const ROUNDS = Number(values.rounds)
const MESSAGES = Number(values.messages)
const DEADLINE_MS = 300_000
/** The number of messages that are published at the same time. */
const PUBLISHED_AT_ONCE = 500
/** A URL for the coordinator's internet probe. No program listens on its port, so the probe fails. */
const OFFLINE = '127.0.0.1:1'

await using opened = new AsyncDisposableStack()
process.env['TEST_BACKENDS'] ??= 'local'
opened.defer(await setupBackends())
const system = opened.use(await startSystem([]))
const coordinator = system.start('coordinator', { INTERNET_PROBES: OFFLINE, LOG_LEVEL: 'warn' })
await system.ready('coordinator')
const logger = createLogger('bench', 'silent')
const bus = opened.use(
  connectRabbitMq(new Secret(process.env['TEST_AMQP_URL'] ?? ''), {
    name: 'bench',
    dependency: createHealth(logger).dependency('rabbitmq'),
    logger,
    prefix: system.amqpPrefix,
  }),
)
await bus.ready()

await measure() // a warm-up round, in which V8 compiles the hot functions
const rates: number[] = []
const cpuMs: number[] = []
for (let round = 0; round < ROUNDS; round += 1) {
  const result = await measure()
  rates.push(result.perSecond)
  cpuMs.push(result.cpuMs)
  console.log(`${result.perSecond.toFixed(0)}/s, ${result.cpuMs.toFixed(3)} ms of CPU per message`)
}
console.table({
  [`median of ${ROUNDS} rounds`]: {
    'messages per second': Math.round(median(rates)),
    'CPU ms per message': median(cpuMs).toFixed(3),
    'MB at the end': residentMb(coordinator.pid).toFixed(0),
  },
})

async function measure() {
  await post('pause')
  const before = await storedMessages()
  await publish()
  const cpu = cpuSeconds(coordinator.pid)
  const startedAt = performance.now()
  await post('resume')
  while ((await storedMessages()) < before + MESSAGES) {
    if (performance.now() - startedAt > DEADLINE_MS) throw new Error('the messages were not stored')
    await delay(50)
  }
  const seconds = (performance.now() - startedAt) / 1_000
  return {
    perSecond: MESSAGES / seconds,
    cpuMs: ((cpuSeconds(coordinator.pid) - cpu) / MESSAGES) * 1_000,
  }
}

async function publish(): Promise<void> {
  const round = crypto.randomUUID()
  for (let start = 0; start < MESSAGES; start += PUBLISHED_AT_ONCE)
    await Promise.all(
      Array.from({ length: Math.min(PUBLISHED_AT_ONCE, MESSAGES - start) }, (_, n) =>
        bus.publish({
          exchange: START_EXCHANGE,
          routingKey: 'OrderProcess',
          messageId: `${round}-${start + n}`,
          type: 'order',
          body: { InitialData: { order: start + n, customer: 'Ada Lovelace', total: 129.5 } },
          mandatory: true,
        }),
      ),
    )
}

async function post(action: 'pause' | 'resume'): Promise<void> {
  const url = `${coordinator.url}/processes/OrderProcess/${action}`
  const response = await system.call(url, { method: 'POST' })
  if (!response.ok) throw new Error(`${action} failed: ${response.status}`)
  await response.body?.cancel()
}

/** Returns the number of messages whose runs are stored, read from the coordinator's metrics. */
async function storedMessages(): Promise<number> {
  const text = await (await fetch(`${coordinator.url}/metrics`)).text()
  const line = /^coordinator_start_messages_total\{.*result="queued".*\} (\d+)$/m.exec(text)
  return Number(line?.[1] ?? 0)
}
