import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDatabase, type TestDatabase } from '@integration-host/postgres/test-support/database'
import { sealed } from '../test-support/payload-keys.ts'
import { openPostgresSource } from '../test-support/postgres-source.ts'
import { anAct } from '../test-support/act.ts'
import { FILES_LEFT } from './run/retention.ts'
import type {
  Limited,
  NewTransaction,
  QueueResult,
  TransactionSource,
} from './run/transaction-source.ts'

const outline = { name: 'OrderProcess', steps: ['order'] as [string, ...string[]] }
const first = ([value]: readonly (QueueResult | Limited)[]): QueueResult => {
  if (value?.run === undefined) throw new Error('no result')
  return value
}

describe('debounced transactions on several replicas', () => {
  let database: TestDatabase
  let replicas: TransactionSource[]
  beforeAll(async () => {
    database = await createDatabase()
    const open = () => openPostgresSource(database.url)
    replicas = [await open(), await open(), await open()]
  })
  afterAll(async () => {
    await Promise.all(replicas.map((replica) => replica[Symbol.asyncDispose]()))
    await database[Symbol.asyncDispose]()
  })
  const replica = (n: number): TransactionSource => {
    const found = replicas[n % replicas.length]
    if (found === undefined) throw new Error('no replica')
    return found
  }
  const transaction = (id: string, Key: string, Seconds = 3_600): NewTransaction => ({
    TransactionID: id,
    InitialData: id,
    Debounce: { Key, Seconds },
  })

  it('hundreds of concurrent requests with five debounce keys result in one waiting run per key', async () => {
    const requests = Array.from({ length: 500 }, (_, n) => transaction(`many ${n}`, `key ${n % 5}`))
    const send = () =>
      Promise.all(requests.map(async (one, n) => first(await replica(n).queue(outline, [one]))))
    const results = await send()
    const count = (wanted: string) => results.filter(({ outcome }) => outcome === wanted).length
    expect([count('queued'), count('absorbed')]).toEqual([5, 495])
    const rows = await database.sql<{ key: string; absorbed: number; data: string }[]>`
      select "DebounceKey" as key, "Absorbed" as absorbed, "InitialData" as data from "Order_Header"
      where "TransactionID" like 'many %' order by 1`
    expect(rows.map(({ key, absorbed }) => [key, absorbed])).toEqual(
      [0, 1, 2, 3, 4].map((n) => [`key ${n}`, 99]),
    )
    const again = await send()
    expect(again.every(({ outcome }) => outcome === 'exists')).toBe(true)
    expect(again.map(({ run }) => run.TransactionID)).toEqual(
      results.map(({ run }) => run.TransactionID),
    )
    expect(again.every(({ run }) => run.Absorbed === 99)).toBe(true)
  })

  it('if all replicas get the same request at the same time, the request is absorbed once', async () => {
    await replica(0).queue(outline, [transaction('one', 'same')])
    const results = await Promise.all(
      Array.from({ length: 60 }, async (_, n) =>
        first(await replica(n).queue(outline, [transaction('two', 'same')])),
      ),
    )
    expect(results.filter(({ outcome }) => outcome === 'absorbed')).toHaveLength(1)
    expect(results.filter(({ outcome }) => outcome === 'exists')).toHaveLength(59)
    expect(first(results).run.TransactionID).toBe('one')
  })

  it('concurrent batches with the same debounce keys in different orders do not deadlock', async () => {
    const keys = Array.from({ length: 50 }, (_, n) => `order ${n}`)
    const batch = (name: string, order: readonly string[]) =>
      order.map((key) => transaction(`${name} ${key}`, key))
    const orders = [keys, keys.toReversed(), [...keys.slice(25), ...keys.slice(0, 25)]]
    const results = await Promise.all(
      orders.map((order, n) => replica(n).queue(outline, batch(`batch ${n}`, order))),
    )
    expect(results.flat().filter(({ outcome }) => outcome === 'queued')).toHaveLength(50)
    expect(results.flat().filter(({ outcome }) => outcome === 'absorbed')).toHaveLength(100)
  })

  it('a request during the claim of a waiting run is either absorbed, which delays the claim, or starts a new run', async () => {
    const rounds = 60
    let claims = 0
    for (let round = 0; round < rounds; round += 1) {
      const [a, b, key] = [`race ${round} a`, `race ${round} b`, `race ${round}`]
      const { run } = first(await replica(0).queue(outline, [transaction(a, key)]))
      await database.sql`update "Order_Header" set "NextAttemptAt" = now() where "TransactionID" = ${a}`
      const { Process, TransactionID, ReplayID, Version: version } = run
      const request = { Process, TransactionID, ReplayID, version, step: 'order', isFirst: true }
      const [claim, results] = await Promise.all([
        replica(1).claim({ ...request, owner: 'worker' }),
        replica(2).queue(outline, [transaction(b, key)]),
      ])
      const { outcome, run: of } = first(results)
      if (claim.kind === 'claimed') {
        claims += 1
        expect([claim.claim.run.InitialData, outcome, of.TransactionID]).toEqual([a, 'queued', b])
      } else {
        expect([claim.kind, outcome, of.TransactionID, of.InitialData]).toEqual([
          'early',
          'absorbed',
          a,
          b,
        ])
      }
    }
    expect(claims).toBeLessThanOrEqual(rounds)
  })

  it('with payload keys, the absorbed data can be decrypted in the waiting run, and a replay of the run has the same data', async () => {
    const source = sealed(replica(0))
    await source.queue(outline, [transaction('sealed a', 'sealed')])
    await source.queue(outline, [transaction('sealed b', 'sealed')])
    const [row] = await database.sql<{ data: object }[]>`
      select "InitialData" as data from "Order_Header" where "TransactionID" = 'sealed a'`
    expect(Object.keys(row?.data ?? {})).toEqual(['$sealed'])
    await source.operate('cancel', outline, 'sealed a', null, anAct)
    const fromStart = { fromStep: null, latest: null }
    const replay = await source.replay(outline, 'sealed a', fromStart, anAct)
    expect(replay).toMatchObject({ InitialData: 'sealed b', DebounceKey: null, Absorbed: 0 })
  })

  it('retention deletes the debounce key of a purged run, and deletes the absorbed ids together with the run', async () => {
    const source = replica(0)
    await source.queue(outline, [transaction('old a', 'old'), transaction('old b', 'old')])
    await source.operate('cancel', outline, 'old a', null, anAct)
    const policy = { process: outline.name, completedMs: 0, failedMs: 0 }
    await database.sql`
      update "Order_Header" set "CompletedAt" = now() - interval '1 hour' where "TransactionID" = 'old a'`
    const key = { Process: outline.name, TransactionID: 'old a', ReplayID: 0 }
    expect(await source.purge(policy, [key])).toBe(1)
    const again = first(await source.queue(outline, [transaction('old b', 'old')]))
    expect([again.outcome, again.run.DebounceKey]).toEqual(['exists', null])
    const left = () => database.sql`
      select from "Order_Debounce" where "TransactionID" = 'old a'
      union all select from "Order_Absorbed" where "AbsorbedBy" = 'old a'`
    expect(await left()).toHaveLength(1)
    const filesLeft = source.records(FILES_LEFT)
    for (const row of await filesLeft.rows()) await filesLeft.replace(row, undefined)
    await database.sql`
      update "Order_Header" set "PurgedAt" = now() - interval '1 hour' where "TransactionID" = 'old a'`
    expect(await source.forget(0, 10)).toBe(1)
    expect(await left()).toHaveLength(0)
    expect(first(await source.queue(outline, [transaction('old b', 'old')])).outcome).toBe('queued')
  })

  it('the claim of a debounced run writes to no index', async () => {
    await using own = await createDatabase()
    await using source = await openPostgresSource(own.url)
    const { run } = first(await source.queue(outline, [transaction('1', 'k', 1)]))
    const hot = async () => {
      const [row] = await own.sql<[{ all: number; hot: number }]>`
        select n_tup_upd::int as all, n_tup_hot_upd::int as hot from pg_stat_user_tables
        where relname = 'Order_Header'`
      return row
    }
    const { Process, TransactionID, ReplayID, Version: version } = run
    const request = { Process, TransactionID, ReplayID, version, step: 'order', isFirst: true }
    const claim = async () => (await source.claim({ ...request, owner: 'w' })).kind
    await expect.poll(claim, { interval: 100, timeout: 10_000 }).toBe('claimed')
    await expect.poll(hot, { timeout: 10_000 }).toEqual({ all: 1, hot: 1 })
  })
})
