// Measures how long each service takes to become ready, and the resident memory of the idle service, with real
// backends. Prints a table.
import { setTimeout as delay } from 'node:timers/promises'
import setupBackends from '@integration-host/tests/backends'
import { serviceNames, startSystem } from '@integration-host/tests/system'
import { residentMb } from './support/process-usage.ts'
import { median } from './support/statistics.ts'

const ROUNDS = 5
const IDLE_MS = 5_000

const stopBackends = await setupBackends()
// Starts and stops all services once before the measurement, so that tables and queues exist and the page cache is
// warm.
const system = await startSystem()
const rows = []
for (const name of serviceNames) {
  const readyMs: number[] = []
  const rssMb: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    await system.service(name).stop('SIGTERM')
    const startedAt = performance.now()
    const { pid } = system.start(name)
    await system.ready(name)
    readyMs.push(performance.now() - startedAt)
    if (round < ROUNDS - 1) continue
    await delay(IDLE_MS)
    rssMb.push(residentMb(pid))
  }
  rows.push({
    service: name,
    'ready, median ms': Math.round(median(readyMs)),
    'ready, worst ms': Math.round(Math.max(...readyMs)),
    'idle RSS, MB': Math.round(median(rssMb)),
  })
}
console.table(rows)
await system[Symbol.asyncDispose]()
await stopBackends()
