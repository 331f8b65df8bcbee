import { IntegrationError } from '@integration-host/shared/errors'
import type postgres from 'postgres'
import type { Actor } from '../../../run/action.ts'
import { DELAYED_RUNS_PER_KEY, notBeforeMs, startingNow } from '../../../run/start-time.ts'
import { isRepeated, type Run, storedTags } from '../../../run/run.ts'
import type {
  Claim,
  NewTransaction,
  ProcessOutline,
  QueueResult,
  StartOnArrival,
} from '../../../run/transaction-source.ts'
import { deadlineFrom } from '../predicates.ts'
import { claimOf, runOf, type RunRow, storedPriority } from '../rows.ts'

/**
 * The maximum number of tries to insert an id. Another try is needed if a run with this id exists, but is deleted
 * before it can be read.
 */
const MAX_TRIES = 3

/**
 * Queues run 0 of each transaction and returns the results in the order of the transactions. A second statement reads
 * the runs that already exist, to distinguish a repeated request from a request with other data.
 *
 * @throws {IntegrationError} `store_unavailable` if an id was neither inserted nor found in several tries. In this case
 *   the runs of the other ids are queued, and a repeated request finds them.
 */
export async function enqueueRuns(
  sql: postgres.Sql | postgres.TransactionSql,
  process: ProcessOutline,
  transactions: readonly NewTransaction[],
  times: { readonly sweepMs: number; readonly leaseMs: number },
  by?: Actor,
  start?: StartOnArrival,
): Promise<QueueResult[]> {
  const known = new Map<string, Run>()
  const isNew = new Set<string>()
  const claims = new Map<string, Claim>()
  const starting = startingNow(transactions, start)
  let missing: readonly Inserted[] = transactions.map((transaction) =>
    starting.has(transaction) && start !== undefined
      ? { ...transaction, owner: start.owner }
      : transaction,
  )
  const findMissing = () => {
    missing = missing.filter(({ TransactionID }) => !known.has(TransactionID))
  }
  for (let tries = 0; missing.length > 0; tries += 1) {
    // The existing run was deleted before it could be read, so the next try inserts its transaction as new.
    if (tries === MAX_TRIES) throw neitherInsertedNorFound()
    for (const row of await insertRuns(sql, process, missing, times, by)) {
      const claim = claimOnArrival(process, row)
      if (claim !== null) claims.set(row.TransactionID, claim)
      known.set(row.TransactionID, claim === null ? runOf(row) : beforeClaim(runOf(row)))
      isNew.add(row.TransactionID)
    }
    findMissing()
    if (missing.length === 0) break
    for (const row of await firstRuns(sql, process.name, missing))
      known.set(row.TransactionID, runOf(row))
    findMissing()
  }
  return transactions.map((transaction): QueueResult => {
    const run = known.get(transaction.TransactionID) as Run // the loop ends when no run is missing
    if (isNew.delete(transaction.TransactionID)) {
      const claim = claims.get(transaction.TransactionID)
      return { outcome: 'queued', run, ...(claim !== undefined && { claim }) }
    }
    return { outcome: isRepeated(run, transaction) ? 'exists' : 'conflict', run }
  })
}

/**
 * Reads run 0 of each transaction that exists. OFFSET makes PostgreSQL look each run up by its key. Without OFFSET,
 * PostgreSQL may join the other way round while it has no statistics of the table: it then compares every run of the
 * process with every id, which took a minute for 10,000 ids.
 */
const firstRuns = (
  sql: postgres.Sql | postgres.TransactionSql,
  process: string,
  transactions: readonly NewTransaction[],
) =>
  sql<RunRow[]>`
    select h.* from (
      select distinct id from jsonb_array_elements_text(
        ${JSON.stringify(transactions.map(({ TransactionID }) => TransactionID))}::text::jsonb) as given (id)
    ) given cross join lateral (
      select * from "Order_Header"
      where "Process" = ${process} and "TransactionID" = given.id and "ReplayID" = 0 offset 0
    ) h`

const neitherInsertedNorFound = () =>
  new IntegrationError('store_unavailable', 'rows of these ids are deleted at the same time', {
    retryAfterSeconds: 1,
  })

/** Returns the claim with which this row was inserted; `null` if the row was inserted without a claim. */
function claimOnArrival({ name, steps: [step] }: ProcessOutline, row: RunRow): Claim | null {
  const { TransactionID, ReplayID, LeaseOwner: owner } = row
  if (owner === null) return null
  const request = { Process: name, TransactionID, ReplayID, step, isFirst: true, version: 0, owner }
  return claimOf(request, { ...row, n: 0, items: null })
}

const beforeClaim = (run: Run): Run => ({ ...run, Status: 'Queued', Version: 0, Attempt: 0 })

/**
 * A transaction to insert. `absorbed` is the number of other transactions of the same batch that it absorbs. With
 * `owner`, the statement also claims the run for this replica.
 */
type Inserted = NewTransaction & { readonly absorbed?: number; readonly owner?: string }

/** Inserts the runs that do not exist, and returns them. */
export function insertRuns(
  sql: postgres.Sql | postgres.TransactionSql,
  process: ProcessOutline,
  transactions: readonly Inserted[],
  { sweepMs, leaseMs }: { readonly sweepMs: number; readonly leaseMs: number },
  by: Actor | undefined,
): Promise<RunRow[]> {
  // The columns for concurrency keys, priorities, delays, debouncing and claims are left out of the statement if no run of the
  // batch needs them, because most processes use none of these features.
  const isKeyed = transactions.some(({ ConcurrencyKey }) => ConcurrencyKey !== undefined)
  const isDelayed = transactions.some(({ NotBefore }) => NotBefore !== undefined)
  const isDebounced = transactions.some(({ Debounce }) => Debounce !== undefined)
  const isPrior = transactions.some(({ Priority = 'normal' }) => Priority !== 'normal')
  const isStarted = transactions.some(({ owner }) => owner !== undefined)
  const none = sql``
  // The deadline and the first sweep of a delayed run count from its start.
  const start = isDelayed ? sql`s.start` : sql`now()`
  const insertion = sql`
    insert into "Order_Header" ("Process", "TransactionID", "StepName", "InitialData", "Realm", "Tags",
      "DefinitionVersion", "DeadlineAt", "NextSweepAt"${isKeyed ? sql`, "ConcurrencyKey"` : none}${isPrior ? sql`, "Priority"` : none}${isDelayed ? sql`, "NotBefore", "NextAttemptAt"` : none}${isDebounced ? sql`, "DebounceKey", "Absorbed"` : none}${isStarted ? sql`, "Status", "Version", "Attempt", "LeaseOwner", "LeaseUntil", "StartedAt"` : none})
    select ${process.name}, t."TransactionID", ${process.steps[0]}, coalesce(t."InitialData", 'null'::jsonb),
      t."Realm", t."Tags", ${process.version ?? null}::text, ${deadlineFrom(sql, process, start)},
      ${start} + ${sweepMs} * interval '1 ms'${isKeyed ? sql`, t."ConcurrencyKey"` : none}${isPrior ? sql`, coalesce(t.priority, 0)` : none}${isDelayed ? sql`, n."notBefore", s.start` : none}${isDebounced ? sql`, t."DebounceKey", t.absorbed` : none}${
        isStarted
          ? sql`,
      case when t.owner is null then 'Queued' else 'Running' end, (t.owner is not null)::int, (t.owner is not null)::int, t.owner,
      case when t.owner is not null then now() + ${leaseMs} * interval '1 ms' end, case when t.owner is not null then now() end`
          : none
      }
    from jsonb_to_recordset(${JSON.stringify(transactions.map(rowOf))}::text::jsonb)
      as t("TransactionID" text, "InitialData" jsonb, "Realm" text, "Tags" jsonb${isKeyed ? sql`, "ConcurrencyKey" text` : none}${isPrior ? sql`, priority smallint` : none}${isDelayed ? sql`, at timestamptz, delay float8` : none}${isDebounced ? sql`, "DebounceKey" text, absorbed int` : none}${isStarted ? sql`, owner text` : none})${
        isDelayed
          ? sql`
      cross join lateral (select coalesce(t.at, now() + t.delay * interval '1 s') as "notBefore") n
      cross join lateral (select greatest(now(), n."notBefore") as start) s`
          : none
      }
    order by t."TransactionID" -- two batches with the same ids must lock them in the same order
    on conflict do nothing
    returning *`
  // Most transactions are queued by programs, without an actor. Without an actor, the statement contains no part for
  // the action log.
  return by === undefined
    ? sql<RunRow[]>`${insertion}`
    : sql<RunRow[]>`
        with changed as (${insertion}),
        recorded as (${recordQueued(sql, by, transactions)})
        select * from changed`
}

const rowOf = (transaction: Inserted) => {
  const { TransactionID, InitialData, Realm, ConcurrencyKey, NotBefore } = transaction
  const { Priority = 'normal' } = transaction
  return {
    TransactionID,
    InitialData,
    Realm,
    ConcurrencyKey,
    ...(Priority !== 'normal' && { priority: storedPriority(Priority) }),
    owner: transaction.owner,
    ...(typeof NotBefore === 'number' && { delay: NotBefore }),
    ...(typeof NotBefore === 'string' && {
      at: new Date(notBeforeMs(NotBefore, 0) ?? 0).toISOString(),
    }),
    ...(transaction.Debounce !== undefined && {
      DebounceKey: transaction.Debounce.Key,
      absorbed: transaction.absorbed,
    }),
    Tags: storedTags(transaction) ?? undefined,
  }
}

/**
 * Records the queued runs in the action log. The reasons are looked up in one JSON object, because a join would compare
 * each reason with each row. OFFSET makes PostgreSQL parse the object only once.
 */
const recordQueued = (
  sql: postgres.Sql | postgres.TransactionSql,
  by: Actor,
  transactions: readonly NewTransaction[],
) => {
  const reasons = Object.fromEntries(
    transactions
      .flatMap(({ TransactionID, Reason }) =>
        Reason === undefined ? [] : [[TransactionID, Reason] as const],
      )
      .toReversed(), // if two lines have the same id, the first line wins
  )
  return sql`
    insert into "Order_Action" ("KeyID", "Person", "Action", "Process", "TransactionID", "ReplayID",
      "Realm", "Reason", "Outcome")
    select ${by.keyId}, ${by.person}, 'queue', "Process", "TransactionID", "ReplayID", "Realm",
      reasons ->> "TransactionID", 'done'
    from changed, (select ${JSON.stringify(reasons)}::text::jsonb as reasons offset 0) given`
}

/**
 * Reserves places for delayed runs that a service key is about to queue. Ids that exist already need no place. Returns
 * the ids for which the key has no place left, and which must not be queued. A place is a row of `"Order_Delayed"`. It is
 * stored before the run, so a row without a run counts for ten minutes: its run may be about to be stored. The rows of
 * runs that no longer wait are deleted when the key has no place left, so that starting a run does not touch the table.
 * The place of a transaction that is absorbed is free again.
 */
export async function reserveDelayed(
  tx: postgres.TransactionSql,
  process: string,
  keyId: string,
  ids: readonly string[],
): Promise<ReadonlySet<string>> {
  // The lock lets only one request of a key reserve at a time, so the count contains every earlier reservation.
  await tx`select pg_advisory_xact_lock(hashtextextended(${`delayed runs of ${keyId}`}, 0))`
  // OFFSET makes PostgreSQL look each id up by its key, as in `firstRuns`.
  const given = JSON.stringify([...new Set(ids)])
  const added = await tx<{ id: string }[]>`
    select id from jsonb_array_elements_text(${given}::text::jsonb) as id
    where not exists (select from "Order_Header" h
        where h."Process" = ${process} and h."TransactionID" = id and h."ReplayID" = 0 offset 0)
      and not exists (select from "Order_Absorbed" a where a."Process" = ${process} and a."TransactionID" = id offset 0)
      and not exists (select from "Order_Delayed" d where d."Process" = ${process} and d."TransactionID" = id offset 0)`
  const countPlaces = async (): Promise<number> => {
    const [row] = await tx<[{ count: number }]>`
      select count(*)::int as count from "Order_Delayed" where "KeyID" = ${keyId}`
    return row.count
  }
  let free = DELAYED_RUNS_PER_KEY - (await countPlaces())
  if (free < added.length) {
    await tx`
      delete from "Order_Delayed" d where d."KeyID" = ${keyId} and not coalesce((
        select h."Status" = 'Queued' and h."NotBefore" > now() from "Order_Header" h
        where h."Process" = d."Process" and h."TransactionID" = d."TransactionID" and h."ReplayID" = 0),
        d."At" > now() - interval '10 minutes')`
    free = DELAYED_RUNS_PER_KEY - (await countPlaces())
  }
  const fitting = added.slice(0, Math.max(0, free)).map(({ id }) => id)
  await tx`
    insert into "Order_Delayed" ("Process", "TransactionID", "KeyID")
    select ${process}, id, ${keyId} from jsonb_array_elements_text(${JSON.stringify(fitting)}::text::jsonb) as id
    order by id on conflict do nothing`
  return new Set(added.slice(fitting.length).map(({ id }) => id))
}
