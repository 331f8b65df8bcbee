import { IntegrationError } from '@integration-host/shared/errors'
import type postgres from 'postgres'
import type { Actor } from '../../../run/action.ts'
import {
  debounceKeyText,
  type DebouncedTransaction,
  type DebouncePlan,
  planDebounced,
} from '../../../run/debounce.ts'
import type { Run } from '../../../run/run.ts'
import type { ProcessOutline, QueueResult } from '../../../run/transaction-source.ts'
import { runOf, type RunRow, storedPriority } from '../rows.ts'
import { insertRuns } from './enqueue-runs.ts'

type Tx = postgres.TransactionSql

const MAX_TRIES = 3

/**
 * Queues debounced transactions in one database transaction. This database transaction holds advisory locks on the
 * debounce keys and on the ids. It also locks the rows of the waiting runs, which a claim locks too. If a claim locks
 * the row of a run first, the run absorbs no more requests. Otherwise the claim waits, and then reads the new data and
 * the later start time.
 *
 * @throws {IntegrationError} `store_unavailable` if every try was rolled back, because a concurrent request queued one
 * of the ids without `Debounce`.
 */
export async function enqueueDebounced(
  sql: postgres.Sql,
  process: ProcessOutline,
  transactions: readonly DebouncedTransaction[],
  times: { readonly sweepMs: number; readonly leaseMs: number },
  by?: Actor,
): Promise<readonly QueueResult[]> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await sql.begin(async (tx) => {
        const { plan, now } = await planLocked(tx, process, transactions)
        return store(tx, process, plan, now, times, by)
      })
    } catch (error) {
      if (!(error instanceof IdQueuedMeanwhile)) throw error
      if (tries === MAX_TRIES)
        throw new IntegrationError('store_unavailable', 'an id is queued in two ways at once', {
          retryAfterSeconds: 1,
        })
    }
  }
}

/**
 * Thrown to roll the database transaction back if one of its ids was queued meanwhile by a statement that does not lock
 * ids.
 */
class IdQueuedMeanwhile extends Error {}

async function planLocked(
  tx: Tx,
  process: ProcessOutline,
  transactions: readonly DebouncedTransaction[],
): Promise<{ readonly plan: DebouncePlan; readonly now: number }> {
  const { name } = process
  const keyOf = ({ Realm, Debounce }: DebouncedTransaction) =>
    debounceKeyText(name, Realm, Debounce.Key)
  const ids = JSON.stringify(transactions.map(({ TransactionID }) => TransactionID))
  const keys = transactions.map(({ Realm = '', Debounce: { Key } }) => ({ realm: Realm, key: Key }))
  const locks = transactions.flatMap((transaction) => [
    `Order_Debounce ${keyOf(transaction)}`,
    `Order_Absorbed ${JSON.stringify([name, transaction.TransactionID])}`,
  ])
  await tx`
    select pg_advisory_xact_lock(lock) from (
      select distinct hashtextextended(text, 0) as lock
      from jsonb_array_elements_text(${JSON.stringify(locks)}::text::jsonb) as text
      order by lock) locked -- all database transactions lock in the same order`
  // Each query is a separate statement. A statement sees only what was committed before it began, and the previous
  // statement may have waited for the locks.
  const waiting = await tx<(RunRow & { key: string; until: number })[]>`
    select h.*, d."Key" as key, (extract(epoch from d."Until") * 1000)::float8 as until
    from (
      select distinct d.* from jsonb_to_recordset(${JSON.stringify(keys)}::text::jsonb) as k(realm text, key text)
        join "Order_Debounce" d on d."Process" = ${name} and d."Realm" = k.realm and d."Key" = k.key) d
      join "Order_Header" h on h."Process" = d."Process" and h."TransactionID" = d."TransactionID"
        and h."ReplayID" = 0
    order by h."TransactionID" for update of h`
  const known = await tx<(RunRow & { id: string })[]>`
    with ids as (select id from jsonb_array_elements_text(${ids}::text::jsonb) as id)
    select h.*, a."TransactionID" as id from ids
      join "Order_Absorbed" a on a."Process" = ${name} and a."TransactionID" = id
      join "Order_Header" h on h."Process" = ${name} and h."TransactionID" = a."AbsorbedBy" and h."ReplayID" = 0
    union all
    select h.*, id from ids
      join "Order_Header" h on h."Process" = ${name} and h."TransactionID" = id and h."ReplayID" = 0`
  const [clock] = await tx<[{ now: number }]>`
    select floor(extract(epoch from clock_timestamp()) * 1000)::float8 as now`
  // The list may contain two runs for an id: first the run that has absorbed the id, then the run that was queued with
  // the id. The second of them takes precedence.
  const runs = new Map(known.map((row) => [row.id, runOf(row)]))
  const waitingRuns = new Map(
    waiting.map((row) => [
      // Not the key of the run, which a resealing pass may have changed since this statement began.
      debounceKeyText(name, row.Realm, row.key),
      { run: runOf(row), until: row.until },
    ]),
  )
  const state = {
    knownRun: (id: string) => runs.get(id),
    waitingRun: (key: string) => waitingRuns.get(key),
  }
  return { plan: planDebounced(process, transactions, state, clock.now), now: clock.now }
}

async function store(
  tx: Tx,
  process: ProcessOutline,
  { outcomes, added, changed, absorbed }: DebouncePlan,
  now: number,
  times: { readonly sweepMs: number; readonly leaseMs: number },
  by: Actor | undefined,
): Promise<readonly QueueResult[]> {
  const stored = new Map<string, Run>()
  if (added.size > 0) {
    const reasons = new Map(
      outcomes.flatMap(({ outcome, reason, run }) =>
        outcome === 'queued' ? [[run.TransactionID, reason] as const] : [],
      ),
    )
    const rows = await insertRuns(
      tx,
      process,
      [...added.values()].map(({ run }) => insertedOf(run, reasons.get(run.TransactionID))),
      times,
      by,
    )
    if (rows.length < added.size) throw new IdQueuedMeanwhile()
    for (const row of rows) stored.set(row.TransactionID, runOf(row))
    const waits = [...added.values()].map(({ run, until }) => ({
      id: run.TransactionID,
      realm: run.Realm ?? '',
      key: run.DebounceKey,
      until: new Date(until).toISOString(),
    }))
    await tx`
      insert into "Order_Debounce" as d ("Process", "Realm", "Key", "TransactionID", "Until")
      select ${process.name}, realm, key, id, until
      from jsonb_to_recordset(${JSON.stringify(waits)}::text::jsonb)
        as w(id text, realm text, key text, until timestamptz)
      order by realm, key
      on conflict ("Process", "Realm", "Key") do update
        set "TransactionID" = excluded."TransactionID", "Until" = excluded."Until"`
  }
  if (changed.size > 0)
    for (const row of await replaceData(tx, process, changed, now, times))
      stored.set(row.TransactionID, runOf(row))
  if (absorbed.length > 0) await recordAbsorbed(tx, process, absorbed, by)
  return outcomes.map(({ outcome, run }) => ({
    outcome,
    run: stored.get(run.TransactionID) ?? run,
  }))
}

const insertedOf = (run: Run, reason: string | undefined) => ({
  TransactionID: run.TransactionID,
  InitialData: run.InitialData,
  Debounce: { Key: run.DebounceKey ?? '', Seconds: 1 }, // only the key is stored
  absorbed: run.Absorbed,
  ...(run.NotBefore !== null && { NotBefore: run.NotBefore }),
  ...(run.Realm !== null && { Realm: run.Realm }),
  ...(run.Tags !== null && { Tags: run.Tags }),
  ...(run.Priority !== 'normal' && { Priority: run.Priority }),
  ...(run.ConcurrencyKey !== null && { ConcurrencyKey: run.ConcurrencyKey }),
  ...(reason !== undefined && { Reason: reason }),
})

/**
 * Stores the data of the absorbed transactions in the waiting runs. The database transaction has already locked the
 * rows of these runs.
 */
function replaceData(
  tx: Tx,
  process: ProcessOutline,
  changed: DebouncePlan['changed'],
  now: number,
  { sweepMs }: { readonly sweepMs: number },
): Promise<RunRow[]> {
  const rows = [...changed.values()].map(({ run }) => ({
    id: run.TransactionID,
    data: run.InitialData,
    slot: run.ConcurrencyKey,
    priority: storedPriority(run.Priority),
    start: run.NotBefore,
    deadline: run.DeadlineAt,
    absorbed: run.Absorbed,
  }))
  return tx<RunRow[]>`
    update "Order_Header" h set "InitialData" = coalesce(w.data, 'null'::jsonb), "ConcurrencyKey" = w.slot, "Priority" = w.priority,
      "NotBefore" = w.start, "NextAttemptAt" = w.start, "DeadlineAt" = w.deadline, "Absorbed" = w.absorbed,
      "NextSweepAt" = w.start + ${sweepMs} * interval '1 ms', "SweepCount" = 0,
      "UpdatedAt" = ${new Date(now).toISOString()}
    from jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) as w(id text, data jsonb, slot text, priority smallint,
      start timestamptz, deadline timestamptz, absorbed int)
    where h."Process" = ${process.name} and h."TransactionID" = w.id and h."ReplayID" = 0
    returning h.*`
}

/**
 * Stores the ids of the absorbed transactions. If `by` is set, also stores an entry in the action log for each of them.
 */
async function recordAbsorbed(
  tx: Tx,
  process: ProcessOutline,
  absorbed: DebouncePlan['absorbed'],
  by: Actor | undefined,
): Promise<void> {
  const rows = JSON.stringify(
    absorbed.map(({ transaction: { TransactionID, Realm, Reason }, by: run }) => ({
      id: TransactionID,
      run,
      realm: Realm,
      reason: Reason,
    })),
  )
  await tx`
    insert into "Order_Absorbed" as a ("Process", "TransactionID", "AbsorbedBy")
    select ${process.name}, id, run from jsonb_to_recordset(${rows}::text::jsonb) as w(id text, run text)
    order by id
    -- A row exists only if the run that absorbed the id was deleted by SQL.
    on conflict ("Process", "TransactionID") do update set "AbsorbedBy" = excluded."AbsorbedBy", "At" = now()`
  if (by === undefined) return
  // Their places are free again, because no run was stored for them.
  if (by.shareOf)
    await tx`
      delete from "Order_Delayed" d using jsonb_to_recordset(${rows}::text::jsonb) as w(id text)
      where d."Process" = ${process.name} and d."TransactionID" = w.id`
  await tx`
    insert into "Order_Action" ("KeyID", "Person", "Action", "Process", "TransactionID", "ReplayID",
      "Realm", "Reason", "Outcome")
    select ${by.keyId}, ${by.person}, 'queue', ${process.name}, run, 0, realm, reason, 'absorbed'
    from jsonb_to_recordset(${rows}::text::jsonb) as w(run text, realm text, reason text)`
}
