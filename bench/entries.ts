/**
 * Measures what the book of entries costs: the rate of runs whose steps write to a target that takes 20 ms, and the processor
 * time of the coordinator for each write, with and without entries. Prints the differences of pairs with their 95 % interval.
 *
 *   npm run bench -- entries [--pairs 9] [--runs 1500] [--delay 20]
 *
 * Both processes make the same calls. The response of one has an object with an `Id`, which is an entry; in the other
 * response the member has another name. Within a pair they take turns, and every second pair begins with the other one. Uses
 * the PostgreSQL and RabbitMQ on this machine's standard ports.
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
import { Client } from 'pg'
import { processorMs } from './support/process-usage.ts'

const { values } = parseArgs({
  options: {
    pairs: { type: 'string', default: '9' },
    runs: { type: 'string', default: '1500' },
    delay: { type: 'string', default: '20' },
  },
})
const PAIRS = Number(values.pairs)
const RUNS = Number(values.runs)
const DELAY_MS = Number(values.delay)
const REALM = '9341453908059889'
/** Each run writes two objects. */
const WRITES = 2
/** The 97.5 % quantile of Student's t distribution, by the degrees of freedom. */
const T: Readonly<Record<number, number>> = { 4: 2.776, 8: 2.306, 12: 2.179 }

const sourceOf = (name: string): string => `import { defineProcess } from 'integration-host'
const write = (step) => step.execute(
  {
    url: '/v3/company/${REALM}/${name.toLowerCase()}',
    method: 'POST',
    body: { DocNumber: step.transactionId, PrivateNote: 'a note', Line: [{ Amount: 66, DetailType: 'SalesItemLineDetail' }] },
  },
  { credential: 'ACC-${REALM}' },
)
export default defineProcess('${name}').step('a', write).step('b', write)
`

await using opened = new AsyncDisposableStack()
process.env['TEST_BACKENDS'] ??= 'local'
opened.defer(await setupBackends())
let lastId = 0
const gateway = createServer((request, response) => {
  request.resume().on('end', () => {
    lastId += 1
    const id = request.url?.endsWith('/with') === true ? 'Id' : 'Ie'
    const line = { Id: '1', Amount: 66, DetailType: 'SalesItemLineDetail' }
    const invoice = { [id]: String(lastId), SyncToken: '0', DocNumber: 'x', PrivateNote: 'a note' }
    setTimeout(() => {
      response.setHeader('Content-Type', 'application/json')
      response.end(JSON.stringify({ Invoice: { ...invoice, Line: [line] } }))
    }, DELAY_MS)
  })
})
gateway.listen(0, '127.0.0.1')
await once(gateway, 'listening')
opened.defer(() => void gateway.close())
const system = opened.use(await startSystem([]))
const folder = join(system.dataDir, 'processes')
await mkdir(folder, { recursive: true })
const names = ['With', 'Without'] as const
for (const name of names) await writeFile(join(folder, `${name}.ts`), sourceOf(name))
const coordinator = system.start('coordinator', {
  PROCESSES: folder,
  LOG_LEVEL: 'warn',
  GATEWAY_URL: `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`,
})
await system.ready('coordinator')
const database = new Client({ connectionString: system.databaseUrl })
await database.connect()
opened.defer(() => database.end())
const counted = async (text: string, ...parameters: string[]): Promise<number> => {
  const { rows } = await database.query<{ count: number }>(text, parameters)
  return rows[0]?.count ?? 0
}

interface Measured {
  readonly perSecond: number
  readonly microsPerWrite: number
}

/** Queues runs of a process, and measures until all of them have completed. */
async function measure(name: (typeof names)[number]): Promise<Measured> {
  const before = processorMs(coordinator.pid)
  const startedAt = performance.now()
  const batch = crypto.randomUUID()
  const transactions = Array.from({ length: RUNS }, (_, n) => ({
    TransactionID: `${batch}-${n}`,
    Realm: REALM,
    InitialData: null,
  }))
  const response = await system.call(
    `${system.url('coordinator')}/processes/${name}/transactions/bulk`,
    {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(transactions),
    },
  )
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`)
  await response.body?.cancel()
  for (;;) {
    const completed = await counted(
      `select count(*)::int as count from "Order_Header" where "TransactionID" like $1 and "Status" = 'Completed'`,
      `${batch}-%`,
    )
    if (completed === RUNS) break
    await delay(20)
  }
  const seconds = (performance.now() - startedAt) / 1_000
  const microsPerWrite = ((processorMs(coordinator.pid) - before) / (RUNS * WRITES)) * 1_000
  return { perSecond: RUNS / seconds, microsPerWrite }
}

/** Returns the mean of the values and their 95 % interval. */
function interval(differences: readonly number[]): string {
  const count = differences.length
  const mean = differences.reduce((sum, one) => sum + one, 0) / count
  const squares = differences.reduce((sum, one) => sum + (one - mean) ** 2, 0)
  const half = (T[count - 1] ?? 2) * Math.sqrt(squares / (count - 1) / count)
  return `${mean.toFixed(2)} [${(mean - half).toFixed(2)}, ${(mean + half).toFixed(2)}]`
}

for (const name of names) await measure(name) // warm-up
const pairs: Record<(typeof names)[number], Measured>[] = []
for (let n = 0; n < PAIRS; n += 1) {
  const order = n % 2 === 0 ? names : names.toReversed()
  const results = new Map<string, Measured>()
  for (const name of order) results.set(name, await measure(name))
  const [withEntries, without] = [results.get('With'), results.get('Without')]
  if (withEntries === undefined || without === undefined) throw new Error('nothing was measured')
  pairs.push({ With: withEntries, Without: without })
}
const entries = await counted('select count(*)::int as count from "Book_Entry"')
if (entries !== RUNS * WRITES * (PAIRS + 1)) throw new Error('entries are missing')
console.table(
  pairs.map(({ With, Without }) => ({
    'runs/s with': Math.round(With.perSecond),
    'runs/s without': Math.round(Without.perSecond),
    'CPU µs a write with': Math.round(With.microsPerWrite),
    'CPU µs a write without': Math.round(Without.microsPerWrite),
  })),
)
console.table({
  'rate, %': interval(
    pairs.map(({ With, Without }) => (With.perSecond / Without.perSecond - 1) * 100),
  ),
  'CPU µs a write': interval(
    pairs.map(({ With, Without }) => With.microsPerWrite - Without.microsPerWrite),
  ),
})
