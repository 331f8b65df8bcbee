import type postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { anAct } from '../../../test-support/act.ts'
import { createDatabase, type TestDatabase } from '@integration-host/postgres/test-support/database'
import { openPostgresSource } from '../../../test-support/postgres-source.ts'
import { createPauseStore } from '../../run/pause.ts'
import type { TransactionSource } from '../../run/transaction-source.ts'
import { type ActionFilter, readActions } from '../../run/action.ts'
import type { PostgresConnection } from '@integration-host/postgres/connection'
import { postgresRecords } from './records.ts'

const outline = { name: 'OrderProcess', steps: ['order'] as [string, ...string[]] }

let database: TestDatabase
let source: TransactionSource
beforeAll(async () => {
  database = await createDatabase()
  source = await openPostgresSource(database.url)
})
afterAll(async () => {
  await source[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

interface Plan {
  readonly 'Actual Rows': number
  readonly 'Rows Removed by Filter'?: number
  readonly Plans?: readonly Plan[]
}

/** Reads the action log under EXPLAIN ANALYZE. Returns how many entries the statement reads. */
async function entriesRead(filter: ActionFilter): Promise<number> {
  let explained: Plan | undefined
  const explaining = async (text: string, values: never[]) => {
    const [row] = await database.sql.unsafe<{ 'QUERY PLAN': [{ Plan: Plan }] }[]>(
      `explain (analyze, format json) ${text}`,
      values,
    )
    explained = row?.['QUERY PLAN'][0].Plan
    return []
  }
  const connection: Pick<PostgresConnection, 'run'> = {
    run: (work) => work({ unsafe: explaining } as unknown as postgres.Sql),
  }
  await readActions({ records: (kind) => postgresRecords(connection, kind) }, filter)
  const read = ({ Plans = [], ...plan }: Plan): number =>
    Plans.length === 0
      ? plan['Actual Rows'] + (plan['Rows Removed by Filter'] ?? 0)
      : Plans.map(read).reduce((sum, count) => sum + count, 0)
  return explained === undefined ? NaN : read(explained)
}

describe('a large action log in PostgreSQL', () => {
  it('each filter of the action log reads about as many entries as it returns, even for a rare process or transaction', async () => {
    await createPauseStore(source).setPaused('RareProcess', true, anAct)
    await source.queue(outline, [{ TransactionID: 'rare', InitialData: 1 }], anAct.by)
    await database.sql`
      insert into "Order_Action" ("KeyID", "Action", "Process", "TransactionID", "ReplayID", "Outcome")
      select 'erp', 'queue', 'OrderProcess', 'bulk ' || n, 0, 'done' from generate_series(1, 50000) n`
    const [oldest] = await readActions(source, { limit: 1, process: 'RareProcess' })
    const before = (oldest?.ID ?? 0) + 25_000
    await database.sql`analyze "Order_Action"` // in production, autovacuum does this
    const limit = 50
    for (const [filter, most] of [
      [{}, limit],
      [{ process: 'OrderProcess' }, limit],
      [{ process: 'OrderProcess', before }, limit],
      [{ before }, limit],
      [{ process: 'RareProcess' }, 1],
      [{ transactionId: 'rare' }, 1],
      [{ transactionId: 'rare', process: 'OrderProcess' }, 1],
      [{ transactionId: 'rare', process: 'RareProcess' }, 1],
      [{ transactionId: 'rare', before }, 1],
      [{ transactionId: 'unknown' }, 1],
    ] as const)
      expect([filter, (await entriesRead({ limit, ...filter })) <= most]).toEqual([filter, true])
  })
})
