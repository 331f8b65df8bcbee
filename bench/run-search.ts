// Measures the search for runs among 10,000,000 finished and 10,000 unfinished runs (the constants ROWS and
// UNFINISHED): the duration of the first page and of the following pages for every filter. Prints a table.
import setupBackends from '@integration-host/tests/backends'
import { startSystem } from '@integration-host/tests/system'
import { Client } from 'pg'
import { quantile } from './support/statistics.ts'

const ROWS = Number(process.env['ROWS'] ?? 10_000_000)
const UNFINISHED = Number(process.env['UNFINISHED'] ?? 10_000)
const ROWS_PER_STATEMENT = 250_000
const LIMIT = 50
/** For each filter, the number of times that the first page is read, and the number of further pages that are read. */
const FIRST_PAGES = 60
const LATER_PAGES = 20

await using opened = new AsyncDisposableStack()
opened.defer(await setupBackends())
const system = opened.use(await startSystem([]))
// The sweeper and the coordinator's audit of its tables are disabled while pages are measured.
system.start('coordinator', { REMOTE_PULL_SECONDS: '86400', LOCAL_PULL_SECONDS: '3600' })
await system.ready('coordinator')

const filledFrom = performance.now()
await fill()
console.log(`Filled in ${Math.round((performance.now() - filledFrom) / 1_000)} s.`)

const ofProcess = '/processes/OrderProcess/transactions'
const all = '/transactions'
const hourAgo = new Date(Date.now() - 3_600_000).toISOString()
const monthAgo = new Date(Date.now() - 30 * 86_400_000).toISOString()
const halfYearAgo = new Date(Date.now() - 182 * 86_400_000).toISOString()
const filters: readonly string[] = [
  `${ofProcess}?`,
  `${all}?`,
  `${all}?order=updated`,
  ...['Completed', 'Failed', 'Cancelled', 'Queued', 'Retrying', 'Waiting'].flatMap((status) => [
    `${ofProcess}?status=${status}`,
    `${all}?status=${status}`,
  ]),
  `${all}?status=Failed&status=Retrying`,
  `${all}?status=Failed&order=updated`,
  `${all}?status=Retrying&order=updated`,
  `${all}?step=order`,
  `${all}?step=csv`,
  `${all}?step=none`,
  `${all}?class=http_503`,
  `${all}?class=http_418`,
  `${all}?class=http_503&status=Failed&from=${monthAgo}`,
  `${all}?version=50`,
  `${ofProcess}?version=7`,
  `${all}?version=rare`,
  `${all}?version=none`,
  `${all}?version=7&version=rare&status=Failed`,
  `${all}?version=7&step=none`,
  `${all}?version=50&order=updated`,
  `${all}?version=rare&order=updated`,
  `${all}?realm=realm-7`,
  `${all}?realm=realm-7&status=Failed`,
  `${all}?realm=realm-7&order=updated`,
  `${all}?realm=realm-7&order=updated&since=${hourAgo}`,
  `${all}?realm=none`,
  `${all}?waitingFor=ACC-realm-7`,
  `${all}?inDoubt=true`,
  `${all}?inDoubt=true&status=Failed`,
  `${all}?inDoubt=false`,
  `${all}?idPrefix=run-1234`,
  `${ofProcess}?idPrefix=run-12345`,
  `${all}?idPrefix=run-`,
  `${all}?idPrefix=none`,
  `${all}?tag=batch:77`,
  `${all}?tag=plan:gold`,
  `${all}?tag=plan:gold&tag=batch:77`,
  `${all}?tag=none:none`,
  `${all}?tag=plan:gold&order=updated`,
  `${all}?from=${halfYearAgo}&until=${monthAgo}`,
  `${all}?since=${hourAgo}`,
  `${all}?since=${hourAgo}&order=updated`,
  `${all}?status=Completed&step=none&order=updated`,
]
const table: Record<string, Record<string, string | number>> = {}
for (const filter of filters) {
  const shown = filter.replace(ofProcess, 'process').replace(all, 'all')
  table[shown.replaceAll(/=(20\d\d-[^&]*)/g, '=…')] = await measure(filter)
}
console.table(table)

/**
 * Inserts runs of four processes with 1,000 realms. The runs are spread over a year, in which each process has 50
 * successive definition versions. One run in ten has no realm, one in ten has no version, one in ten has tags, one in
 * fifty failed, and one in a hundred was cancelled.
 */
async function fill(): Promise<void> {
  const client = new Client({ connectionString: system.databaseUrl })
  await client.connect()
  try {
    for (let from = 0; from < ROWS; from += ROWS_PER_STATEMENT)
      await client.query(
        `insert into "Order_Header" ("Process", "TransactionID", "Status", "StepName", "InitialData", "Realm",
          "Version", "Attempt", "InDoubt", "NextAttemptAt", "NextSweepAt", "LastError", "ErrorClass", "CreatedAt",
          "UpdatedAt", "CompletedAt", "Tags", "EndedAs", "EndedClass", "EndedInDoubt",
          "DefinitionVersion")
        select process, 'run-' || n, status, case when ended is null then 'csv' else 'order' end,
          jsonb_build_object('Order', n, 'Customer', md5(n::text)), realm, 6, 1, doubt, null, now() + interval '1 day',
          case when class is not null then 'GET x responded with ' || class end, class, at,
          at + interval '20 s', at + interval '20 s', tags, ended,
          case when ended is not null then coalesce(class, '') end,
          case when ended is not null then doubt end, version
        from (select n, (array['OrderProcess', 'OrderProcess', 'Invoices', 'Payments', 'Reports'])[1 + n % 5] as process,
            case when n % 50 = 0 then 'Failed' when n % 100 = 1 then 'Cancelled' else 'Completed' end as status,
            case when n % 50 = 0 then 'Failed' when n % 100 = 1 then 'Cancelled' end as ended,
            case when n % 50 = 0 then (array['http_503', 'http_400', 'http_404', 'step_threw', 'timeout'])[1 + n / 50 % 5] end as class,
            n % 1000 = 0 as doubt,
            case when n % 10 <> 3 then 'realm-' || hashint8(n) % 500 end as realm,
            case when n % 100000 = 7 then 'rare' when n % 10 <> 9 then (1 + n * 50 / $3::bigint)::text end as version,
            case when n % 10 = 4 then jsonb_build_object('batch', (n / 1000)::text, 'plan', 'gold') end as tags,
            now() - interval '365 days' * (1 - n::float8 / $3::bigint) as at
          from generate_series($1::bigint, $2::bigint) n) r`,
        [from, Math.min(ROWS, from + ROWS_PER_STATEMENT) - 1, ROWS],
      )
    // Unfinished runs are spread over the last month. They are not due, so the coordinator does not touch them.
    await client.query(
      `insert into "Order_Header" ("Process", "TransactionID", "Status", "StepName", "InitialData", "Realm",
        "InDoubt", "NextAttemptAt", "NextSweepAt", "WaitingFor", "LastError", "ErrorClass", "CreatedAt", "UpdatedAt")
      select (array['OrderProcess', 'Invoices'])[1 + n % 2], 'unfinished-' || n, status, 'report', '{}',
        'realm-' || n % 500, n % 100 = 0, now() + interval '1 day', now() + interval '1 day',
        case when status = 'Waiting' then 'ACC-realm-' || n % 500 end,
        case when status = 'Retrying' then 'busy' end, case when status = 'Retrying' then 'http_503' end,
        now() - interval '30 days' * random(), now() - interval '1 day' * random()
      from (select n, (array['Queued', 'Retrying', 'Waiting', 'Running'])[1 + n / 7 % 4] as status
        from generate_series(1, $1::bigint) n) r`,
      [UNFINISHED],
    )
    for (const name of ['Order_Header', 'Order_Tag']) await client.query(`vacuum analyze "${name}"`)
    await client.query('checkpoint')
  } finally {
    await client.end()
  }
}

interface Page {
  readonly items: readonly unknown[]
  readonly next_cursor: string | null
}

async function timed(path: string): Promise<Page & { readonly ms: number }> {
  const startedAt = performance.now()
  const response = await system.call(`${system.url('coordinator')}${path}&limit=${LIMIT}`)
  const page = (await response.json()) as Page
  if (response.status !== 200) throw new Error(`${path}: ${JSON.stringify(page)}`)
  return { ms: performance.now() - startedAt, ...page }
}

/** Measures the first page of a filter, and then further pages. */
async function measure(path: string): Promise<Record<string, string | number>> {
  let page = await timed(path)
  const found = page.items.length
  const first: number[] = []
  for (let n = 0; n < FIRST_PAGES; n += 1) first.push((await timed(path)).ms)
  const later: number[] = []
  while (later.length < LATER_PAGES && page.next_cursor !== null) {
    page = await timed(`${path}&cursor=${page.next_cursor}`)
    later.push(page.ms)
  }
  return {
    found,
    'p50, ms': quantile(first, 0.5).toFixed(1),
    'p95, ms': quantile(first, 0.95).toFixed(1),
    'later p95, ms': later.length === 0 ? '' : quantile(later, 0.95).toFixed(1),
    more: page.next_cursor === null ? '' : 'yes',
  }
}
