import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDatabase, type TestDatabase } from '@integration-host/postgres/test-support/database'
import { openPostgresSource } from '../../../test-support/postgres-source.ts'
import { createPauseStore } from '../../run/pause.ts'
import type { TransactionSource } from '../../run/transaction-source.ts'

const COMPLETED = 101_000
const FAILED = 20_100

let database: TestDatabase
let source: TransactionSource
beforeAll(async () => {
  database = await createDatabase()
  source = await openPostgresSource(database.url)
  await insert(COMPLETED, 'Completed', null)
  await insert(FAILED, 'Failed', 'http_400')
  await insert(10, 'Retrying', 'http_503')
  await database.sql`vacuum analyze "Order_Header"`
}, 60_000)
afterAll(async () => {
  await source[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

/** Inserts runs that were queued two hours ago, one every millisecond. */
const insert = (count: number, status: string, errorClass: string | null) =>
  database.sql`
    insert into "Order_Header" ("Process", "TransactionID", "Status", "StepName", "InitialData",
      "ErrorClass", "CreatedAt", "CompletedAt")
    select 'OrderProcess', ${status}::text || n, ${status}::text, 'step' || n % 2, '1', ${errorClass}::text, at,
      case when ${status}::text <> 'Retrying' then at end
    from generate_series(1, ${count}::int) n,
      lateral (select now() - interval '2 hours' + n * interval '1 ms') as times(at)`

describe('an audit of a table with many finished runs', () => {
  it('an audit estimates the number of completed runs, and reports that the number is an estimate', async () => {
    const { runsByStatus, inexact } = await source.audit(['OrderProcess'])
    expect(inexact).toEqual({ unfinished: false, endedBadly: false, completed: true })
    expect(runsByStatus).toMatchObject({ Retrying: 10, Failed: FAILED })
    expect(runsByStatus.Completed).toBeGreaterThan(COMPLETED * 0.9)
    expect(runsByStatus.Completed).toBeLessThan(COMPLETED * 1.1)
  })

  it('an audit counts all failed runs of an error class, and the failed steps of the 20,000 oldest of these runs', async () => {
    const { endedBadly } = await source.audit(['OrderProcess'])
    const group = { Status: 'Failed', ErrorClass: 'http_400' }
    expect(endedBadly).toMatchObject([
      { ...group, Count: 10_000 },
      { ...group, Count: 10_000 },
      { ...group, Count: 100, StepName: null },
    ])
    const oldest = (step: string | null) =>
      endedBadly.find(({ StepName }) => StepName === step)?.OldestCreatedAt ?? ''
    expect(oldest(null) > oldest('step0')).toBe(true)
    expect(oldest(null) > oldest('step1')).toBe(true)
  })

  it('an audit does not read the whole table of runs or the whole table of items', async () => {
    const { sql } = database
    const scans = async () => {
      const [row] = await sql<[{ tables: number; tuples: number }]>`
        select sum(seq_scan)::int as tables, sum(idx_tup_fetch)::int as tuples from pg_stat_user_tables
        where relname in ('Order_Header', 'Order_Item')`
      return row
    }
    await sql`select pg_stat_reset()`
    await source.audit(['OrderProcess'])
    // PostgreSQL publishes the statistics of a connection with its next statement, at most once per second.
    await eventually(async () => {
      await createPauseStore(source).paused()
      expect((await scans()).tuples).toBeGreaterThan(0)
    })
    const { tables, tuples } = await scans()
    expect(tables).toBe(0)
    expect(tuples).toBeLessThan(COMPLETED)
  })
})
