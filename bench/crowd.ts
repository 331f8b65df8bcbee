/**
 * Measures the cost of a crowd, which is many waiting runs of one throttled company. Also measures whether the runs of
 * another company stay as fast as without the crowd. The coordinator, the gateway, RabbitMQ, PostgreSQL and Redis are
 * real. The provider is a stub that accepts a few calls a second of the throttled company.
 *
 *   npm run bench -- crowd [--runs 5000] [--per-second 4] [--seconds 60] [--settle 30] [--profile generic]
 *     [--against <checkout>]
 *
 * The measurement has three phases. In the first phase only the other company has runs. The second phase begins with
 * the bulk request that queues the crowd, and takes `--settle` seconds. The third phase takes another `--seconds`
 * seconds. Uses the PostgreSQL, Redis and RabbitMQ on this machine's standard ports. The broker's processor time
 * includes the work for all of its clients, so no other program may use the broker meanwhile. The first phase shows how
 * much processor time the broker uses without the crowd.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import setupBackends from '@integration-host/tests/backends'
import { startSystem } from '@integration-host/tests/system'
import { Client } from 'pg'
import { startProvider } from './crowd/provider.ts'
import { processBehind } from './order-process/ports.ts'
import { processorTime } from './order-process/processor-time.ts'
import { startTokens } from './proxy/token-service.ts'
import { completedTransactions } from './support/completed-transactions.ts'
import { otherCheckout } from './support/checkout.ts'
import { quantile } from './support/statistics.ts'

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '5000' },
    'per-second': { type: 'string', default: '4' },
    seconds: { type: 'string', default: '60' },
    settle: { type: 'string', default: '30' },
    profile: { type: 'string', default: 'intuit' },
    against: { type: 'string' },
  },
})
const RUNS = Number(values.runs)
const PROCESS = 'CrowdProcess'
const THROTTLED = 'r1'
const OTHER = 'r2'
/** Milliseconds between the starts of two runs of the other company. */
const TRICKLE_MS = 500

await using opened = new AsyncDisposableStack()
process.env['TEST_BACKENDS'] ??= 'local'
opened.defer(await setupBackends())
const checkout = values.against === undefined ? {} : { checkout: otherCheckout(values.against) }
const system = opened.use(await startSystem([], checkout))
const provider = opened.use(await startProvider(THROTTLED, Number(values['per-second'])))
const tokens = opened.use(await startTokens())
const gateway = system.start('accounting-gateway', {
  ACCOUNTING_URL: provider.url,
  TOKEN_SERVICE_URL: tokens.url,
  PROVIDER_PROFILE: values.profile,
})
const coordinator = system.start('coordinator', {
  PROCESSES: fileURLToPath(new URL('crowd/processes', import.meta.url)),
})
await system.ready('accounting-gateway', 'coordinator')
const roots = {
  coordinator: coordinator.pid,
  broker: processBehind(process.env['TEST_AMQP_URL'] ?? '', 5_672),
  database: processBehind(system.databaseUrl, 5_432),
  gateway: gateway.pid,
}
const database = new Client({ connectionString: system.databaseUrl })
await database.connect()
opened.defer(() => database.end())

const waiting = new Map<string, () => void>()
const stream = await system.call(`${coordinator.url}/events`)
void (async () => {
  for await (const id of completedTransactions(stream.body)) waiting.get(id)?.()
})().catch(() => {})
opened.defer(() => stream.body?.cancel().catch(() => {}))

await trickle(5) // a warm-up
const rows = {
  'other company alone': await phase(Number(values.seconds) / 2),
  [`first ${values.settle} s of the crowd`]: await phase(Number(values.settle), queueCrowd),
  [`${values.seconds} s after them`]: await phase(Number(values.seconds)),
}
console.log(`${RUNS} runs of a company with ${values['per-second']} calls a second`)
console.table(rows)

/**
 * Queues runs of the other company for some seconds. Returns the processor time, the rates and the latencies in these
 * seconds.
 */
async function phase(seconds: number, begin: () => Promise<void> = async () => {}) {
  const before = await readings()
  const startedAt = performance.now()
  const [latencies] = await Promise.all([trickle(seconds), begin()])
  const elapsed = (performance.now() - startedAt) / 1_000
  const after = await readings()
  const share = (name: keyof typeof roots): string =>
    `${(((after.cpu[name] - before.cpu[name]) / elapsed) * 100).toFixed(1)} %`
  const completed = after.completed - before.completed
  const perRun = (count: number): string => (completed === 0 ? '' : (count / completed).toFixed(1))
  const lines = (level: string): string =>
    (((after.lines[level] ?? 0) - (before.lines[level] ?? 0)) / elapsed).toFixed(1)
  return {
    coordinator: share('coordinator'),
    broker: share('broker'),
    database: share('database'),
    gateway: share('gateway'),
    'crowd, runs/s': (completed / elapsed).toFixed(1),
    'calls/s': ((after.calls - before.calls) / elapsed).toFixed(1),
    '429/s': ((after.rejected - before.rejected) / elapsed).toFixed(1),
    'claims a run': perRun(after.claims - before.claims),
    'versions a run': perRun(after.versions - before.versions),
    'info/s': lines('info'),
    'warn/s': lines('warn'),
    'other p50 ms': quantile(latencies, 0.5).toFixed(0),
    'other p99 ms': quantile(latencies, 0.99).toFixed(0),
  }
}

/**
 * Queues a run of the other company every half second. Returns the latency of each run in milliseconds, from its
 * request to its completion. If a run is still incomplete after `seconds`, its latency is measured up to that time.
 */
async function trickle(seconds: number): Promise<readonly number[]> {
  const latencies: Promise<number>[] = []
  const until = performance.now() + seconds * 1_000
  const over = delay(seconds * 1_000)
  while (performance.now() < until - TRICKLE_MS) {
    latencies.push(runOfOther(over))
    await delay(TRICKLE_MS)
  }
  return Promise.all(latencies)
}

async function runOfOther(over: Promise<void>): Promise<number> {
  const id = `other-${crypto.randomUUID()}`
  const startedAt = performance.now()
  const completed = new Promise<void>((resolve) => waiting.set(id, resolve))
  await queue('transactions', 'application/json', transaction(id, OTHER))
  await Promise.race([completed, over])
  waiting.delete(id)
  return performance.now() - startedAt
}

function transaction(id: string, realm: string): string {
  return JSON.stringify({ TransactionID: id, Realm: realm, InitialData: {} })
}

async function queueCrowd(): Promise<void> {
  const lines = Array.from({ length: RUNS }, (_, n) => transaction(`crowd-${n}`, THROTTLED))
  await queue('transactions/bulk', 'application/x-ndjson', lines.join('\n'))
}

async function queue(path: string, type: string, body: string): Promise<void> {
  const response = await system.call(`${coordinator.url}/processes/${PROCESS}/${path}`, {
    method: 'POST',
    headers: { 'Content-Type': type },
    body,
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`POST ${path}: ${response.status} ${text}`)
}

/** Reads all counters of the processes, the database and the provider. */
async function readings() {
  const metrics = await (await fetch(`${coordinator.url}/metrics`)).text()
  const claims = [...metrics.matchAll(/^coordinator_steps_total\{.*\} (\d+)$/gm)]
  const { rows: counts } = await database.query<{ versions: string; completed: string }>(
    `select coalesce(sum("Version"), 0) as versions, count("CompletedAt") as completed
      from "Order_Header" where "Process" = $1 and "Realm" = $2`,
    [PROCESS, THROTTLED],
  )
  const lines: Record<string, number> = {}
  for (const [, level = ''] of coordinator.output().matchAll(/^\{"level":"(\w+)"/gm))
    lines[level] = (lines[level] ?? 0) + 1
  return {
    cpu: processorTime(roots).seconds as Record<keyof typeof roots, number>,
    claims: claims.reduce((sum, [, count]) => sum + Number(count), 0),
    versions: Number(counts[0]?.versions),
    completed: Number(counts[0]?.completed),
    lines,
    calls: provider.counts.calls,
    rejected: provider.counts.rejected,
  }
}
