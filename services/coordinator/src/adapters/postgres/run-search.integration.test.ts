import type { RunFilter } from '@integration-host/shared/contracts/run-filter'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDatabase, type TestDatabase } from '@integration-host/postgres/test-support/database'
import { openPostgresSource } from '../../../test-support/postgres-source.ts'
import { aSearch } from '../../../test-support/search.ts'
import type { RunOrder, RunPosition, RunSearch } from '../../run/run-search.ts'
import type { TransactionSource } from '../../run/transaction-source.ts'
import { searchRuns } from './statements/search-runs.ts'

const RUNS = 20_000

let database: TestDatabase
let source: TransactionSource
/** Opens a connection with the same settings as the connections of the source. */
let sql: postgres.Sql
beforeAll(async () => {
  database = await createDatabase()
  source = await openPostgresSource(database.url)
  const off = { enable_seqscan: 'off', enable_hashjoin: 'off', enable_mergejoin: 'off', jit: 'off' }
  sql = postgres(database.url, { max: 1, connection: off })
  // Of every 20 runs of three processes, 18 are completed, one has failed and one waits. Groups of a thousand runs have
  // the same creation time. One run in a thousand has a rare step, realm, error class, version and tag.
  await sql`
    insert into "Order_Header" ("Process", "TransactionID", "InitialData", "Status", "StepName", "Realm",
      "ErrorClass", "WaitingFor", "NextSweepAt", "CreatedAt", "UpdatedAt", "CompletedAt", "Tags",
      "DefinitionVersion", "LastError")
    select (array['A', 'B', 'Ä'])[1 + n % 3], 'run-' || n, '1',
      case n % 20 when 0 then 'Failed' when 1 then 'Waiting' else 'Completed' end,
      case when n % 1000 = 0 then 'rare' else 'last' end,
      case when n % 1000 < 2 then 'rare' when n % 7 > 0 then 'realm-' || n % 7 end,
      case when n % 20 = 0 then case when n % 1000 = 0 then 'rare' else 'http_503' end end,
      case when n % 20 = 1 then case when n % 1000 = 1 then 'ACC-rare' else 'ACC-1' end end,
      now() + interval '1 day', at, at + interval '1 s',
      case when n % 20 <> 1 then at + n % 50 * interval '1 minute' end,
      jsonb_build_object('plan', case when n % 1000 = 0 then 'rare' else 'gold' end),
      case when n % 1000 < 2 then 'rare' when n % 9 > 0 then 'v1' end,
      case when n % 40 = 0 then '6240 Duplicate Name: taken (POST customer responded with 400)' end
    from (select n, now() - interval '20 days' + n / 1000 * interval '1 day' as at
      from generate_series(0, ${RUNS - 1}) n) r`
  await sql`vacuum analyze "Order_Header"`
  await sql`vacuum analyze "Order_Tag"`
})
afterAll(async () => {
  await source[Symbol.asyncDispose]()
  await sql.end()
  await database[Symbol.asyncDispose]()
})

interface Plan {
  readonly 'Actual Rows': number
  readonly 'Actual Loops': number
  readonly 'Rows Removed by Filter'?: number
  readonly 'Relation Name'?: string
  readonly Plans?: readonly Plan[]
}

/** Reads a page. Returns how many table rows PostgreSQL has read for it. */
async function rowsRead(search: RunSearch): Promise<number> {
  const read = ({ Plans = [], ...plan }: Plan): number => {
    const own = plan['Actual Rows'] + (plan['Rows Removed by Filter'] ?? 0)
    const isTable = plan['Relation Name'] !== undefined
    return Plans.map(read).reduce((sum, n) => sum + n, isTable ? own * plan['Actual Loops'] : 0)
  }
  let count = 0
  const counting = Object.assign(
    (strings: TemplateStringsArray, ...values: never[]) => sql(strings, ...values),
    {
      async unsafe(text: string, parameters: string[]) {
        const rows = await sql.unsafe<{ 'QUERY PLAN': { Plan: Plan }[] }[]>(
          `explain (analyze, format json) ${text}`,
          parameters,
        )
        for (const { 'QUERY PLAN': plans } of rows)
          for (const { Plan } of plans) count += read(Plan)
        return sql.unsafe(text, parameters)
      },
    },
  )
  await searchRuns(counting as unknown as postgres.Sql, search)
  return count
}

/** Reads all pages and returns the numbers in the ids of the runs that it has found. */
async function findAll(filter: RunFilter, order: RunOrder): Promise<number[]> {
  const found: number[] = []
  let after: RunPosition | null = null
  do {
    const page = await source.search(aSearch(null, { filter, order, after, limit: 500 }))
    found.push(...page.runs.map(({ TransactionID }) => Number(TransactionID.slice(4))))
    after = page.next
  } while (after !== null)
  return found.toSorted((a, b) => a - b)
}
const numbers = (test: (n: number) => boolean): number[] =>
  Array.from({ length: RUNS }, (_, n) => n).filter(test)

describe('the search for runs in a large table', () => {
  it('for every filter of the run search, the pages contain each matching run once, even if some pages are not full', async () => {
    const isRare = (n: number): boolean => n % 1_000 === 0
    const cases: readonly [RunFilter, (n: number) => boolean][] = [
      [{ step: ['rare'] }, isRare],
      [{ class: ['rare'] }, isRare],
      [{ class: ['6240'] }, (n) => n % 40 === 0 && !isRare(n)],
      [{ class: ['6240', 'rare'] }, (n) => n % 40 === 0 || isRare(n)],
      [{ tag: ['plan:rare'] }, isRare],
      [{ tag: ['plan:gold'], step: ['rare'] }, () => false],
      [{ tag: ['plan:gold'], status: ['Failed'] }, (n) => n % 20 === 0 && !isRare(n)],
      [{ realm: ['rare'] }, (n) => n % 1_000 < 2],
      [
        { realm: ['realm-3'], status: ['Waiting'] },
        (n) => n % 7 === 3 && n % 20 === 1 && n % 1_000 !== 1,
      ],
      [{ version: ['rare'] }, (n) => n % 1_000 < 2],
      [{ version: ['v1'] }, (n) => n % 1_000 > 1 && n % 9 > 0],
      [{ version: ['v1', 'rare'], step: ['rare'] }, isRare],
      [{ version: ['v1'], status: ['Failed'] }, (n) => n % 20 === 0 && !isRare(n) && n % 9 > 0],
      [{ status: ['Failed'] }, (n) => n % 20 === 0],
      [{ status: ['Failed', 'Waiting'], step: ['rare'] }, isRare],
      [{ waitingFor: ['ACC-rare'] }, (n) => n % 1_000 === 1],
      [{ idPrefix: 'run-123' }, (n) => String(n).startsWith('123')],
      [{ idPrefix: 'run-1' }, (n) => String(n).startsWith('1')],
      [{ idPrefix: 'run-', step: ['rare'] }, isRare],
      [{}, () => true],
    ]
    for (const [filter, test] of cases)
      for (const order of ['created', 'updated'] as const) {
        const found = await findAll(filter, order)
        expect([filter, order, found]).toEqual([filter, order, numbers(test)])
      }
  })

  it('each page of the run search reads a bounded number of rows, and few rows if an index covers the filter', async () => {
    const limit = 50
    const page = 2 * (limit + 1) // each run of the page is read once in the index and once in the table
    const unfinished = RUNS / 20
    const cases: readonly [RunFilter, RunOrder, number][] = [
      [{}, 'created', 3 * page],
      [{}, 'updated', 3 * page + unfinished],
      [{ status: ['Failed'] }, 'created', 8 * page],
      [{ status: ['Waiting'] }, 'created', unfinished + page],
      [{ status: ['Waiting'] }, 'updated', unfinished + page],
      [{ status: ['Completed'] }, 'created', 4 * page],
      [{ class: ['rare'], status: ['Failed'] }, 'created', 4 * page],
      [{ class: ['rare'] }, 'created', unfinished + 4 * page],
      [{ realm: ['rare'] }, 'created', page],
      [{ realm: ['rare'] }, 'updated', 2 * page],
      [{ realm: ['none'] }, 'created', 0],
      [{ version: ['rare'] }, 'created', page],
      [{ version: ['rare'] }, 'updated', 2 * page],
      [{ version: ['v1'] }, 'created', 3 * page],
      [{ version: ['v1'], step: ['none'] }, 'created', 10_000 + page],
      [{ version: ['none'] }, 'created', 0],
      [{ version: ['v1'], status: ['Failed'], class: ['rare'] }, 'created', 4 * page],
      [{ tag: ['plan:rare'] }, 'created', 2 * page],
      [{ tag: ['plan:rare'] }, 'updated', 2 * page],
      [{ waitingFor: ['ACC-rare'] }, 'created', 2 * page],
      [{ idPrefix: 'run-123' }, 'created', 3 * page],
      [{ step: ['none'] }, 'created', 10_000 + page],
      [{ step: ['none'] }, 'updated', 10_000 + unfinished + page],
      [{ realm: ['realm-3'], step: ['none'] }, 'created', 2_000 + page],
      [{ tag: ['plan:gold'], step: ['none'] }, 'created', 4_000 + page],
      [{ status: ['Failed'], step: ['none'] }, 'created', 2_000 + page],
      [{ status: ['Failed'], class: ['6240'] }, 'created', 2_000 + page],
    ]
    const read: [RunFilter, RunOrder, boolean | number][] = []
    for (const [filter, order, most] of cases) {
      const count = await rowsRead(aSearch(null, { filter, order, limit }))
      read.push([filter, order, count <= most || count])
    }
    expect(read.filter(([, , isBounded]) => isBounded !== true)).toEqual([])
  })
})
