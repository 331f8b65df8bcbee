/**
 * Measures what runs cost that wait for events. Prints the coordinator's processor time for an event beside that for a
 * step that calls a target, and the processor time of an idle coordinator before and after many runs wait.
 *
 *   npm run bench -- waits [--runs 10000] [--waiting 100000] [--seconds 60] [--source postgres|memory]
 *
 * The events are sent with 200 requests at once. The time of a step is the difference between runs of three steps and of
 * one step, divided by two, so that it contains neither the request that queues a run nor its end. The time of an event
 * contains the whole request; that of a request that reads and stores nothing is printed beside it, because an event
 * cannot cost less. Uses the PostgreSQL and RabbitMQ on this machine's standard ports.
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
import { Pool } from 'undici'
import { processorMs } from './support/process-usage.ts'

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '10000' },
    waiting: { type: 'string', default: '100000' },
    seconds: { type: 'string', default: '60' },
    source: { type: 'string', default: 'postgres' },
  },
})
const RUNS = Number(values.runs)
const WAITING = Number(values.waiting)
const SECONDS = Number(values.seconds)
const AT_ONCE = 200
const QUEUED_AT_ONCE = 5_000
const DEADLINE_MS = 600_000
/** The time in which the coordinator finishes what it does after the last request, such as sweeps. */
const SETTLE_MS = 20_000

/** The processes: one with an event, and two whose steps call the target. */
const sourceOf = (target: string): string => `import { defineProcess } from 'integration-host'
const call = (step) => step.execute({ url: '${target}', method: 'POST' })
export const waits = defineProcess('Waits').event('go')
export const one = defineProcess('One').step('a', call)
export const three = defineProcess('Three').step('a', call).step('b', call).step('c', call)
`

await using opened = new AsyncDisposableStack()
process.env['TEST_BACKENDS'] ??= 'local'
opened.defer(await setupBackends())
const target = createServer((request, response) => {
  request.resume().on('end', () => response.end('{}'))
})
target.listen(0, '127.0.0.1')
await once(target, 'listening')
opened.defer(() => void target.close())
const system = opened.use(await startSystem([]))
const folder = join(system.dataDir, 'processes')
await mkdir(folder, { recursive: true })
const address = `http://127.0.0.1:${(target.address() as AddressInfo).port}/`
const names = ['waits', 'one', 'three']
for (const name of names)
  await writeFile(
    join(folder, `${name}.ts`),
    sourceOf(address)
      .replace(`export const ${name} =`, 'export default')
      .replaceAll('export const', 'const'),
  )
const coordinator = system.start('coordinator', {
  PROCESSES: folder,
  LOG_LEVEL: 'warn',
  TRANSACTION_SOURCE: values.source,
})
await system.ready('coordinator')
const pool = opened.adopt(new Pool(coordinator.url, { connections: AT_ONCE }), (open) =>
  open.close(),
)
const headers = { Authorization: `Bearer ${system.serviceKey}`, 'Content-Type': 'application/json' }

await measureEvents(500)
await measureSteps('Three', 500)
const event = await measureEvents(RUNS)
const request = await measureRequests(RUNS, 'GET', () => '/health/live')
const one = await measureSteps('One', RUNS)
const three = await measureSteps('Three', RUNS)
const step = (three - one) / 2
const idle = await idleMs()
await queue('Waits', WAITING)
const waiting = await idleMs()
const percent = (ms: number): string => ((ms / SECONDS / 1_000) * 100).toFixed(2)
console.table({
  'CPU ms of an event': event.toFixed(3),
  'CPU ms of a request that does nothing': request.toFixed(3),
  'CPU ms of a step that calls a target': step.toFixed(3),
  'event / step': (event / step).toFixed(2),
  'core without waiting runs, %': percent(idle),
  [`core with ${WAITING} waiting runs, %`]: percent(waiting),
  'difference, %': percent(waiting - idle),
})

/** Returns the processor time of the coordinator in a period without requests, in milliseconds. */
async function idleMs(): Promise<number> {
  await delay(SETTLE_MS)
  const before = processorMs(coordinator.pid)
  await delay(SECONDS * 1_000)
  return processorMs(coordinator.pid) - before
}

/** Returns the processor time of an event in milliseconds. Each event completes a run. */
async function measureEvents(count: number): Promise<number> {
  const ids = await queue('Waits', count)
  await delay(3_000)
  const pathOf = (n: number) => `/processes/Waits/transactions/${ids[n]}/events/go`
  return measureRequests(count, 'POST', pathOf, '{"Data":true}')
}

/** Returns the processor time of a request in milliseconds. */
async function measureRequests(
  count: number,
  method: 'GET' | 'POST',
  pathOf: (n: number) => string,
  body: string | null = null,
): Promise<number> {
  const before = processorMs(coordinator.pid)
  const next = Array.from({ length: count }, (_, n) => n).values()
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (const n of next) {
        const response = await pool.request({ method, path: pathOf(n), headers, body })
        const text = await response.body.text()
        if (response.statusCode !== 200)
          throw new Error(`the request was answered with ${response.statusCode}: ${text}`)
      }
    }),
  )
  return (processorMs(coordinator.pid) - before) / count
}

/** Returns the processor time of a run in milliseconds, from its request to its end. */
async function measureSteps(process: string, count: number): Promise<number> {
  const before = processorMs(coordinator.pid)
  await queue(process, count)
  return (processorMs(coordinator.pid) - before) / count
}

/** Queues runs, and resolves when they wait or are completed. */
async function queue(process: string, count: number): Promise<string[]> {
  const done = (await counted(process)) + count
  const run = crypto.randomUUID()
  const ids = Array.from({ length: count }, (_, n) => `${run}-${n}`)
  for (let start = 0; start < count; start += QUEUED_AT_ONCE) {
    const lines = ids
      .slice(start, start + QUEUED_AT_ONCE)
      .map((TransactionID) => JSON.stringify({ TransactionID, InitialData: null }))
    const { statusCode, body } = await pool.request({
      method: 'POST',
      path: `/processes/${process}/transactions/bulk`,
      headers: { ...headers, 'Content-Type': 'application/x-ndjson' },
      body: lines.join('\n'),
    })
    const text = await body.text()
    if (statusCode >= 300) throw new Error(`the runs were not queued: ${statusCode} ${text}`)
  }
  const startedAt = performance.now()
  while ((await counted(process)) < done) {
    if (performance.now() - startedAt > DEADLINE_MS) throw new Error('the runs did not get there')
    await delay(200)
  }
  return ids
}

/** Returns how many runs have come to the end of their process, read from the coordinator's metrics. */
async function counted(process: string): Promise<number> {
  const last = { Waits: 'step="go",outcome="parked"', One: 'step="a",outcome="completed"' }[process]
  const labels = `process="${process}",${last ?? 'step="c",outcome="completed"'}`
  const text = await (await fetch(`${coordinator.url}/metrics`)).text()
  const line = text.split('\n').find((each) => each.startsWith(`coordinator_steps_total{${labels}`))
  return Number(line?.split(' ').at(-1) ?? 0)
}
