/** Tests that the keys of runs are encrypted in a real database, and are encrypted again while runs are queued. */
import { randomBytes } from 'node:crypto'
import { createLogger } from '@integration-host/shared/observability/logger'
import { parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { describe, expect, it } from 'vitest'
import { createDatabase, type TestDatabase } from '@integration-host/postgres/test-support/database'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { openBackends, startFixture } from '../test-support/fixture.ts'
import { reseal } from '../test-support/payload-keys.ts'
import { openPostgresSource } from '../test-support/postgres-source.ts'
import { defineProcess, z } from './step/api.ts'
import { createPayloads } from './run/payload.ts'
import { createSealedSource } from './run/sealed-source.ts'
import type { ProcessOutline } from './run/transaction-source.ts'

const CUSTOMER = 'ada@example.com'
const log = createLogger('test', 'silent')
const [k1, k2] = ['k1', 'k2'].map((id) => `${id}:${randomBytes(32).toString('base64')}`)
const ring = (...keys: (string | undefined)[]) => parseKeyRing(new Secret(keys.join(',')))

const input = z.object({ customer: z.string() })

/** A process whose runs keep their slot until `release` is called. */
function limitedProcess() {
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  const definition = defineProcess('Limited', {
    input,
    concurrency: 1,
    concurrencyKey: ({ customer }: z.output<typeof input>) => customer,
    schedules: [{ name: 'daily', cron: '0 3 * * *', input: { customer: CUSTOMER } }],
  }).step('one', async (step) => {
    await released
    return step.complete()
  })
  return { definition, release }
}

/** Returns the rows of all tables as one text. */
async function wholeDatabase({ sql }: TestDatabase): Promise<string> {
  const tables = await sql<{ name: string }[]>`
    select format('%I.%I', schemaname, tablename) as name from pg_tables
    where schemaname not in ('pg_catalog', 'information_schema')`
  const contents = await Promise.all(
    tables.map(({ name }) =>
      sql.unsafe(`select coalesce(string_agg(t::text, ' '), '') as rows from ${name} t`),
    ),
  )
  return contents.map(([row]) => row?.['rows']).join('\n')
}

describe('the keys of runs in PostgreSQL', () => {
  it('with PAYLOAD_KEYS no table contains a concurrency key or debounce key in plain text, while runs wait, run and have ended', async () => {
    await using backends = await openBackends('real', { Limited: ['one'] })
    const { database } = backends
    if (database === null) throw new Error('no database')
    const { definition, release } = limitedProcess()
    await using host = await startFixture(backends, {
      processes: [definition],
      env: { PAYLOAD_KEYS: k1 as string },
    })
    const post = (path: string, body: unknown) => host.call(path, postJson(body))
    const InitialData = { customer: CUSTOMER }
    const Debounce = { Key: `invoice of ${CUSTOMER}`, Seconds: 3_600 }
    await host.queue('1', InitialData)
    await host.reached('1', 'Running')
    await host.queue('2', InitialData)
    await host.reached('2', 'Waiting')
    await post('/processes/Limited/transactions/bulk', [
      { TransactionID: '3', InitialData },
      { TransactionID: '4', InitialData, Debounce },
      { TransactionID: '5', InitialData, Debounce },
    ])
    await post('/schedules/Limited/daily/run', {})
    await host.reached('3', 'Waiting')
    expect(await host.run('2')).toMatchObject({ ConcurrencyKey: CUSTOMER })
    expect(await host.run('4')).toMatchObject({ Absorbed: 1, DebounceKey: Debounce.Key })
    expect(await wholeDatabase(database)).not.toContain(CUSTOMER)

    release()
    await host.reached('3', 'Completed')
    await host.call('/processes/Limited/transactions/1/replays', { method: 'POST' })
    await host.reached('1', 'Completed', 1)
    expect(await host.run('1')).toMatchObject({ ConcurrencyKey: CUSTOMER })
    expect(await wholeDatabase(database)).not.toContain(CUSTOMER)
  })

  it('a resealing pass while both keys are in use disturbs no request, and seals every key with the active key at its end', async () => {
    await using database = await createDatabase()
    await using one = await openPostgresSource(database.url)
    await using two = await openPostgresSource(database.url)
    const before = createSealedSource(one, createPayloads(ring(k1, k2)))
    const after = createSealedSource(two, createPayloads(ring(k2, k1)))
    const outline: ProcessOutline = { name: 'Limited', steps: ['one'] }
    const queue = async (source: typeof before, id: string, n: number) => {
      const ConcurrencyKey = `customer ${n % 5}`
      const Debounce = { Key: `invoice ${n % 7}`, Seconds: 3_600 }
      const results = await source.queue(outline, [
        { TransactionID: id, InitialData: n, ConcurrencyKey },
        { TransactionID: `debounced ${id}`, InitialData: n, ConcurrencyKey, Debounce },
      ])
      const [queued] = results
      if (queued?.run === undefined) throw new Error('no result')
      const { run } = queued
      const slot = { limit: 1, key: null }
      const message = { ...run, step: 'one', isFirst: true, version: run.Version, owner: id, slot }
      return (await source.claim(message)).kind
    }
    let isOver = false
    const traffic = async () => {
      const kinds = new Set<string>()
      for (let n = 0; n < 100; n += 1)
        for (const kind of await Promise.all([
          queue(before, `before ${n}`, n),
          queue(after, `after ${n}`, n),
        ]))
          kinds.add(kind)
      isOver = true
      return kinds
    }
    const passes = async () => {
      while (!isOver) await reseal(one, ring(k2, k1), log)
    }
    const [kinds] = await Promise.all([traffic(), passes()])
    expect([...kinds].toSorted()).toEqual(['claimed', 'no_slot'])
    await reseal(one, ring(k2, k1), log)
    const forms = await database.sql<{ forms: number }[]>`
      select count(distinct "ConcurrencyKey")::int as forms from "Order_Header"
      union all select count(distinct "Key")::int from "Order_Slot"
      union all select count(*)::int from "Order_Debounce"`
    expect(forms.map((row) => row.forms)).toEqual([5, 5, 7])
    const { count } = await one.outdatedPayloads('k2', { after: null, limit: 1_000, isCount: true })
    expect(count).toBe(0)
  })
})
