/** Tests coordinators that share a database and a broker, and limit the number of runs in progress. */
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { until } from '@integration-host/shared/test-support/eventually'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { chargeProcess } from '../test-support/charge-process.ts'
import { respondWith, startTarget } from '../test-support/fake-target.ts'
import {
  type Backends,
  type Fixture,
  openBackends,
  serviceKey,
  startFixture,
} from '../test-support/fixture.ts'
import { defineProcess, z } from './step/api.ts'

const KEYS = ['ada', 'bob', 'eve']

/**
 * Counts, for each key, the steps that run at the same time. All coordinators of a test share one observer. The first steps
 * of each key wait until `limit` of them run, so the limit is reached however slow the machine is.
 */
function createObserver(limit: number) {
  const running = new Map<string, number>()
  const most = new Map<string, number>()
  const reached = new Map(KEYS.concat('').map((key) => [key, Promise.withResolvers<void>()]))
  return {
    most,
    async observe(key: string): Promise<void> {
      const now = (running.get(key) ?? 0) + 1
      running.set(key, now)
      most.set(key, Math.max(most.get(key) ?? 0, now))
      if (now >= limit) reached.get(key)?.resolve()
      await reached.get(key)?.promise
      await sleep(5)
      running.set(key, (running.get(key) ?? 0) - 1)
    },
  }
}
type Observer = ReturnType<typeof createObserver>

/** The ids of the runs that have called `waitFor`. */
const waited = new Set<string>()

const Input = z.object({ customer: z.string() })
const limited = (observer: Observer, concurrency: number, isByKey: boolean) =>
  defineProcess('Limited', {
    input: Input,
    concurrency,
    ...(isByKey && { concurrencyKey: ({ customer }: z.output<typeof Input>) => customer }),
  })
    .step('one', async (step) => {
      await observer.observe(isByKey ? step.initialData.customer : '')
      return step.complete()
    })
    .step('two', async (step) => {
      await observer.observe(isByKey ? step.initialData.customer : '')
      // Some runs wait for a while, and release their concurrency slot meanwhile.
      const { transactionId } = step
      if (/[05]$/.test(transactionId) && !waited.has(transactionId)) {
        waited.add(transactionId)
        return step.waitFor(20)
      }
      return step.complete()
    })

describe('a process with a concurrency limit on two coordinators', () => {
  let backends: Backends
  beforeAll(async () => {
    backends = await openBackends('real', {
      Limited: ['one', 'two'],
      Charge: ['charge', 'receipt'],
    })
  })
  afterAll(() => backends[Symbol.asyncDispose]())

  const sql = () => {
    if (backends.database === null) throw new Error('no database')
    return backends.database.sql
  }
  const queueAll = async (host: Fixture, ids: readonly string[]): Promise<void> => {
    const lines = ids.map((TransactionID, n) => ({
      TransactionID,
      InitialData: { customer: KEYS[n % KEYS.length] },
    }))
    const response = await host.call('/processes/Limited/transactions/bulk', postJson(lines))
    expect(await response.json()).toMatchObject({ queued: ids.length })
  }
  const unfinished = async (): Promise<number> => {
    const [row] = await sql()<[{ count: number }]>`
      select count(*)::int from "Order_Header" where "Status" <> 'Completed'`
    return row.count
  }
  const slots = async (): Promise<number> => {
    const [row] = await sql()<[{ count: number }]>`select count(*)::int from "Order_Slot"`
    return row.count
  }

  it.each([
    ['a message per step', 'message', true],
    ['inline steps', 'inline', true],
    ['a limit of the whole process', 'message', false],
  ] as const)(
    'with %s, no more steps run at the same time than the limit allows, and all runs complete',
    async (name, dispatch, isByKey) => {
      const limit = 2
      const observer = createObserver(limit)
      const options = {
        processes: [limited(observer, limit, isByKey)],
        dispatch,
        // The interval of the polls is longer than the test. So a released slot is assigned only by the coordinator
        // whose transition released it, directly after that transition.
        env: { LOCAL_PULL_SECONDS: '60', REMOTE_PULL_SECONDS: '60' },
      }
      await using first = await startFixture(backends, options)
      await using second = await startFixture(backends, options)
      const ids = Array.from({ length: 60 }, (_, n) => `${name} ${n}`)
      await Promise.all([queueAll(first, ids.slice(0, 30)), queueAll(second, ids.slice(30))])
      await until(async () => (await unfinished()) === 0, { seconds: 60, everyMs: 100 })
      const expected = (isByKey ? KEYS : ['']).map((key): [string, number] => [key, limit])
      expect(new Map(observer.most)).toEqual(new Map(expected))
      const [attempts] = await sql()<[{ completed: number; all: number }]>`
      select count(*) filter (where "Outcome" = 'completed')::int as completed, count(*)::int as all
      from "Order_Attempt" where "TransactionID" = any(${ids})`
      expect(attempts).toEqual({ completed: ids.length * 2, all: ids.length * 2 })
      await until(async () => (await slots()) === 0)
    },
  )

  it('with a total and a limit of each company, two coordinators exceed neither, and all runs complete without a poll', async () => {
    const running: string[] = []
    const most = { all: 0, ofKey: 0 }
    const process = defineProcess('Limited', { concurrency: { total: 3, perKey: 2 } }).step(
      'one',
      async (step) => {
        const realm = step.realm ?? ''
        running.push(realm)
        most.all = Math.max(most.all, running.length)
        most.ofKey = Math.max(most.ofKey, running.filter((other) => other === realm).length)
        await sleep(10)
        running.splice(running.indexOf(realm), 1)
        return step.complete()
      },
    )
    const options = {
      processes: [process],
      env: { LOCAL_PULL_SECONDS: '60', REMOTE_PULL_SECONDS: '60' },
    }
    await using first = await startFixture(backends, options)
    await using second = await startFixture(backends, options)
    const hosts = [first, second]
    const queued = hosts.map((host, n) => {
      const lines = Array.from({ length: 30 }, (_, k) => ({
        TransactionID: `shared ${n} ${k}`,
        InitialData: 1,
        Realm: `r${k % 4}`,
        ...(k % 7 === 0 && { Priority: 'high' }),
      }))
      return host.call('/processes/Limited/transactions/bulk', postJson(lines))
    })
    for (const response of await Promise.all(queued))
      expect(await response.json()).toMatchObject({ queued: 30 })
    await until(async () => (await unfinished()) === 0, { seconds: 60, everyMs: 100 })
    expect(most.all).toBe(3)
    expect(most.ofKey).toBeLessThanOrEqual(2)
    // A company that is alone gets both of its slots, and not the third.
    Object.assign(most, { all: 0, ofKey: 0 })
    const alone = Array.from({ length: 20 }, (_, k) => ({
      TransactionID: `alone ${k}`,
      InitialData: 1,
      Realm: 'r9',
    }))
    await first.call('/processes/Limited/transactions/bulk', postJson(alone))
    await until(async () => (await unfinished()) === 0, { seconds: 60, everyMs: 100 })
    expect(most).toEqual({ all: 2, ofKey: 2 })
    await until(async () => (await slots()) === 0)
  })

  it('runs that another program inserted get their concurrency key at the first claim, and fail if their data has no key', async () => {
    const observer = createObserver(1)
    const options = { processes: [limited(observer, 1, true)] }
    await using stack = new AsyncDisposableStack()
    stack.use(await startFixture(backends, options))
    const second = stack.use(await startFixture(backends, options))
    const ids = Array.from({ length: 10 }, (_, n) => `inserted ${n}`)
    await sql()`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData")
      select 'Limited', id, '{"customer": "ada"}'::jsonb from unnest(${ids}::text[]) as id
      union all values ('Limited', 'no customer', '{}'::jsonb), ('Limited', 'no key', '{"customer": ""}')`
    for (const id of ids) await second.reached(id, 'Completed')
    expect(observer.most.get('ada')).toBe(1)
    for (const [id, error] of [
      ['no customer', /InitialData\.customer/],
      ['no key', /concurrencyKey/],
    ] as const)
      expect(await second.reached(id, 'Failed')).toMatchObject({
        ErrorClass: 'input_invalid',
        LastError: expect.stringMatching(error),
        Attempts: [],
      })
  })

  it('the slot of a killed coordinator can be assigned again when the lease of its run has expired', async () => {
    await using target = await startTarget()
    target.on('/charges', (request, response) =>
      // The first call never ends, because the test kills its coordinator.
      target.callsTo('/charges').length === 1
        ? undefined
        : respondWith(201, '{"charge":"C-1"}')(request, response),
    )
    target.on('/charges/by-key', respondWith(404))
    const times = { leaseMs: 3_000, sweepMs: 100 }
    const [one, two] = [crypto.randomUUID(), crypto.randomUUID()]
    const killed = startProcess(
      [fileURLToPath(new URL('../test-support/charge-main.ts', import.meta.url))],
      {
        env: {
          PORT: '0',
          LOG_LEVEL: 'error',
          SERVICE_API_KEY: serviceKey,
          DATABASE_URL: backends.database?.url,
          AMQP_URL: process.env['TEST_AMQP_URL'],
          AMQP_PREFIX: backends.prefix,
          DATA_DIR: backends.dataDir,
          LEASE_MS: String(times.leaseMs),
          LOCAL_PULL_SECONDS: '0.2',
          CONCURRENCY: '1',
        },
      },
    )
    try {
      await sql()`insert into "Order_Header" ("Process", "TransactionID", "InitialData")
        values ('Charge', ${one}, ${JSON.stringify(target.url)}::text::jsonb)`
      await until(() => target.callsTo('/charges').length === 1)
      await using host = await startFixture(backends, {
        processes: [{ ...chargeProcess, concurrency: { limit: 1, keyOf: null } }],
        times,
        // The interval of the lease recovery is longer than the test. So the run of the killed coordinator can only
        // continue when its step message is redelivered.
        env: { REMOTE_PULL_SECONDS: '60' },
      })
      await host.queue(two, target.url)
      expect(await host.reached(two, 'Waiting')).toMatchObject({ WaitingFor: 'concurrency' })
      expect(target.callsTo('/charges')).toHaveLength(1)
      await killed.stop('SIGKILL')
      await host.reached(one, 'Completed')
      await host.reached(two, 'Completed')
      const keys = target.callsTo('/charges').map(({ headers }) => headers['idempotency-key'])
      const charge = (id: string) => `Charge/${id}/0/charge`
      expect(keys).toEqual([charge(one), charge(one), charge(two)])
    } finally {
      await killed.stop('SIGKILL')
    }
  })
})
