/**
 * Measures how much clients of `GET /events` slow down orders. Prints a table with the number of orders completed per
 * second: with 0, 10 and 100 clients that read the events, and with 300 clients that read nothing. The table has
 * medians and ratios.
 *
 *   npm run bench -- events [--rounds 5] [--orders 2000]
 *   npm run bench -- events --against <checkout>     the coordinator of another checkout instead of this checkout's
 *
 * Uses the PostgreSQL and RabbitMQ on this machine's standard ports. The clients run in a separate process. On a
 * machine with few cores the clients compete with the coordinator, so the coordinator's processor time per order is
 * a better measure than the rate.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import setupBackends from '@integration-host/tests/backends'
import { startSystem } from '@integration-host/tests/system'
import { startStub } from './order-process/stub.ts'
import { otherCheckout } from './support/checkout.ts'
import { cpuSeconds, residentMb } from './support/process-usage.ts'
import { runOrders } from './support/run-orders.ts'
import { median } from './support/statistics.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    orders: { type: 'string', default: '2000' },
    against: { type: 'string' },
  },
})
const ROUNDS = Number(values.rounds)
const ORDERS = Number(values.orders)
const WATCHERS = fileURLToPath(new URL('events/watchers.ts', import.meta.url))
const scenarios = [
  { name: 'no watcher', count: 0, mode: 'read' },
  { name: '10 watchers', count: 10, mode: 'read' },
  { name: '100 watchers', count: 100, mode: 'read' },
  { name: '300 that read nothing', count: 300, mode: 'idle' },
] as const
type Scenario = (typeof scenarios)[number]

interface Measured {
  readonly perSecond: number
  /** Processor time of the coordinator for each order, in milliseconds. */
  readonly cpuMs: number
  readonly residentMb: number
}

await using opened = new AsyncDisposableStack()
process.env['TEST_BACKENDS'] ??= 'local'
opened.defer(await setupBackends())
const stub = opened.use(await startStub())
const system = opened.use(
  await startSystem(
    [],
    values.against === undefined ? {} : { checkout: otherCheckout(values.against) },
  ),
)
const coordinator = system.start('coordinator', { DEMO_API_URL: stub.url, LOG_LEVEL: 'warn' })
await system.ready('coordinator')

await runOrders(system, coordinator.url, ORDERS) // a warm-up round, in which V8 compiles the hot functions
const measured = new Map<Scenario, Measured[]>(scenarios.map((scenario) => [scenario, []]))
for (let round = 0; round < ROUNDS; round += 1)
  for (const [scenario, results] of measured) {
    const result = await measure(scenario)
    results.push(result)
    console.log(`${scenario.name}: ${result.perSecond.toFixed(0)}/s`)
  }
console.table(Object.fromEntries(scenarios.map((scenario) => [scenario.name, rowOf(scenario)])))

async function measure({ count, mode }: Scenario): Promise<Measured> {
  await using watchers = await startWatchers(count, mode)
  void watchers
  const before = cpuSeconds(coordinator.pid)
  const seconds = await runOrders(system, coordinator.url, ORDERS)
  return {
    perSecond: ORDERS / seconds,
    cpuMs: ((cpuSeconds(coordinator.pid) - before) / ORDERS) * 1_000,
    residentMb: residentMb(coordinator.pid),
  }
}

/** Starts clients of `/events`. Resolves when every client has received the response headers. */
async function startWatchers(count: number, mode: Scenario['mode']): Promise<AsyncDisposable> {
  const args = [WATCHERS, coordinator.url, system.serviceKey, String(count), mode]
  const child: ChildProcess = spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const gone = once(child, 'exit')
  if (child.stdout !== null) await once(child.stdout, 'data')
  return {
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await gone
    },
  }
}

function rowOf(scenario: Scenario): Record<string, string | number> {
  const results = measured.get(scenario) ?? []
  const alone = measured.get(scenarios[0]) ?? []
  const middle = (of: (result: Measured, index: number) => number): number =>
    median(results.map(of))
  const base = (index: number): Measured | undefined => alone[index]
  return {
    'orders per second': Math.round(middle(({ perSecond }) => perSecond)),
    'rate : no watcher': middle(
      ({ perSecond }, index) => perSecond / (base(index)?.perSecond ?? Number.NaN),
    ).toFixed(3),
    'CPU ms per order': middle(({ cpuMs }) => cpuMs).toFixed(2),
    'CPU : no watcher': middle(
      ({ cpuMs }, index) => cpuMs / (base(index)?.cpuMs ?? Number.NaN),
    ).toFixed(3),
    'MB at the end': middle((result) => result.residentMb).toFixed(0),
  }
}
