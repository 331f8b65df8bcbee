/**
 * Measures the purge of old runs while transactions run: the rate of the purge, the slowdown of the
 * transactions, the duration of row locks, and whether the tables reuse the space of purged rows. Prints tables.
 *
 *   npm run bench -- retention [--runs 1000000] [--per-second 100] [--seconds 20] [--cycles 10]
 *
 * `--per-second 0` keeps 64 transactions in flight instead of starting them at a fixed rate, so that no processor is
 * idle during the purge. Each cycle adds a tenth of the runs to the tables, purges the runs, deletes their stubs (the
 * rows that a purge keeps), and vacuums the tables. Uses the PostgreSQL and RabbitMQ on this machine's standard ports.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import setupBackends from '@integration-host/tests/backends'
import { Client } from 'pg'
import { fill, startFilledSystem } from './order-process/finished.ts'
import { startOrderLoad } from './retention/order-load.ts'
import { startLockProbe } from './retention/lock-probe.ts'
import { residentMb } from './support/process-usage.ts'
import { quantile } from './support/statistics.ts'

const { values: args } = parseArgs({
  options: {
    runs: { type: 'string', default: '1000000' },
    'per-second': { type: 'string', default: '100' },
    seconds: { type: 'string', default: '20' },
    cycles: { type: 'string', default: '10' },
  },
})
const [runs, perSecond, seconds, cycles] = [
  args.runs,
  args['per-second'],
  args.seconds,
  args.cycles,
].map(Number) as [number, number, number, number]

// A retention of half a day. The copied runs ended a day ago, so they are purged; the runs of the load have just ended,
// so they are kept.
const PURGING = { RETENTION_COMPLETED_DAYS: '0.5', RETENTION_FAILED_DAYS: '0.5' }
const FORGETTING = { ...PURGING, DEDUPE_DAYS: '0.00001' }
const TABLES = ['Order_Header', 'Order_Item', 'Order_Attempt', 'Order_Tag']
const PROGRESS_MS = 20_000
const KEEPING = { RETENTION_COMPLETED_DAYS: '0', RETENTION_FAILED_DAYS: '0' }

process.env['TEST_BACKENDS'] ??= 'local'
await using opened = new AsyncDisposableStack()
opened.defer(await setupBackends())
const { system } = opened.use(await startFilledSystem(runs))
const sql = new Client({ connectionString: system.databaseUrl })
await sql.connect()
opened.defer(() => sql.end())

console.log('\nThe load without and with a purge')
const without = await measured(KEEPING, () => delay(seconds * 1_000))
const purge = await measured(PURGING, untilPurged)
console.table({ 'without a purge': row(without), 'with a purge': row(purge) })
console.log(
  `${runs} runs were purged in ${purge.seconds.toFixed(1)} s: ${(runs / purge.seconds).toFixed(0)}/s.`,
)
await exportAll()
await measureSizes()

/** Runs transactions during `work`, and checks the integrity of the tables every second. */
async function measured(env: Readonly<Record<string, string>>, work: () => Promise<unknown>) {
  system.start('demo-api')
  // The benchmark reserves the purge for the owner `bench` for eight seconds. The coordinator starts its purge pass
  // only after this time, when the load already runs at an even rate.
  await sql.query(
    `insert into "Order_Installation" values ('Retention', $1)
    on conflict ("Name") do update set "Value" = excluded."Value"`,
    [JSON.stringify({ Owner: 'bench', Until: new Date(Date.now() + 8_000).toISOString() })],
  )
  system.start('coordinator', { ...env, REMOTE_PULL_SECONDS: '10' })
  await system.ready('coordinator', 'demo-api')
  await using load = await startOrderLoad(system, perSecond)
  await delay(3_000)
  load.reset()
  await using probe = await startLockProbe(system.databaseUrl)
  const checks: boolean[] = []
  const checking = setInterval(() => {
    void system
      .call(`${system.url('coordinator')}/integrity`)
      .then((response) => response.json())
      .then(
        (report) => checks.push((report as { ok: boolean }).ok),
        () => checks.push(false),
      )
  }, 1_000)
  await waitForPass(env)
  load.reset()
  const startedAt = performance.now()
  await work()
  const elapsed = (performance.now() - startedAt) / 1_000
  clearInterval(checking)
  const result = {
    seconds: elapsed,
    perSecond: load.completed() / elapsed,
    latencies: load.latencies(),
    locks: probe.waits(),
    integrity: checks.every(Boolean) && checks.length > 0,
  }
  for (const name of ['coordinator', 'demo-api'] as const)
    await system.service(name).stop('SIGTERM')
  return result
}

function row({
  perSecond: rate,
  latencies,
  locks,
  integrity,
}: Awaited<ReturnType<typeof measured>>) {
  return {
    'orders per second': rate.toFixed(1),
    'p50 ms': quantile(latencies, 0.5).toFixed(0),
    'p99 ms': quantile(latencies, 0.99).toFixed(0),
    'lock p99 ms': quantile(locks, 0.99).toFixed(1),
    'lock max ms': Math.max(...locks).toFixed(1),
    integrity: integrity ? 'ok' : 'VIOLATED',
  }
}

async function waitForPass(env: Readonly<Record<string, string>>): Promise<void> {
  if (env === KEEPING) return
  while ((await purgedSoFar()) === 0) await delay(20)
}

/** Returns the number of runs that the current purge pass has purged so far; 0 if no purge pass is in progress. */
async function purgedSoFar(): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    `select "Value"::int as count from "Order_Installation" where "Name" = 'Purged OrderProcess'`,
  )
  return rows[0]?.count ?? 0
}

async function untilPurged(): Promise<void> {
  const startedAt = performance.now()
  let shownAt = startedAt
  // When the count is 0, the purge pass has ended, because the coordinator deletes the count at the end of the pass.
  for (let count; (count = await purgedSoFar()) > 0; await delay(100)) {
    if (performance.now() - shownAt < PROGRESS_MS) continue
    shownAt = performance.now()
    console.log(`${count} runs are purged after ${((shownAt - startedAt) / 1_000).toFixed(0)} s.`)
  }
  const { rows } = await sql.query<{ count: number }>(
    `select count(*)::int as count from "Order_Header" where "PurgedAt" is not null`,
  )
  if (rows[0]?.count !== runs) throw new Error(`${rows[0]?.count} of ${runs} runs were purged`)
}

/** Exports `runs` runs as a stream. Prints the duration of the export and the maximum memory of the coordinator. */
async function exportAll(): Promise<void> {
  await sql.query(`delete from "Order_Header" where "PurgedAt" is not null`)
  await fill(system.databaseUrl, runs, 'exported')
  const coordinator = system.start('coordinator', KEEPING)
  await system.ready('coordinator')
  const before = residentMb(coordinator.pid)
  let largest = before
  const watching = setInterval(() => {
    largest = Math.max(largest, residentMb(coordinator.pid))
  }, 100)
  const startedAt = performance.now()
  const response = await system.call(`${system.url('coordinator')}/transactions/export`)
  let bytes = 0
  let last = ''
  for await (const part of response.body ?? []) {
    const chunk = Buffer.from(part as Uint8Array)
    bytes += chunk.length
    last = (last + chunk.toString()).slice(-500)
  }
  clearInterval(watching)
  const elapsed = (performance.now() - startedAt) / 1_000
  const { Runs } = JSON.parse(last.trim().split('\n').at(-1) ?? '') as { Runs: number }
  console.log(
    `\nExport: ${Runs} runs, ${(bytes / 1_048_576).toFixed(0)} MB in ${elapsed.toFixed(1)} s (${(Runs / elapsed).toFixed(0)}/s); memory of the coordinator ${before.toFixed(0)} MB before, at most ${largest.toFixed(0)} MB`,
  )
  await coordinator.stop('SIGTERM')
}

/** Prints the size of the tables with their indexes for each cycle: before the purge, and after purge and vacuum. */
async function measureSizes(): Promise<void> {
  const sizes = async () => {
    const { rows } = await sql.query<{ name: string; mb: number }>(
      `select relname as name, pg_total_relation_size(oid)::float8 / 1048576 as mb from pg_class
      where relname = any($1)`,
      [TABLES],
    )
    return rows.reduce((sum, { mb }) => sum + mb, 0)
  }
  for (const name of TABLES) {
    await sql.query(`delete from "${name}" where "TransactionID" like 'exported-%'`)
    await sql.query(`vacuum full "${name}"`)
  }
  const table: Record<string, Record<string, string>> = {}
  for (let cycle = 1; cycle <= cycles; cycle += 1) {
    await fill(system.databaseUrl, Math.ceil(runs / 10), `cycle-${cycle}`)
    const full = await sizes()
    await sql.query(`delete from "Order_Installation" where "Name" = 'Retention'`)
    const coordinator = system.start('coordinator', { ...FORGETTING, REMOTE_PULL_SECONDS: '2' })
    for (;;) {
      const { rows } = await sql.query(
        `select from "Order_Header" where "TransactionID" like 'cycle-%' limit 1`,
      )
      if (rows.length === 0) break
      await delay(200)
      await sql.query(`update "Order_Installation" set "Value" = "Value" - 'PassedAt'
        where "Name" = 'Retention' and "Value" ? 'PassedAt'`)
    }
    await coordinator.stop('SIGTERM')
    for (const name of TABLES) await sql.query(`vacuum "${name}"`) // otherwise autovacuum does this later
    table[`cycle ${cycle}`] = {
      'MB full': full.toFixed(0),
      'MB after purge and vacuum': (await sizes()).toFixed(0),
    }
  }
  console.log(`\nTables and indexes with ${Math.ceil(runs / 10)} runs in each cycle`)
  console.table(table)
}
