// Measures the duration of a three-step transaction on an idle coordinator with RabbitMQ and PostgreSQL.
// Prints a table.
import { setTimeout as delay } from 'node:timers/promises'
import setupBackends from '@integration-host/tests/backends'
import { startSystem } from '@integration-host/tests/system'
import { completedTransactions } from './support/completed-transactions.ts'
import { quantile } from './support/statistics.ts'

const WARM_UP = 50
const MEASURED = 400
const GAP_MS = 50

const stopBackends = await setupBackends()
const system = await startSystem(['coordinator', 'demo-api'])
const coordinator = system.url('coordinator')

// The event of the completed transaction ends the measurement. Polling would add the poll interval to the measured
// time.
const waiting = new Map<string, () => void>()
const stream = await system.call(`${coordinator}/events`)
void (async () => {
  for await (const id of completedTransactions(stream.body)) waiting.get(id)?.()
})().catch(() => {})

const acceptedMs: number[] = []
const completedMs: number[] = []
for (let n = 0; n < WARM_UP + MEASURED; n += 1) {
  const id = `latency-${n}`
  const completed = new Promise<void>((resolve) => waiting.set(id, resolve))
  const startedAt = performance.now()
  const response = await system.call(`${coordinator}/processes/OrderProcess/transactions`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ TransactionID: id, InitialData: id }),
  })
  await response.body?.cancel()
  const accepted = performance.now() - startedAt
  await completed
  if (n >= WARM_UP) {
    acceptedMs.push(accepted)
    completedMs.push(performance.now() - startedAt)
  }
  waiting.delete(id)
  await delay(GAP_MS)
}
const row = (values: readonly number[]) => ({
  'p50 ms': quantile(values, 0.5).toFixed(1),
  'p90 ms': quantile(values, 0.9).toFixed(1),
  'p99 ms': quantile(values, 0.99).toFixed(1),
})
console.table({ 'queued (202)': row(acceptedMs), 'three steps completed': row(completedMs) })

await stream.body?.cancel().catch(() => {})
await system[Symbol.asyncDispose]()
await stopBackends()
process.exit()
