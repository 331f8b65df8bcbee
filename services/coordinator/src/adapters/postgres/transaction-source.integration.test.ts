import { readFile } from 'node:fs/promises'
import type { PostgresConnection } from '@integration-host/postgres/connection'
import { createDatabase, type TestDatabase } from '@integration-host/postgres/test-support/database'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { startRelay } from '@integration-host/shared/test-support/relay'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { anAct } from '../../../test-support/act.ts'
import { emptyTables, type MovableTime, withMovableTime } from '../../../test-support/database.ts'
import { contractTimes, type MovableSource } from '../../../test-support/movable-source.ts'
import { aSearch } from '../../../test-support/search.ts'
import { actionLogContract } from '../../run/action-log.contract.ts'
import { auditContract } from '../../run/audit.contract.ts'
import { deadLetterContract } from '../../dead-letter/dead-letter-store.contract.ts'
import { erasureContract } from '../../run/erasure.contract.ts'
import { runDetailContract } from '../../run/run-detail.contract.ts'
import { operationsContract } from '../../bulk/bulk-operation.contract.ts'
import { eventsContract } from '../../run/events.contract.ts'
import { undoContract } from '../../run/undo.contract.ts'
import { operatorActionsContract } from '../../run/operator-actions.contract.ts'
import { retentionContract } from '../../run/retention.contract.ts'
import { runSearchContract } from '../../run/run-search.contract.ts'
import { debounceContract } from '../../run/debounce.contract.ts'
import { delayedRunsContract } from '../../run/delayed-runs.contract.ts'
import { assigned } from '../../run/slots.ts'
import { priorityContract } from '../../run/priority.contract.ts'
import { runTermsContract } from '../../run/run-terms.contract.ts'
import { runExportContract } from '../../run/run-export.contract.ts'
import { payloadContract } from '../../run/payload.contract.ts'
import { sealedRunsContract } from '../../run/sealed-runs.contract.ts'
import { sealedKeysContract } from '../../run/sealed-keys.contract.ts'
import { sealed } from '../../../test-support/payload-keys.ts'
import { leasesContract } from '../../run/leases.contract.ts'
import { runStepsContract } from '../../run/run-steps.contract.ts'
import { transactionSourceContract } from '../../run/transaction-source.contract.ts'
import type { TransactionSource, WebhooksOf } from '../../run/transaction-source.ts'
import { changeCursorsContract } from '../../change-feed/change-cursors.contract.ts'
import { schedulesContract } from '../../schedule/schedule-store.contract.ts'
import { recordsContract } from '../../records/records.contract.ts'
import type { Schedule } from '../../schedule/schedule.ts'
import { createScheduleStore, SCHEDULES } from '../../schedule/schedule-store.ts'
import { slotsContract } from '../../run/slots.contract.ts'
import { webhooksContract } from '../../webhook/webhook-queue.contract.ts'
import { bookEntryContract } from '../../entry/book-entry.contract.ts'
import { proveEntriesContract } from '../../entry/prove-entries.contract.ts'
import { createOnceContract } from '../../entry/create-once.contract.ts'
import { subscriptionsContract } from '../../change/subscriptions.contract.ts'
import { targetCallsContract } from '../../run/target-calls.contract.ts'
import { connectPostgres } from './connection.ts'
import { createPostgresTransactionSource } from './transaction-source.ts'
import { webhookBacklog } from '../../webhook/webhook-backlog.ts'

const logger = createLogger('test', 'silent')
const outline = { name: 'OrderProcess', steps: ['order', 'report'] as [string, ...string[]] }
const refs = [{ process: 'OrderProcess', step: 'order', isFirst: true }]

let database: TestDatabase
let time: MovableTime
/** The connection of the sources that `open` returns. */
let connection: PostgresConnection
beforeAll(async () => {
  database = await createDatabase()
  time = await withMovableTime(database)
  const connected = connect(database.url)
  ;({ connection } = connected)
  await connected.ready()
})
afterAll(async () => {
  await connection[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

function connect(url: string) {
  const health = createHealth(logger)
  const dependency = health.dependency('postgres')
  const connected = connectPostgres(new Secret(url), { name: 'test', dependency, logger })
  const source = createPostgresTransactionSource(connected, contractTimes)
  const ready = () => eventually(() => expect(health.report().status).toBe('ready'))
  return { connection: connected, source, health, ready }
}

/** Returns a source whose tables are empty and whose clock is right. All sources that this function returns share a connection. */
async function open(webhooksOf?: WebhooksOf): Promise<MovableSource> {
  await emptyTables(database.sql)
  await time.reset()
  return {
    ...createPostgresTransactionSource(connection, { ...contractTimes, webhooksOf }),
    advance: time.advance,
    async [Symbol.asyncDispose]() {},
  }
}

runStepsContract('Postgres', open)
leasesContract('Postgres', open)
transactionSourceContract('Postgres', open)

slotsContract('Postgres', open)

recordsContract('Postgres', open)

it('a row that another program has written meanwhile is not replaced', async () => {
  await using source = await open()
  const store = createScheduleStore(source)
  const schedule = { name: 'a', cron: '0 2 * * *', timeZone: 'UTC', each: 'once', catchUp: 'last' }
  await store.declareSchedules('OrderProcess', [
    { ...schedule, jitterSeconds: 0, input: null } as Schedule,
  ])
  const records = source.records(SCHEDULES)
  const [before] = await records.rows()
  if (before === undefined) throw new Error('no schedule')
  // As a replica of an earlier release does, without another change.
  await database.sql`update "Order_Schedule" set "UpdatedAt" = "UpdatedAt"`
  expect(await records.replace(before, { ...before, Reason: 'outdated' })).toBe(false)
})

schedulesContract('Postgres', open)

describe('the slots of a process on two replicas', () => {
  it('concurrent claims of two replicas never get more slots than the limit', async () => {
    const limit = 2
    const slot = { limit, key: null }
    const limits = [{ process: outline.name, limit }]
    await using one = await open()
    const other = connect(database.url)
    await using two = other.source
    await other.ready()
    for (let round = 0; round < 10; round += 1) {
      const ids = Array.from({ length: 20 }, (_, n) => `${round}-${n}`)
      const ConcurrencyKey = `round ${round}`
      const queued = ids.map((TransactionID) => ({ TransactionID, InitialData: 1, ConcurrencyKey }))
      await one.queue(outline, queued)
      const running = async () => {
        const [row] = await database.sql<[{ count: number }]>`
          select count(*)::int from "Order_Header"
          where "ConcurrencyKey" = ${ConcurrencyKey} and "Status" = 'Running'`
        return row.count
      }
      const claim = (TransactionID: string, n: number) =>
        (n % 2 === 0 ? one : two).claim({
          Process: outline.name,
          TransactionID,
          ReplayID: 0,
          version: 0,
          step: 'order',
          isFirst: true,
          owner: 'test',
          slot,
        })
      const results = await Promise.all(ids.map(claim))
      const claims = results.flatMap((result) => (result.kind === 'claimed' ? [result.claim] : []))
      expect(claims).toHaveLength(limit)
      for (const { run } of claims)
        await one.operate('cancel', outline, run.TransactionID, null, anAct)
      const released = claims.map(({ lease }) => lease)
      await Promise.all([one, two].map((source) => source.grantSlots(limits, released)))
      expect(await running()).toBe(limit)
    }
  })
})
actionLogContract('Postgres', open)
auditContract('Postgres', open)
deadLetterContract('Postgres', open)
runDetailContract('Postgres', open)
operationsContract('Postgres', open)
operatorActionsContract('Postgres', open)
eventsContract('Postgres', open)
undoContract('Postgres', open)
runExportContract('Postgres', open)
retentionContract('Postgres', open)
webhooksContract('Postgres', open)
subscriptionsContract('Postgres', open)
bookEntryContract('Postgres', open)
proveEntriesContract('Postgres', open)
createOnceContract('Postgres', open, process.env['TEST_FAULTS'] === undefined ? 40 : 500)
changeCursorsContract('Postgres', open)
targetCallsContract('Postgres', open)
runSearchContract('Postgres', open)
runTermsContract('Postgres', open)
priorityContract('Postgres', open)
delayedRunsContract('Postgres', open)
debounceContract('Postgres', open)
erasureContract('Postgres', open)
payloadContract('Postgres', open)

sealedKeysContract('Postgres', open)
sealedRunsContract('Postgres', open)

runStepsContract('Postgres with payload keys', async () => sealed(await open()))
eventsContract('Postgres with payload keys', async () => sealed(await open()))
undoContract('Postgres with payload keys', async () => sealed(await open()))

describe('the tables of the PostgreSQL source', () => {
  it('three coordinator replicas that start together on an empty database apply the migrations once', async () => {
    await using empty = await createDatabase()
    const replicas = [1, 2, 3].map(() => connect(empty.url))
    await Promise.all(replicas.map(({ ready }) => ready()))
    const applied = await empty.sql`select hash from drizzle.__drizzle_migrations`
    const { entries } = JSON.parse(
      await readFile(new URL('../../../migrations/meta/_journal.json', import.meta.url), 'utf8'),
    ) as { entries: unknown[] }
    expect(applied).toHaveLength(entries.length)
    for (const { source } of replicas) await source[Symbol.asyncDispose]()
  })

  it('queueing fails with store_unavailable and a retry time if an id can be neither inserted nor found', async () => {
    await using own = await createDatabase()
    const { source, ready } = connect(own.url)
    await ready()
    await own.sql.unsafe(`
      create function drop_row() returns trigger language plpgsql as 'begin return null; end';
      create trigger drop_lost before insert on "Order_Header"
        for each row when (new."TransactionID" = 'lost') execute function drop_row()`)
    await expect(
      source.queue(
        outline,
        ['1', 'lost'].map((TransactionID) => ({ TransactionID, InitialData: 1 })),
      ),
    ).rejects.toMatchObject({ code: 'store_unavailable', retryAfterSeconds: 1 })
    const [repeated] = await source.queue(outline, [{ TransactionID: '1', InitialData: 1 }])
    expect(repeated?.outcome).toBe('exists')
    await source[Symbol.asyncDispose]()
  })

  it('if another program clears the in-doubt flag of an ended run, the index columns of the run are updated', async () => {
    const source = await open()
    await database.sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData", "Status", "InDoubt", "CompletedAt")
      values ('OrderProcess', '1', '1', 'Failed', true, now())`
    const inDoubt = async () => (await database.sql`select "EndedInDoubt" from "Order_Header"`)[0]
    expect(await inDoubt()).toEqual({ EndedInDoubt: true })
    await database.sql`update "Order_Header" set "InDoubt" = false`
    expect(await inDoubt()).toEqual({ EndedInDoubt: false })
    await source[Symbol.asyncDispose]()
  })

  it('if an earlier release ends a parent that waits for its children, the family is due at once', async () => {
    await using source = await open()
    const { sql } = database
    await sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData", "Status", "WaitingFor", "StepName")
      select 'OrderProcess', id, '1', 'Waiting', 'children:lines', 'lines' from unnest('{kept,ended}'::text[]) id`
    await sql`
      insert into "Order_Family" ("Process", "TransactionID", "ReplayID", "Place", "ChildProcess", "OfReplayID",
        "Prefix", "Total", "Tolerated", "NextSweepAt")
      select 'OrderProcess', "TransactionID", 0, 'lines', 'Line', 0, '', 1, 0, now() + interval '5 minutes'
      from "Order_Header"`
    // The statement of release 0.2.0 that cancels a run.
    await sql`
      update "Order_Header" set "Status" = 'Cancelled', "Version" = "Version" + 1, "WaitingFor" = null,
        "CompletedAt" = now() where "TransactionID" = 'ended'`
    const due = await source.lookAtFamilies({ limit: 10 })
    expect(due.map(({ family }) => family.TransactionID)).toEqual(['ended'])
  })

  it('if an earlier release erases a run, no data remains in its items and entries', async () => {
    const source = await open()
    const { sql } = database
    await sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData", "Status", "CompletedAt")
      values ('OrderProcess', '1', '1', 'Completed', now())`
    await sql`
      insert into "Order_Item" ("Process", "TransactionID", "ReplayID", "StepName", "IdempotencyKey",
        "Status", "State", "Report", "Ask", "Sender")
      values ('OrderProcess', '1', 0, 'order', 'k', 'Completed', '1', '1', '1', '1')`
    await sql`
      insert into "Book_Entry" ("EntryID", "Realm", "Entity", "EntityID", "Operation", "Process", "TransactionID",
        "ReplayID", "StepName", "Fields", "Changed", "RecordedAt", "State")
      values ('e', 'r1', 'Invoice', '7', 'create', 'OrderProcess', '1', 0, 'order', '{}', '["a"]', now(), 'ChangedOutside')`
    await sql`update "Order_Header" set "InitialData" = 'null', "ErasedAt" = now()`
    const [item] = await sql`select "State", "Report", "Ask", "Sender" from "Order_Item"`
    expect(item).toEqual({ State: null, Report: null, Ask: null, Sender: null })
    const [entry] = await sql`select "Fields", "Changed", "State" from "Book_Entry"`
    expect(entry).toEqual({ Fields: null, Changed: null, State: 'Unproven' })
    await source[Symbol.asyncDispose]()
  })

  it('an erasure needs only two reads to find the run that follows ten thousand erased runs', async () => {
    await using source = await open()
    await database.sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData", "Realm", "Status",
        "CompletedAt", "CreatedAt", "ErasedAt")
      select 'OrderProcess', n::text, 'null', 'r1', 'Completed', now(),
        now() - (20000 - n) * interval '1 s', case when n <= 10000 then now() end
      from generate_series(1, 10001) n`
    const scope = { Realm: 'r1', Process: null }
    const first = await source.erasable(scope, { after: null, limit: 200 })
    expect(first).toMatchObject({ runs: [], notEnded: 0, next: { TransactionID: '10000' } })
    const second = await source.erasable(scope, { after: first.next, limit: 200 })
    expect(second.runs.map(({ TransactionID }) => TransactionID)).toEqual(['10001'])
    expect(second.next).toBeNull()
  })

  it('an erasure that waits for the settlement of a run skips the run, and erases it after reading it again', async () => {
    await using source = await open()
    await source.queue(outline, [{ TransactionID: '1', InitialData: 1, Realm: 'r1' }])
    await database.sql`
      update "Order_Header" set "Status" = 'Failed', "StepName" = 'report', "InDoubt" = true,
        "CompletedAt" = now(), "NextAttemptAt" = null`
    const scope = { Realm: 'r1', Process: null }
    const { runs } = await source.erasable(scope, { after: null, limit: 10 })
    expect(runs).toHaveLength(1)
    const waiting = (count: number) =>
      eventually(async () => {
        const rows = await database.sql`
          select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
        expect(rows).toHaveLength(count)
      })
    const act = { by: { keyId: 'console', person: null }, reason: null, ifVersion: null }
    const both = await database.sql.begin(async (tx) => {
      await tx`select from "Order_Header" for update`
      const settlement = { outcome: 'done', data: 'personal data' } as const
      const settled = source.settle(outline, '1', null, settlement, act)
      await waiting(1)
      const erased = source.erase(runs, act)
      await waiting(2)
      return { settled, erased }
    })
    await both.settled
    expect(await both.erased).toBe(0)
    const again = await source.erasable(scope, { after: null, limit: 10 })
    expect(await source.erase(again.runs, act)).toBe(1)
    const items = await database.sql`select "Data" from "Order_Item"`
    expect([...items]).toEqual([{ Data: null }])
  })

  describe('events that arrive together', () => {
    const place = { process: outline.name, place: 'order', next: null, onTimeout: 'fail' } as const
    const by = { by: { keyId: 'ops', person: null }, reason: null, ifVersion: null }
    const ids = ['1', '2', '3']
    const openWaiting = async () => {
      const source = await open()
      await source.queue(
        outline,
        ids.map((TransactionID) => ({ TransactionID, InitialData: 1 })),
      )
      await database.sql`update "Order_Header"
        set "Status" = 'Waiting', "StepName" = 'order', "WaitingFor" = 'event:order'`
      const signal = (id: string, data: string = id) =>
        source.signal(place, id, null, { data, eventId: null }, by)
      return { source, signal }
    }
    const accepted = { isAccepted: true, hasMoved: true, run: { Status: 'Completed' } }

    it('an event for a run that another transaction has locked waits alone', async () => {
      const { source, signal } = await openWaiting()
      const { locked } = await database.sql.begin(async (tx) => {
        await tx`select from "Order_Header" where "TransactionID" = '2' for update`
        const [first, second, third] = ids.map((id) => signal(id))
        expect(await first).toMatchObject(accepted)
        expect(await third).toMatchObject(accepted)
        return { locked: second }
      })
      expect(await locked).toMatchObject(accepted)
      await source[Symbol.asyncDispose]()
    })

    it('an event that cannot be stored is the only one that fails', async () => {
      const { source, signal } = await openWaiting()
      const [first, second, third] = await Promise.allSettled([
        signal('1'),
        signal('2', '\u0000'), // PostgreSQL cannot store this character
        signal('3'),
      ])
      expect([first, third]).toMatchObject([{ value: accepted }, { value: accepted }])
      expect(second).toMatchObject({ reason: { code: 'invalid_request' } })
      const found = await source.get(outline.name, '2', null)
      expect(found).toMatchObject({ run: { Status: 'Waiting' }, items: [] })
      await source[Symbol.asyncDispose]()
    })
  })

  it('a run whose status another program changes by SQL is found by its new status', async () => {
    await using source = await open()
    await source.queue(outline, [{ TransactionID: '1', InitialData: 1 }])
    const setStatus = async (status: string, errorClass: string | null) => {
      await database.sql`
        update "Order_Header" set "Status" = ${status}, "ErrorClass" = ${errorClass}, "CompletedAt" = now()`
      const [row] = await database.sql`
        select "EndedAs", "EndedClass", "EndedInDoubt", "CompletedAt" is not null as "isOver" from "Order_Header"`
      return { ...row }
    }
    const running = { EndedAs: null, EndedClass: null, EndedInDoubt: null }
    expect(await setStatus('Failed', 'http_404')).toEqual({
      EndedAs: 'Failed',
      EndedClass: 'http_404',
      EndedInDoubt: false,
      isOver: true,
    })
    expect(await setStatus('Cancelled', null)).toMatchObject({
      EndedAs: 'Cancelled',
      EndedClass: '',
    })
    expect(await setStatus('Queued', null)).toEqual({ ...running, isOver: false })
    expect(await setStatus('Completed', null)).toEqual({ ...running, isOver: true })
  })

  it('no trigger makes an update lock a row before it changes the row', async () => {
    const [BEFORE, UPDATE] = [2, 16] // bits of pg_trigger.tgtype
    const triggers = await database.sql`
      select tgname from pg_trigger where tgrelid in (
        select oid from pg_class where relnamespace = 'public'::regnamespace)
      and tgtype & ${BEFORE | UPDATE} = ${BEFORE | UPDATE}`
    expect([...triggers]).toEqual([])
  })

  it('a claim finds its run by the whole primary key, even if the last ANALYZE saw a table with one row', async () => {
    // The test counts reads of indexes. PostgreSQL may add the reads of other connections to the counts at any time, so
    // the test has a database of its own.
    await using counted = await createDatabase()
    const { source, ready } = connect(counted.url)
    await ready()
    await source.queue(outline, [{ TransactionID: 'alone', InitialData: 1 }])
    // In a table with one row every column looks unique. The planner then considers an index that starts with
    // `Process` as selective as the primary key, and keeps that plan after the table has grown.
    await counted.sql`vacuum analyze "Order_Header"`
    const readsOf = async () => {
      const rows = await counted.sql<{ name: string; reads: number }[]>`
        select indexrelname as name, idx_scan::int as reads from pg_stat_user_indexes
        where relname = 'Order_Header'`
      return Object.fromEntries(rows.map(({ name, reads }) => [name, reads]))
    }
    const before = await readsOf()
    const ids = Array.from({ length: 40 }, (_, n) => `later ${n}`)
    await source.queue(
      outline,
      ids.map((TransactionID) => ({ TransactionID, InitialData: 1 })),
    )
    // The claims run one after another, because concurrent claims would be batched into one statement.
    for (const TransactionID of ids) {
      const claimed = await source.claim({
        Process: 'OrderProcess',
        TransactionID,
        ReplayID: 0,
        step: 'order',
        isFirst: true,
        version: 0,
        owner: 'a worker',
      })
      expect(claimed.kind).toBe('claimed')
    }
    await eventually(
      async () => {
        const after = await readsOf()
        const key = Object.keys(after).find((name) => name.endsWith('_pk')) ?? ''
        expect(after[key]).toBeGreaterThanOrEqual((before[key] ?? 0) + ids.length)
        expect(after['Order_Header_newest']).toBe(before['Order_Header_newest'])
      },
      { everyMs: 100 },
    )
    await source[Symbol.asyncDispose]()
  })

  it('a run is due when its lease expires, even if its next sweep was scheduled for much later', async () => {
    const source = await open()
    await source.queue(outline, [{ TransactionID: 'swept', InitialData: 1 }])
    // 15 minutes is the largest sweep interval. A run that was swept many times has this interval, because the interval
    // doubles with each sweep.
    await database.sql`update "Order_Header" set "NextSweepAt" = now() + interval '15 min'`
    const claimed = await source.claim({
      Process: 'OrderProcess',
      TransactionID: 'swept',
      ReplayID: 0,
      step: 'order',
      isFirst: true,
      version: 0,
      owner: 'a worker that dies',
    })
    expect(claimed.kind).toBe('claimed')
    await source.advance(contractTimes.leaseMs)
    expect(await source.recoverExpiredLeases(10)).toHaveLength(1)
  })

  it('a finished run that SQL sets to Queued is due again, even if SQL does not clear CompletedAt', async () => {
    const source = await open()
    await database.sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData", "Status", "CompletedAt")
      values ('OrderProcess', 'set back', '1', 'Failed', now())`
    expect(await source.due(refs, 10)).toEqual([])
    await database.sql`update "Order_Header" set "Status" = 'Queued'`
    expect(await source.due(refs, 10)).toMatchObject([{ CompletedAt: null }])
  })

  it.each([
    { keys: 1, rows: 30, total: 9, limit: 5 },
    { keys: 7, rows: 60, total: 20, limit: 4 },
    { keys: 40, rows: 90, total: 30, limit: 30 },
    // With so many keys, one statement does not read all rows that could get slots.
    { keys: 300, rows: 900, total: 130, limit: 3 },
    { keys: 600, rows: 1_800, total: 400, limit: 4 },
    { keys: 300, rows: 900, total: 700, limit: 2 },
    { keys: 2_000, rows: 2_400, total: 300, limit: 2 },
  ])(
    'the free slots go to the same runs as in the memory source: %j',
    async ({ keys, rows, total, limit }) => {
      await using source = await open()
      let seed = keys * 7_919 + rows
      const random = (below: number): number => {
        seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
        return Math.floor((seed / 2_147_483_648) * below)
      }
      const all = Array.from({ length: rows }, (_, n) => ({
        id: `r${n}`,
        key: `k${random(keys)}`,
        high: random(5) === 0 ? 1 : 0,
        held: random(10) === 0,
        due: new Date(Date.UTC(2026, 0, 1) + random(50) * 1_000).toISOString(),
      }))
      const given = JSON.stringify(all)
      await database.sql`
        insert into "Order_Header" ("Process", "TransactionID", "StepName", "InitialData", "Status", "WaitingFor",
          "ConcurrencyKey", "Priority", "NextAttemptAt")
        select 'OrderProcess', id, 'order', 'null', case when held then 'Running' else 'Waiting' end,
          case when not held then 'concurrency' end, key, high, due
        from jsonb_to_recordset(${given}::text::jsonb)
          as r(id text, key text, high smallint, held boolean, due timestamptz)`
      await database.sql`
        insert into "Order_Slot" ("Process", "TransactionID", "ReplayID", "Key", "Held", "Priority", "DueAt")
        select 'OrderProcess', id, 0, key, held, high, due
        from jsonb_to_recordset(${given}::text::jsonb)
          as r(id text, key text, high smallint, held boolean, due timestamptz)`
      const held = new Map<string, number>()
      for (const run of all) if (run.held) held.set(run.key, (held.get(run.key) ?? 0) + 1)
      const waiting = all.flatMap((run) =>
        run.held
          ? []
          : [
              {
                key: run.key,
                run: {
                  Priority: run.high === 1 ? ('high' as const) : ('normal' as const),
                  NextAttemptAt: run.due,
                  TransactionID: run.id,
                  ReplayID: 0,
                },
              },
            ],
      )
      const expected = assigned(waiting, { limit, total }, held).map(({ run }) => run.TransactionID)
      const granted: string[] = []
      for (let calls = 0; ; calls += 1) {
        const { runs, hasMore } = await source.grantSlots(
          [{ process: 'OrderProcess', limit, total }],
          null,
        )
        granted.push(...runs.map(({ TransactionID }) => TransactionID))
        if (!hasMore) break
        expect(calls).toBeLessThan(20)
      }
      const byText = (a: string, b: string): number => (a < b ? -1 : 1)
      expect(granted.toSorted(byText)).toEqual(expected.toSorted(byText))
      expect(granted.length).toBeGreaterThan(0)
    },
  )

  it('a run that SQL inserts with a Priority of 1 or more is high', async () => {
    await using source = await open()
    await database.sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData", "Priority")
      values ('OrderProcess', 'minus', '1', -1), ('OrderProcess', 'one', '1', 1), ('OrderProcess', 'two', '1', 2)`
    const found = async (priority: 'high' | 'normal') =>
      (await source.search(aSearch('OrderProcess', { filter: { priority: [priority] } }))).runs.map(
        ({ TransactionID, Priority }) => `${TransactionID} ${Priority}`,
      )
    expect((await found('high')).toSorted()).toEqual(['one high', 'two high'])
    expect(await found('normal')).toEqual(['minus normal'])
    expect((await source.due(refs, 10)).map(({ Priority }) => Priority).toSorted()).toEqual([
      'high',
      'high',
      'normal',
    ])
  })

  it('a run that SQL inserts with only process, id and initial data is due at once', async () => {
    await using source = await open()
    await database.sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData")
      values ('OrderProcess', 'by hand', '{"a": 1}')`
    const [due] = await source.due(refs, 10)
    expect(due).toMatchObject({ TransactionID: 'by hand', StepName: '', InitialData: { a: 1 } })
    const result = await source.claim({
      Process: 'OrderProcess',
      TransactionID: 'by hand',
      ReplayID: 0,
      version: 0,
      step: 'order',
      isFirst: true,
      owner: 'me',
    })
    expect(result).toMatchObject({ kind: 'claimed', claim: { run: { StepName: 'order' } } })
  })

  it('the sweeper stores the version and deadline of the process in a run that SQL inserted without them', async () => {
    await using source = await open()
    await database.sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData", "DefinitionVersion", "DeadlineAt")
      values ('OrderProcess', 'neither', '1', null, null),
        ('OrderProcess', 'both', '1', 'mine', '2100-01-01T00:00:00Z')`
    await source.queue(outline, [{ TransactionID: 'queued', InitialData: 1 }])
    await database.sql`update "Order_Header" set "NextSweepAt" = now()`
    const terms = { version: '2', deadlineMs: 3_600_000 }
    const due = await source.due(
      refs.map((ref) => ({ ...ref, ...terms })),
      10,
    )
    const { neither, both, queued } = Object.fromEntries(due.map((run) => [run.TransactionID, run]))
    expect(neither?.DefinitionVersion).toBe('2')
    expect(Date.parse(neither?.DeadlineAt ?? '')).toBe(
      Date.parse(neither?.CreatedAt ?? '') + 3_600_000,
    )
    expect(both).toMatchObject({
      DefinitionVersion: 'mine',
      DeadlineAt: '2100-01-01T00:00:00.000Z',
    })
    expect(queued).toMatchObject({ DefinitionVersion: null, DeadlineAt: null })
  })

  it('a run that SQL inserts with NotBefore does not start before that time, and its deadline counts from that time', async () => {
    await using source = await open()
    await database.sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData", "NotBefore", "CreatedAt")
      values ('OrderProcess', 'delayed', '1', now() + interval '1 hour', now()),
        ('OrderProcess', 'past', '1', now() - interval '1 hour', now() - interval '30 minutes')`
    const terms = { version: '2', deadlineMs: 3_600_000 }
    const steps = refs.map((ref) => ({ ...ref, ...terms }))
    const due = await source.due(steps, 10)
    const { delayed, past } = Object.fromEntries(due.map((run) => [run.TransactionID, run]))
    expect(delayed?.NextAttemptAt).toBe(delayed?.NotBefore)
    const msAfter = (from = '', to: string | null = '') => Date.parse(to ?? '') - Date.parse(from)
    expect(msAfter(delayed?.NotBefore ?? '', delayed?.DeadlineAt)).toBe(3_600_000)
    // The sweeper may find an inserted row late. Even so, the deadline counts from the insertion.
    expect(msAfter(past?.CreatedAt, past?.DeadlineAt)).toBe(3_600_000)
    const [row] = await database.sql<[{ isLater: boolean }]>`
      select "NextSweepAt" > "NotBefore" as "isLater" from "Order_Header" where "TransactionID" = 'delayed'`
    expect(row.isLater).toBe(true)
    const request = { Process: outline.name, ReplayID: 0, version: 0, step: 'order', isFirst: true }
    const claim = (TransactionID: string) =>
      source.claim({ ...request, TransactionID, owner: 'me' })
    expect((await claim('delayed')).kind).toBe('early')
    expect((await claim('past')).kind).toBe('claimed')
  })

  describe('updates that write to no index', () => {
    const outlined = { ...outline, version: '1', deadlineMs: 3_600_000 }
    const claim = (TransactionID: string) => ({
      Process: outline.name,
      TransactionID,
      ReplayID: 0,
      version: 0,
      step: 'order',
      isFirst: true,
      owner: 'coordinator-7c9f6d5b48-x2x4z:1:0a1b2c3d', // as long as that of a pod
    })
    const updatesOf = async ({ sql }: TestDatabase) => {
      const [updates] = await sql<{ all: number; inPlace: number }[]>`
        select n_tup_upd::int as all, n_tup_hot_upd::int as "inPlace" from pg_stat_user_tables
        where relname = 'Order_Header'`
      return updates
    }

    it('the claim of a run with a version and a deadline writes to no index', async () => {
      // The test uses a separate database, because PostgreSQL may count the updates of earlier tests with a delay.
      await using own = await createDatabase()
      const { source, ready } = connect(own.url)
      await ready()
      await source.queue(outlined, [{ TransactionID: '1', InitialData: 1 }])
      expect((await source.claim(claim('1'))).kind).toBe('claimed')
      await eventually(async () => expect(await updatesOf(own)).toEqual({ all: 1, inPlace: 1 }))
      await source[Symbol.asyncDispose]()
    })

    it.each([
      ['with a version and a deadline', outlined],
      ['without', outline],
    ])(
      'the claims of many runs that were queued together write to no index (%s)',
      async (_terms, process) => {
        await using own = await createDatabase()
        const { source, ready } = connect(own.url)
        await ready()
        const ids = Array.from({ length: 200 }, (_, n) => `order-${n}`)
        await source.queue(
          process,
          ids.map((TransactionID) => ({ TransactionID, InitialData: 1 })),
        )
        const claimed = await Promise.all(ids.map((id) => source.claim(claim(id))))
        expect(new Set(claimed.map(({ kind }) => kind))).toEqual(new Set(['claimed']))
        await eventually(async () =>
          expect(await updatesOf(own)).toEqual({ all: 200, inPlace: 200 }),
        )
        await source[Symbol.asyncDispose]()
      },
    )
  })

  it('PostgreSQL rejects the insertion of a run with an unknown status', async () => {
    const source = await open()
    await expect(
      database.sql`insert into "Order_Header" ("Process", "TransactionID", "InitialData", "Status")
        values ('P', '1', '1', 'Finished')`,
    ).rejects.toMatchObject({ code: '23514' })
    await source[Symbol.asyncDispose]()
  })
})

describe('notifications of rows that other programs insert', () => {
  const insert = (id: string, count = 1) => database.sql`
    insert into "Order_Header" ("Process", "TransactionID", "InitialData")
    select 'OrderProcess', ${id} || n, '1' from generate_series(1, ${count}) n`
  /** Counts the calls of `onDue`. Notifications arrive in the order of the commits. */
  const watch = async (source: TransactionSource) => {
    const hints = { count: 0 }
    source.watch(() => (hints.count += 1))
    await reaches(hints, 1) // the first call shows that LISTEN has taken effect
    return hints
  }
  const reaches = (hints: { count: number }, count: number) =>
    eventually(() => expect(hints.count).toBeGreaterThanOrEqual(count))

  it('PostgreSQL sends one notification for ten thousand runs that one statement inserts', async () => {
    await using source = await open()
    const hints = await watch(source)
    await insert('many ', 10_000)
    await insert('one ')
    await reaches(hints, 3)
    expect(hints.count).toBe(3)
  })

  it('PostgreSQL sends no notification for runs that the coordinator queues or replays', async () => {
    await emptyTables(database.sql)
    const { source, ready } = connect(database.url)
    await ready()
    const hints = await watch(source)
    const lines = Array.from({ length: 50 }, (_, n) => ({
      TransactionID: String(n),
      InitialData: n,
    }))
    await source.queue(outline, lines)
    const cancelled = await source.operate('cancel', { name: 'OrderProcess' }, '0', null, anAct)
    await source.replay(outline, cancelled.TransactionID, { fromStep: null, latest: null }, anAct)
    await insert('by hand ')
    await reaches(hints, 2)
    expect(hints.count).toBe(2)
    await source[Symbol.asyncDispose]()
  })

  it('after each reconnect the PostgreSQL source calls the callback of watch(), because rows may have been inserted meanwhile', async () => {
    await using line = await startRelay(database.url, 5432)
    line.away()
    const { source, ready } = connect(line.url)
    const hints = { count: 0 }
    source.watch(() => (hints.count += 1))
    line.restore()
    await ready()
    await reaches(hints, 1)
    for (let loss = 1; loss <= 3; loss += 1) {
      const before = hints.count
      line.away()
      await insert(`while away ${loss} `)
      line.restore()
      await reaches(hints, before + 1)
      const listening = hints.count
      await insert(`after ${loss} `)
      await reaches(hints, listening + 1)
    }
    expect(await source.due(refs, 100)).not.toEqual([])
    await source[Symbol.asyncDispose]()
  })
})

describe('a claim whose webhook cannot be stored', () => {
  it('if the webhook of a claim cannot be stored, the claim is undone, and the other claims of the batch are not affected', async () => {
    let text = '\0' // PostgreSQL cannot store NUL
    await using source = await open(() => [
      { Receiver: 'one', Lane: '7', TransactionID: 'webhook', InitialData: { text } },
    ])
    await source.queue(outline, [
      { TransactionID: 'taken over', InitialData: 1 },
      { TransactionID: 'new', InitialData: 1 },
    ])
    const claim = (TransactionID: string) =>
      source.claim({
        Process: 'OrderProcess',
        TransactionID,
        ReplayID: 0,
        step: 'order',
        isFirst: true,
        version: 0,
        owner: 'a worker',
      })
    await claim('taken over')
    await database.sql`update "Order_Header" set "LeaseUntil" = now() where "LeaseUntil" is not null`
    const stored = () => source.get('OrderProcess', 'taken over', null)
    const before = await stored()
    const [taken, fresh] = await Promise.allSettled([claim('taken over'), claim('new')])
    expect(taken.status).toBe('rejected')
    expect(fresh).toMatchObject({ status: 'fulfilled', value: { kind: 'claimed' } })
    expect(await stored()).toEqual(before)
    text = 'valid'
    expect(await claim('taken over')).toMatchObject({ kind: 'claimed' })
    expect(await webhookBacklog(source)).toMatchObject([{ receiver: 'one', waiting: 1 }])
  })
})

describe('a database that becomes unavailable', () => {
  it('the PostgreSQL source immediately fails with store_unavailable while the database is down, and reconnects later', async () => {
    await using line = await startRelay(database.url, 5432)
    const { source, health, ready } = connect(line.url)
    await ready()
    line.away()
    await eventually(() => expect(health.report().status).toBe('waiting'))
    const startedAt = performance.now()
    await expect(
      source.queue(outline, [{ TransactionID: 'x', InitialData: 1 }]),
    ).rejects.toMatchObject({ code: 'store_unavailable' })
    expect(performance.now() - startedAt).toBeLessThan(6_000)
    line.restore()
    await ready()
    const [result] = await source.queue(outline, [{ TransactionID: 'x', InitialData: 1 }])
    expect(result?.outcome).toMatch(/queued|exists/)
    await source[Symbol.asyncDispose]()
  })

  it('the PostgreSQL source fails with store_unavailable until the database is reachable for the first time', async () => {
    const { source } = connect('postgresql://postgres@127.0.0.1:1/none')
    await expect(source.get('OrderProcess', '1', null)).rejects.toMatchObject({
      code: 'store_unavailable',
    })
    await source[Symbol.asyncDispose]()
  })
})
