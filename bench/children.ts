/**
 * Measures runs with children: the rate of the children beside that of the same runs without a parent and of BullMQ flows,
 * and how long a parent takes to go on after its last child. The step of a child does nothing, so that the rates are those
 * of the engines.
 *
 *   npm run bench -- children [--shapes 1x1000,100x100] [--rounds 5] [--finished 1000000] [--queued 100000] [--concurrency 64]
 *     [--no-bullmq]
 *
 * `--concurrency` is `PREFETCH` of the coordinator, and the number of jobs that a worker of BullMQ processes at once.
 * `--queued` measures nothing else than the memory of the coordinator while one parent queues that many children.
 * `--finished` first inserts that many completed children of other parents into the tables. BullMQ uses a Redis of its own
 * that makes each write durable before its reply, as PostgreSQL does (`appendfsync always`). The contenders take turns
 * within a round, and ratios compare results of the same round. Uses the PostgreSQL and RabbitMQ on this machine's
 * standard ports.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import setupBackends from '@integration-host/tests/backends'
import { type ServiceProcess, startSystem, type System } from '@integration-host/tests/system'
import { Client } from 'pg'
import type { Measured, Shape } from './children/bullmq-flows.ts'
import { startPrivateRedis } from './support/private-redis.ts'
import { residentMb } from './support/process-usage.ts'
import { median, quantile } from './support/statistics.ts'

const { values } = parseArgs({
  allowNegative: true,
  options: {
    shapes: { type: 'string', default: '1x1000,100x100' },
    rounds: { type: 'string', default: '5' },
    finished: { type: 'string', default: '0' },
    queued: { type: 'string', default: '0' },
    concurrency: { type: 'string', default: '64' },
    bullmq: { type: 'boolean', default: true },
  },
})
const SHAPES = values.shapes.split(',').map((text): Shape => {
  const [parents = 1, children = 1] = text.split('x').map(Number)
  return { parents, children }
})
const POLL_MS = 20
const DEADLINE_MS = 300_000
/** The children of the family of which `--finished` inserts copies. */
const MODEL_CHILDREN = 1_000
const FAMILIES_PER_STATEMENT = 100

/** The names are those of the demo's processes, because the queues of these are removed at the end. */
const PROCESSES = {
  line: `export default defineProcess('OrderLine').step('line', (step) => step.complete(1))`,
  order: `import line from './line.ts'
export default defineProcess('OrderProcess')
  .forEach('report', line, {
    items: (step) => Array.from({ length: step.initialData }, (_, n) => ({ id: n, data: n })),
  })
  .step('csv', (step) => step.complete(step.previous.data))`,
}

/** Runs children, or the same number of runs without a parent. */
type Contender = (shape: Shape) => Promise<Measured>

await using opened = new AsyncDisposableStack()
process.env['TEST_BACKENDS'] ??= 'local'
opened.defer(await setupBackends())
const system = opened.use(await startSystem([]))
const { url: coordinator, pid } = await startCoordinator(system)
const sql = new Client({ connectionString: system.databaseUrl })
await sql.connect()
opened.defer(() => sql.end())

const contenders: Readonly<Record<string, Contender>> = {
  'runs without a parent': plainRuns,
  children: families,
  ...(values.bullmq && { 'BullMQ flows': await startBullmq() }),
}
for (const [, run] of Object.entries(contenders)) await run({ parents: 10, children: 200 })
if (Number(values.queued) > 0) {
  await measureMemory(Number(values.queued))
  await opened.disposeAsync()
  process.exit()
}
if (Number(values.finished) > 0) await insertFinished(Number(values.finished))

const names = Object.keys(contenders)
for (const shape of SHAPES) {
  const results = new Map<string, Measured[]>(names.map((name) => [name, []]))
  for (let round = 0; round < Number(values.rounds); round += 1)
    for (const name of round % 2 === 0 ? names : names.toReversed())
      results.get(name)?.push((await contenders[name]?.(shape)) as Measured)
  const plain = results.get('runs without a parent') ?? []
  const rows = [...results].map(([name, rounds]) => {
    const wakes = rounds.flatMap(({ wakesMs }) => wakesMs)
    const count = shape.parents * shape.children
    const row = {
      'per second': median(rounds.map(({ seconds }) => count / seconds)).toFixed(0),
      '/ without a parent': median(
        rounds.map(({ seconds }, round) => (plain[round]?.seconds ?? Number.NaN) / seconds),
      ).toFixed(2),
      'wake p50 ms': wakes.length === 0 ? '' : median(wakes).toFixed(1),
      'wake p95 ms': wakes.length === 0 ? '' : quantile(wakes, 0.95).toFixed(1),
    }
    return [name, row]
  })
  console.log(`\n${shape.parents} × ${shape.children} children, ${values.finished} finished before`)
  console.table(Object.fromEntries(rows))
}

async function startCoordinator(of: System): Promise<ServiceProcess> {
  const folder = join(of.dataDir, 'processes')
  await mkdir(folder, { recursive: true })
  for (const [name, source] of Object.entries(PROCESSES))
    await writeFile(
      join(folder, `${name}.ts`),
      `import { defineProcess } from 'integration-host'\n${source}\n`,
    )
  const process = of.start('coordinator', {
    PROCESSES: folder,
    LOG_LEVEL: 'warn',
    PREFETCH: values.concurrency,
  })
  await of.ready('coordinator')
  return process
}

/** Queues runs, and waits until all runs of the coordinator have ended. Returns when this began, in epoch ms. */
async function queueAndWait(
  process: string,
  ids: readonly string[],
  InitialData: number,
): Promise<number> {
  const startedAt = Date.now()
  const response = await system.call(`${coordinator}/processes/${process}/transactions/bulk`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/x-ndjson' },
    body: ids.map((TransactionID) => JSON.stringify({ TransactionID, InitialData })).join('\n'),
  })
  if (!response.ok) throw new Error(`the runs were not queued: ${await response.text()}`)
  await response.body?.cancel()
  // Each poll first reads one run, because reading the index of the unfinished runs costs PostgreSQL more.
  const polls = [
    `select from "Order_Header" where "Process" = '${process}' and "TransactionID" = '${ids.at(-1)}' and "CompletedAt" is null`,
    'select from "Order_Header" where "CompletedAt" is null limit 1',
  ]
  for (const poll of polls)
    while ((await sql.query(poll)).rowCount !== 0) {
      if (Date.now() - startedAt > DEADLINE_MS) throw new Error('the runs have not ended')
      await delay(POLL_MS)
    }
  return startedAt
}

/** Queues the children of one parent while their process is paused, and prints the memory of the coordinator. */
async function measureMemory(children: number): Promise<void> {
  await system.call(`${coordinator}/processes/OrderLine/pause`, { method: 'POST' })
  const beforeMb = residentMb(pid)
  const startedAt = Date.now()
  await system.call(`${coordinator}/processes/OrderProcess/transactions`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ TransactionID: 'memory', InitialData: children }),
  })
  const rows: Record<string, object> = {}
  for (let stored = 0, next = 0; stored < children;) {
    await delay(POLL_MS)
    const { rows: found } = await sql.query<{ Stored: number }>(
      `select "Stored" from "Order_Family" where "Process" = 'OrderProcess' and "TransactionID" = 'memory'`,
    )
    stored = found[0]?.Stored ?? 0
    if (stored < next) continue
    const seconds = ((Date.now() - startedAt) / 1_000).toFixed(1)
    rows[`${stored} children`] = { seconds, 'resident MB': residentMb(pid).toFixed(0) }
    next = stored + children / 10
  }
  console.log(
    `\nThe coordinator has ${beforeMb.toFixed(0)} MB resident before the parent is queued`,
  )
  console.table(rows)
}

async function plainRuns({ parents, children }: Shape): Promise<Measured> {
  const ids = Array.from({ length: parents * children }, () => crypto.randomUUID())
  const startedAt = await queueAndWait('OrderLine', ids, 1)
  const { rows } = await sql.query<{ at: Date }>(
    `select max("CompletedAt") as at from "Order_Header" where "Process" = 'OrderLine' and "TransactionID" = any($1)`,
    [ids],
  )
  return { seconds: (Number(rows[0]?.at) - startedAt) / 1_000, wakesMs: [] }
}

async function families({ parents, children }: Shape): Promise<Measured> {
  const ids = Array.from({ length: parents }, () => crypto.randomUUID())
  const startedAt = await queueAndWait('OrderProcess', ids, children)
  const { rows } = await sql.query<{ at: Date; wokenAt: Date }>(
    `select max(h."CompletedAt") as at, max(a."StartedAt") as "wokenAt"
    from unnest($1::text[]) as parent (id)
    join "Order_Header" h on h."ParentProcess" = 'OrderProcess' and h."ParentTransactionID" = parent.id
      and h."ParentReplayID" = 0 and h."ParentPlace" = 'report'
    join "Order_Attempt" a on a."Process" = 'OrderProcess' and a."TransactionID" = parent.id and a."StepName" = 'csv'
    group by parent.id`,
    [ids],
  )
  return {
    seconds: (Math.max(...rows.map(({ at }) => Number(at))) - startedAt) / 1_000,
    wakesMs: rows.map(({ at, wokenAt }) => Number(wokenAt) - Number(at)),
  }
}

async function startBullmq(): Promise<Contender> {
  const redis = opened.use(await startPrivateRedis({ appendOnly: 'always' }))
  const child = opened.adopt(
    fork(join(import.meta.dirname, 'children/bullmq-flows.ts'), [redis.url, values.concurrency]),
    (one) => void one.kill('SIGKILL'),
  )
  await once(child, 'message')
  return async (shape) => {
    child.send(shape)
    const [measured] = (await once(child, 'message')) as [Measured]
    return measured
  }
}

/** Inserts copies of a family whose children have been completed, dated a day ago. */
async function insertFinished(count: number): Promise<void> {
  const id = crypto.randomUUID()
  await queueAndWait('OrderProcess', [id], MODEL_CHILDREN)
  const { rows } = await sql.query<{ table: string; columns: string; values: string }>(
    `select table_name as table, string_agg(quote_ident(column_name), ', ') as columns,
      string_agg(case when column_name in ('TransactionID', 'ParentTransactionID', 'Prefix')
        then '''copy-'' || n || ' || quote_ident(column_name) else quote_ident(column_name)
          || case when data_type like 'timestamp%' then $q$ - interval '1 day'$q$ else '' end end, ', ') as values
    from information_schema.columns
    where table_name in ('Order_Header', 'Order_Item', 'Order_Attempt', 'Order_Family') and is_identity = 'NO'
    group by table_name`,
  )
  const copies = Math.ceil(count / MODEL_CHILDREN)
  for (const { table, columns, values: copied } of rows) {
    for (let first = 1; first <= copies; first += FAMILIES_PER_STATEMENT)
      await sql.query(
        `insert into "${table}" (${columns}) select ${copied} from "${table}", generate_series($1::int, $2::int) n
        where "TransactionID" like $3 order by n`,
        [first, Math.min(first + FAMILIES_PER_STATEMENT - 1, copies), `${id}%`],
      )
    await sql.query(`vacuum analyze "${table}"`)
  }
  // The new pages are written to disk now, and not while the first rounds are measured.
  await sql.query('checkpoint')
}
