import type postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { anAct } from '../../../test-support/act.ts'
import { createDatabase, type TestDatabase } from '@integration-host/postgres/test-support/database'
import { openPostgresSource } from '../../../test-support/postgres-source.ts'
import { createPauseStore } from '../../run/pause.ts'
import type { TransactionSource } from '../../run/transaction-source.ts'
import { listActions } from './statements/actions.ts'

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

/** Runs the statement of `listActions` under EXPLAIN ANALYZE. Returns how many entries the statement reads. */
async function entriesRead(filter: Parameters<typeof listActions>[1]): Promise<number> {
  const explaining = (strings: TemplateStringsArray, ...values: never[]) => {
    if (!strings[0]?.trimStart().startsWith('select')) return database.sql(strings, ...values)
    const texts = [`explain (analyze, format json) ${strings[0]}`, ...strings.slice(1)]
    return database.sql(Object.assign(texts, { raw: texts }), ...values)
  }
  const rows: unknown = await listActions(explaining as unknown as postgres.Sql, filter)
  const [{ 'QUERY PLAN': explained }] = rows as [{ 'QUERY PLAN': [{ Plan: Plan }] }]
  const read = ({ Plans = [], ...plan }: Plan): number =>
    Plans.length === 0
      ? plan['Actual Rows'] + (plan['Rows Removed by Filter'] ?? 0)
      : Plans.map(read).reduce((sum, count) => sum + count, 0)
  return read(explained[0].Plan)
}

describe('a large action log in PostgreSQL', () => {
  it('each filter of the action log reads about as many entries as it returns, even for a rare process or transaction', async () => {
    await createPauseStore(source).setPaused('RareProcess', true, anAct)
    await source.queue(outline, [{ TransactionID: 'rare', InitialData: 1 }], anAct.by)
    await database.sql`
      insert into "Order_Action" ("KeyID", "Action", "Process", "TransactionID", "ReplayID", "Outcome")
      select 'erp', 'queue', 'OrderProcess', 'bulk ' || n, 0, 'done' from generate_series(1, 50000) n`
    const [oldest] = await source.actions({ limit: 1, process: 'RareProcess' })
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
