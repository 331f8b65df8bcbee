/**
 * Measures how long single runs of one company take while another company has a burst of runs, beside their time without
 * a burst. The step of a run calls a target that takes 20 ms. Also prints the rate of the burst. With `--against`, measures
 * another checkout in the same way, and with `--bullmq` BullMQ without groups.
 *
 *   npm run bench -- fairness [--runs 10000] [--singles 100] [--rounds 1] [--bullmq] [--against <checkout>]
 *
 * Uses the PostgreSQL, Redis and RabbitMQ on this machine's standard ports.
 */
import { once } from 'node:events'
import { mkdir, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import setupBackends from '@integration-host/tests/backends'
import { startSystem } from '@integration-host/tests/system'
import { Queue, Worker } from 'bullmq'
import { Agent, request } from 'undici'
import { completedTransactions } from './support/completed-transactions.ts'
import { OTHER_CHECKOUT, otherCheckout, THIS_CHECKOUT } from './support/checkout.ts'
import { median, quantile } from './support/statistics.ts'

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '10000' },
    singles: { type: 'string', default: '100' },
    rounds: { type: 'string', default: '1' },
    bullmq: { type: 'boolean', default: false },
    against: { type: 'string' },
  },
})
const RUNS = Number(values.runs)
const SINGLES = Number(values.singles)
/** Milliseconds between the starts of two single runs. */
const TRICKLE_MS = 50
const TARGET_MS = 20
/** The number of jobs that a worker of BullMQ processes at once, as `PREFETCH` of the coordinator. */
const CONCURRENCY = 64
const BURST = 'r1'
const SINGLE = 'r2'
const QUEUED_AT_ONCE = 5_000

await using opened = new AsyncDisposableStack()
process.env['TEST_BACKENDS'] ??= 'local'
opened.defer(await setupBackends())
const target = createServer((received, response) => {
  received.resume().on('end', () => setTimeout(() => response.end('{}'), TARGET_MS))
})
target.listen(0, '127.0.0.1')
await once(target, 'listening')
opened.defer(() => void target.close())
const address = `http://127.0.0.1:${(target.address() as AddressInfo).port}/`

/** A system that completes runs of companies. `queue` resolves when the runs are stored. */
interface Contender extends AsyncDisposable {
  queue(realm: string, ids: readonly string[]): Promise<void>
  onCompleted(listener: (id: string) => void): void
}

const contenders: Readonly<Record<string, () => Promise<Contender>>> = {
  [THIS_CHECKOUT]: () => startCoordinator({}),
  ...(values.against !== undefined && {
    [OTHER_CHECKOUT]: () => startCoordinator({ checkout: otherCheckout(values.against ?? '') }),
  }),
  ...(values.bullmq && { BullMQ: startBullmq }),
}
for (let round = 0; round < Number(values.rounds); round += 1) {
  const rows: Record<string, object> = {}
  const names = Object.keys(contenders)
  for (const name of round % 2 === 0 ? names : names.toReversed()) {
    await using contender = await contenders[name]?.()
    if (contender !== undefined) rows[name] = await measure(contender)
  }
  console.table(rows)
}

/** Measures the single runs without and with the burst, and the burst. */
async function measure(contender: Contender): Promise<object> {
  const waiting = new Map<string, () => void>()
  contender.onCompleted((id) => waiting.get(id)?.())
  const completed = (id: string): Promise<void> =>
    new Promise((resolve) => waiting.set(id, resolve))
  const single = async (): Promise<number> => {
    const id = crypto.randomUUID()
    const startedAt = performance.now()
    const end = completed(id)
    await contender.queue(SINGLE, [id])
    await end
    return performance.now() - startedAt
  }
  const trickle = async (count: number): Promise<number[]> => {
    const latencies: Promise<number>[] = []
    for (let n = 0; n < count; n += 1) {
      latencies.push(single())
      await delay(TRICKLE_MS)
    }
    return Promise.all(latencies)
  }
  await trickle(SINGLES / 2) // a warm-up
  const idle = await trickle(SINGLES)
  const ids = Array.from({ length: RUNS }, () => crypto.randomUUID())
  const startedAt = performance.now()
  const burst = Promise.all(ids.map(completed))
  for (let at = 0; at < RUNS; at += QUEUED_AT_ONCE)
    await contender.queue(BURST, ids.slice(at, at + QUEUED_AT_ONCE))
  const busy = await trickle(SINGLES)
  await burst
  const seconds = (performance.now() - startedAt) / 1_000
  return {
    'idle p50 ms': median(idle).toFixed(0),
    'idle p95 ms': quantile(idle, 0.95).toFixed(0),
    'in the burst p50 ms': median(busy).toFixed(0),
    'in the burst p95 ms': quantile(busy, 0.95).toFixed(0),
    'p95 / idle p95': (quantile(busy, 0.95) / quantile(idle, 0.95)).toFixed(1),
    'burst, runs/s': (RUNS / seconds).toFixed(0),
  }
}

async function startCoordinator(options: { readonly checkout?: string }): Promise<Contender> {
  const stack = new AsyncDisposableStack()
  const system = stack.use(await startSystem([], options))
  const folder = join(system.dataDir, 'processes')
  await mkdir(folder, { recursive: true })
  await writeFile(
    join(folder, 'fair.ts'),
    `import { defineProcess } from 'integration-host'
export default defineProcess('Fair').step('a', (step) =>
  step.execute({ url: '${address}', method: 'POST' }))
`,
  )
  const coordinator = system.start('coordinator', { PROCESSES: folder, LOG_LEVEL: 'warn' })
  await system.ready('coordinator')
  const stream = await system.call(`${coordinator.url}/events`)
  stack.defer(() => stream.body?.cancel().catch(() => {}))
  const headers = {
    Authorization: `Bearer ${system.serviceKey}`,
    'Content-Type': 'application/x-ndjson',
  }
  return {
    async queue(Realm, ids) {
      const { statusCode, body } = await request(
        `${coordinator.url}/processes/Fair/transactions/bulk`,
        {
          method: 'POST',
          headers,
          body: ids
            .map((TransactionID) => JSON.stringify({ TransactionID, InitialData: null, Realm }))
            .join('\n'),
        },
      )
      const text = await body.text()
      if (statusCode >= 300) throw new Error(`the runs were not queued: ${statusCode} ${text}`)
    },
    onCompleted(listener) {
      void (async () => {
        for await (const id of completedTransactions(stream.body)) listener(id)
      })().catch(() => {})
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}

async function startBullmq(): Promise<Contender> {
  const { hostname, port } = new URL(process.env['TEST_REDIS_URL'] ?? 'redis://127.0.0.1:6379')
  const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null }
  const name = `fair-${crypto.randomUUID()}`
  const queue = new Queue(name, { connection })
  const agent = new Agent({ connections: CONCURRENCY })
  let listener: (id: string) => void = () => {}
  const worker = new Worker(
    name,
    async ({ id }) => {
      const { body } = await request(address, { method: 'POST', dispatcher: agent })
      await body.dump()
      return id
    },
    { connection, concurrency: CONCURRENCY },
  )
  worker.on('completed', ({ id }) => listener(id ?? ''))
  return {
    async queue(realm, ids) {
      await queue.addBulk(
        ids.map((jobId) => ({
          name: 'a',
          data: { realm },
          opts: { jobId, removeOnComplete: true },
        })),
      )
    },
    onCompleted: (added) => void (listener = added),
    async [Symbol.asyncDispose]() {
      await worker.close()
      await queue.obliterate({ force: true })
      await queue.close()
      await agent.close()
    },
  }
}
