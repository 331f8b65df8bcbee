/**
 * Transactions in Postgres. Each transition is one statement, for as many runs as arrived together:
 * locked in key order (so that groups of two replicas cannot deadlock), fenced on `Version`, and seen whole
 * or not at all. READ COMMITTED re-checks the condition of a row it had to wait for, so of two claims of
 * one version exactly one wins.
 */
import { isDeepStrictEqual } from 'node:util'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { IntegrationError } from '@integration-host/shared/errors'
import type postgres from 'postgres'
import type { Transition } from '../../process/progress.ts'
import type { Run, RunKey } from '../../transaction/run.ts'
import {
  type Attempt,
  type FinishedItem,
  idempotencyKey,
  type Item,
} from '../../transaction/item.ts'
import { isOver } from '../../transaction/status.ts'
import {
  type Claim,
  type ClaimRequest,
  type ClaimResult,
  type DueRuns,
  LEASE_MS,
  type Lease,
  type Moved,
  type ProcessOutline,
  type QueueResult,
  STUCK_MS,
  SWEEP_CAP_MS,
  SWEEP_MS,
  type TransactionSource,
} from '../../transaction/transaction-source.ts'
import { isoTime, type PostgresConnection } from './connection.ts'
import { grouped } from '@integration-host/shared/grouped'
import type { orderAttempt, orderHeader, orderItem } from './schema.ts'

type HeaderRow = typeof orderHeader.$inferSelect
type ItemRow = typeof orderItem.$inferSelect
type AttemptRow = typeof orderAttempt.$inferSelect
type Numbered<Row> = Row & { readonly n: number }

export interface PostgresSourceOptions {
  /** Milliseconds until a message that should have arrived is sent again, at first. */
  readonly sweepMs?: number
  readonly leaseMs?: number
}

const QUEUE_GROUP = 1_000
/** The part of the time until the next look that must be left, or a transition sets it anew. */
const WELL_AFTER = 2 / 3
/** How many of an hour's rows an audit compares: it runs each minute, and an hour may bring millions. */
const AUDITED = 100_000
/** The trigger `Order_Header_inserted` notifies here, of rows that are inserted due: ours never are. */
const DUE_CHANNEL = 'Order_Header'

export function createPostgresTransactionSource(
  connection: PostgresConnection,
  { sweepMs = SWEEP_MS, leaseMs = LEASE_MS }: PostgresSourceOptions = {},
): TransactionSource {
  const { run } = connection

  const claim = grouped<ClaimRequest, ClaimResult>((requests) =>
    run(async (sql) => {
      const wanted = requests.map((request, n) => ({ ...request, n }))
      const claimed = await sql<ClaimedRow[]>`
        with moved as (
          update "Order_Header" h set
            "Status" = 'Running', "StepName" = w.step, "Version" = h."Version" + 1,
            "LeaseOwner" = w.owner, "LeaseUntil" = now() + ${leaseMs} * interval '1 ms',
            "NextSweepAt" = least(h."NextSweepAt", now() + ${leaseMs} * interval '1 ms'), -- mostly as it was
            "SweepCount" = 0, "StartedAt" = now(), "Attempt" = h."Attempt" + 1, "WaitingFor" = null,
            "InDoubt" = h."InDoubt" or h."LeaseUntil" is not null, "UpdatedAt" = now()
          from (
            select * from json_to_recordset(${JSON.stringify(wanted)}::text::json) as w(
              n int, "Process" text, "TransactionID" text, "ReplayID" int, step text, "isFirst" boolean,
              version int, owner text)
            where ${areFew(sql)}
            order by "Process", "TransactionID", "ReplayID") w
          where ${isRunOf(sql, 'w')}
            and (h."Version" = w.version or (h."Version" = w.version + 1 and h."LeaseUntil" <= now()))
            and (h."StepName" = w.step or (h."StepName" = '' and w."isFirst"))
            and h."Status" in ('Queued', 'Running', 'Retrying', 'Waiting')
            and (h."LeaseUntil" is null or h."LeaseUntil" <= now())
            and coalesce(h."NextAttemptAt", now()) <= now()
          returning w.n, w."isFirst", h.*
        ), lost as (
          insert into "Order_Attempt"
            ("Process", "TransactionID", "ReplayID", "StepName", "Attempt", "Outcome", "StartedAt")
          select h."Process", h."TransactionID", h."ReplayID", h."StepName", h."Attempt", 'in_doubt',
            coalesce(h."StartedAt", now())
          from moved m, "Order_Header" h -- as it was before this statement
          where m."InDoubt" and ${isRunOf(sql, 'm')} and h."LeaseUntil" is not null
        )
        select n, "Version", "Attempt", "InDoubt", "InitialData", "Realm", "NextAttemptAt", "LastError",
          "ErrorClass", "CreatedAt", "UpdatedAt", case when not "isFirst" or "Version" > 1 then (
          select json_agg(f) from (
            select "StepName", "ResponseStatus", "ResponseBody", "Data" from "Order_Item" i
            where (i."Process", i."TransactionID", i."ReplayID")
              = (m."Process", m."TransactionID", m."ReplayID")
              and i."Status" in ('Completed', 'Copied')) f) end as items
        from moved m`
      const byNumber = new Map(claimed.map((row) => [row.n, row]))
      const refused = wanted.filter(({ n }) => !byNumber.has(n))
      const reasons = refused.length === 0 ? NO_REASONS : await whyRefused(sql, refused)
      return wanted.map(({ n, ...request }): ClaimResult => {
        const row = byNumber.get(n)
        return row === undefined
          ? (reasons.get(n) ?? { kind: 'unknown' })
          : { kind: 'claimed', claim: claimOf(request, row) }
      })
    }),
  )

  const record = grouped<{ lease: Lease; transition: Transition }, Moved | null>((outcomes) =>
    run(async (sql) => {
      // Most members are null mostly, and a member that is left out is null there.
      const done = outcomes.map(({ lease, transition }, n) => ({
        n,
        Process: lease.Process,
        TransactionID: lease.TransactionID,
        ReplayID: lease.ReplayID,
        step: lease.step,
        version: lease.version,
        owner: lease.owner,
        ran: lease.attempt,
        startedAt: lease.startedAt,
        key: idempotencyKey(lease, lease.step),
        status: transition.status,
        stepName: transition.stepName,
        attempt: transition.attempt,
        delayMs: transition.delayMs,
        waitingFor: transition.waitingFor ?? undefined,
        lastError: transition.lastError ?? undefined,
        errorClass: transition.errorClass ?? undefined,
        isOver: isOver(transition.status),
        isInDoubt: transition.isInDoubt,
        sweepMs: transition.continues === true ? undefined : transition.delayMs + sweepMs,
        // A message goes out with the commit; looking again makes sense only well after it.
        soonMs: transition.delayMs + sweepMs * WELL_AFTER,
        leasedMs: transition.continues === true ? leaseMs : undefined,
        itemStatus: transition.item?.status,
        itemError: transition.item?.error ?? undefined,
        data: transition.item?.data,
        responseStatus: transition.item?.response?.status,
        responseBody: transition.item?.response?.body,
      }))
      const rows = await sql<MovedRow[]>`
        with done as (
          select * from json_to_recordset(${JSON.stringify(done)}::text::json) as d(
            n int, "Process" text, "TransactionID" text, "ReplayID" int, step text, version int, owner text,
            key text, status text, "stepName" text, attempt int, "delayMs" float8, "sweepMs" float8,
            "waitingFor" text, "lastError" text, "errorClass" text, "isOver" boolean, "isInDoubt" boolean,
            "itemStatus" text, "responseStatus" int, "responseBody" text, data jsonb, "itemError" text,
            "leasedMs" float8, "soonMs" float8, ran int, "startedAt" timestamptz)
          where ${areFew(sql)}
          order by "Process", "TransactionID", "ReplayID"
        ), moved as (
          update "Order_Header" h set
            "Status" = d.status, "StepName" = d."stepName", "Version" = h."Version" + 1,
            "LeaseOwner" = case when d."leasedMs" is not null then d.owner end,
            "LeaseUntil" = now() + d."leasedMs" * interval '1 ms',
            "StartedAt" = case when d."leasedMs" is not null then now() end,
            "Attempt" = d.attempt, "InDoubt" = d."isInDoubt", "WaitingFor" = d."waitingFor",
            "LastError" = d."lastError", "ErrorClass" = d."errorClass",
            "NextAttemptAt" = case when not d."isOver" then now() + d."delayMs" * interval '1 ms' end,
            -- Left as it is wherever that will do: it is in an index. While there is a lease no pull comes.
            "NextSweepAt" = case
              when d."sweepMs" is null or h."NextSweepAt" - now() between d."soonMs" * interval '1 ms'
                and d."sweepMs" * interval '1 ms' then h."NextSweepAt"
              else now() + d."sweepMs" * interval '1 ms' end,
            "SweepCount" = 0, "UpdatedAt" = now(), "CompletedAt" = case when d."isOver" then now() end
          from done d
          where ${isRunOf(sql, 'd')} and h."Version" = d.version and h."LeaseOwner" = d.owner
          returning d.n, d.step, d.key, d."itemStatus", d."responseStatus", d."responseBody", d.data,
            d."itemError", d.ran, d."startedAt", h."Process", h."TransactionID", h."ReplayID",
            h."ErrorClass", h."NextAttemptAt", h."UpdatedAt"
        ), items as (
          insert into "Order_Item" as i ("Process", "TransactionID", "ReplayID", "StepName", "Status",
            "Attempt", "IdempotencyKey", "ResponseStatus", "ResponseBody", "Data", "Error",
            "StartedAt", "FinishedAt")
          select "Process", "TransactionID", "ReplayID", step, "itemStatus", ran, key,
            "responseStatus", "responseBody", data, "itemError", "startedAt", now()
          from moved where "itemStatus" is not null
          on conflict ("Process", "TransactionID", "ReplayID", "StepName") do update set
            "Status" = excluded."Status", "Attempt" = excluded."Attempt",
            "ResponseStatus" = excluded."ResponseStatus", "ResponseBody" = excluded."ResponseBody",
            "Data" = excluded."Data", "Error" = excluded."Error",
            "StartedAt" = excluded."StartedAt", "FinishedAt" = excluded."FinishedAt"
            where i."Status" <> 'Completed'
        ), attempts as (
          insert into "Order_Attempt" ("Process", "TransactionID", "ReplayID", "StepName", "Attempt",
            "Outcome", "ResponseStatus", "Error", "StartedAt", "FinishedAt")
          select "Process", "TransactionID", "ReplayID", step, ran,
            coalesce("ErrorClass", 'completed'), "responseStatus", "itemError", "startedAt", now()
          from moved where "itemStatus" is not null
        )
        select n, "NextAttemptAt", "UpdatedAt" from moved`
      const byNumber = new Map(rows.map((row) => [row.n, row]))
      return outcomes.map(({ lease, transition }, n) => {
        const row = byNumber.get(n)
        return row === undefined ? null : movedOf(lease, transition, row)
      })
    }),
  )

  return {
    async queue(process, transactions) {
      const results: QueueResult[] = []
      for (let start = 0; start < transactions.length; start += QUEUE_GROUP) {
        const group = transactions.slice(start, start + QUEUE_GROUP)
        results.push(...(await run((sql) => queueGroup(sql, process, group, sweepMs))))
      }
      return results
    },

    claim,
    record: (lease, transition) => record({ lease, transition }),

    renew: (leases) =>
      run(async (sql) => {
        const rows = await sql<{ n: number }[]>`
          with held as (
            select l.n, h.*
            from (
              select *
              from jsonb_to_recordset(${JSON.stringify(leases.map((lease, n) => ({ ...lease, n })))}::text::jsonb)
                as l(n int, "Process" text, "TransactionID" text, "ReplayID" int, version int, owner text)
              order by "Process", "TransactionID", "ReplayID") l
              cross join lateral (
                select "Process", "TransactionID", "ReplayID" from "Order_Header" h
                where ${isRunOf(sql, 'l')} and h."Version" = l.version and h."LeaseOwner" = l.owner
                for update) h
          )
          update "Order_Header" h set "LeaseUntil" = now() + ${leaseMs} * interval '1 ms'
          from held
          where (h."Process", h."TransactionID", h."ReplayID")
            = (held."Process", held."TransactionID", held."ReplayID")
          returning held.n`
        const kept = new Set(rows.map(({ n }) => n))
        return leases.filter((_, n) => !kept.has(n))
      }),

    due: (steps, limit) =>
      run(async (sql) => {
        const rows = await sql<HeaderRow[]>`
          with picked as (
            select h."Process", h."TransactionID", h."ReplayID"
            from "Order_Header" h
            where h."CompletedAt" is null and h."NextSweepAt" <= now()
              and h."Status" in ('Queued', 'Running', 'Retrying', 'Waiting')
              and (h."LeaseUntil" is null or h."LeaseUntil" <= now())
              and exists (
                select from jsonb_to_recordset(${JSON.stringify(steps)}::text::jsonb)
                  as s(process text, step text, "isFirst" boolean)
                where s.process = h."Process"
                  and (s.step = h."StepName" or (h."StepName" = '' and s."isFirst")))
            order by h."NextSweepAt" limit ${limit}
            for update of h skip locked
          )
          update "Order_Header" h set
            "SweepCount" = h."SweepCount" + 1,
            "NextSweepAt" = now() + least(${SWEEP_CAP_MS}, ${sweepMs} * power(2, least(h."SweepCount", 20)))
              * interval '1 ms'
          from picked
          where (h."Process", h."TransactionID", h."ReplayID")
            = (picked."Process", picked."TransactionID", picked."ReplayID")
          returning h.*`
        return rows.map(headerOf)
      }),

    adopt: (limit) =>
      run(async (sql) => {
        const rows = await sql<HeaderRow[]>`
          with held as (
            select * from "Order_Header" h
            where h."CompletedAt" is null and h."NextSweepAt" <= now()
              and h."Status" = 'Running' and h."LeaseUntil" <= now()
            order by h."NextSweepAt" limit ${limit}
            for update of h skip locked
          ), lost as (
            insert into "Order_Attempt"
              ("Process", "TransactionID", "ReplayID", "StepName", "Attempt", "Outcome", "StartedAt")
            select "Process", "TransactionID", "ReplayID", "StepName", "Attempt", 'in_doubt',
              coalesce("StartedAt", now())
            from held
          )
          update "Order_Header" h set "LeaseOwner" = null, "LeaseUntil" = null, "StartedAt" = null,
            "InDoubt" = true, "Version" = h."Version" + 1, "NextSweepAt" = now() + ${sweepMs} * interval '1 ms',
            "SweepCount" = 0, "UpdatedAt" = now()
          from held
          where (h."Process", h."TransactionID", h."ReplayID")
            = (held."Process", held."TransactionID", held."ReplayID")
          returning h.*`
        return rows.map(headerOf)
      }),

    runsAtUnknownStep: (processes, limit) =>
      run(async (sql) => {
        const rows = await sql<HeaderRow[]>`
          select h.* from "Order_Header" h
            join jsonb_to_recordset(${JSON.stringify(processes)}::text::jsonb) as p(name text, steps jsonb)
              on p.name = h."Process"
          where h."CompletedAt" is null and h."NextSweepAt" <= now()
            and h."Status" in ('Queued', 'Running', 'Retrying', 'Waiting')
            and (h."LeaseUntil" is null or h."LeaseUntil" <= now())
            and h."StepName" <> '' and not p.steps ? h."StepName"
          order by h."NextSweepAt" limit ${limit}`
        return rows.map(headerOf)
      }),

    refuse: (key, version, errorClass, error) =>
      run(async (sql) => {
        const rows = await sql<HeaderRow[]>`
          update "Order_Header" h set "Status" = 'Failed', "Version" = h."Version" + 1,
            "InDoubt" = h."InDoubt" or h."LeaseUntil" is not null, "LeaseOwner" = null,
            "LeaseUntil" = null, "NextAttemptAt" = null, "ErrorClass" = ${errorClass}, "LastError" = ${error}, "UpdatedAt" = now(), "CompletedAt" = now()
          where ${isRun(sql, key)} and h."Version" = ${version}
            and h."Status" in ('Queued', 'Running', 'Retrying', 'Waiting')
            and (h."LeaseUntil" is null or h."LeaseUntil" <= now())
          returning h.*`
        return rows[0] === undefined ? null : headerOf(rows[0])
      }),

    get: (process, transactionId, replayId) =>
      run(async (sql) => {
        const [row] = await sql<(HeaderRow & { items: ItemRow[]; attempts: AttemptRow[] })[]>`
          select h.*,
            coalesce((select jsonb_agg(to_jsonb(i)) from "Order_Item" i
              where (i."Process", i."TransactionID", i."ReplayID")
                = (h."Process", h."TransactionID", h."ReplayID")), '[]') as items,
            coalesce((select jsonb_agg(to_jsonb(a) order by a."ID") from "Order_Attempt" a
              where (a."Process", a."TransactionID", a."ReplayID")
                = (h."Process", h."TransactionID", h."ReplayID")), '[]') as attempts
          from "Order_Header" h
          where h."Process" = ${process} and h."TransactionID" = ${transactionId}
            and (${replayId}::int is null or h."ReplayID" = ${replayId}::int)
          order by h."ReplayID" desc limit 1`
        return row === undefined
          ? null
          : {
              header: headerOf(row),
              items: row.items.map(itemOf),
              attempts: row.attempts.map(attemptOf),
            }
      }),

    list: (process, { status, since, after, limit }) =>
      run(async (sql) => {
        const rows = await sql<(HeaderRow & { position: string })[]>`
          select h.*, h."CreatedAt"::text as position from "Order_Header" h
          where h."Process" = ${process} and h."Process" <> '' -- as "Order_Header_newest" has it
            and (${status ?? null}::text is null or h."Status" = ${status ?? null}::text)
            and (${since ?? null}::text is null or h."CompletedAt" >= (${since ?? null}::text)::timestamptz
              or (h."CompletedAt" is null and h."UpdatedAt" >= (${since ?? null}::text)::timestamptz))
            and (${after?.createdAt ?? null}::text is null
              or (h."CreatedAt", h."TransactionID", h."ReplayID")
                < ((${after?.createdAt ?? null}::text)::timestamptz, ${after?.transactionId ?? null}::text,
                  ${after?.replayId ?? null}::int))
          order by h."CreatedAt" desc, h."TransactionID" desc, h."ReplayID" desc
          limit ${limit + 1}`
        const last = rows.length > limit ? rows[limit - 1] : undefined
        return {
          headers: rows.slice(0, limit).map(headerOf),
          next:
            last === undefined
              ? null
              : {
                  createdAt: last.position,
                  transactionId: last.TransactionID,
                  replayId: last.ReplayID,
                },
        }
      }),

    replay: (process, transactionId, fromStep) =>
      run((sql) => sql.begin((tx) => replayRun(tx, process, transactionId, fromStep, sweepMs))),

    resume: (process, transactionId, replayId) =>
      run((sql) =>
        sql.begin(async (tx) => {
          const key = await lockRun(tx, process, transactionId, replayId)
          const [row] = await tx<HeaderRow[]>`
            update "Order_Header" h set
              "Status" = 'Queued', "Version" = h."Version" + 1, "Attempt" = 0, "NextAttemptAt" = now(),
              "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0,
              "LastError" = null, "ErrorClass" = null, "WaitingFor" = null, "CompletedAt" = null,
              "UpdatedAt" = now()
            where ${isRun(tx, key)} and h."Status" in ('Failed', 'Cancelled')
            returning h.*`
          if (row === undefined)
            throw new IntegrationError(
              'transaction_not_resumable',
              'only a failed or cancelled run goes on; a completed one can be replayed',
            )
          return headerOf(row)
        }),
      ),

    cancel: (process, transactionId, replayId) =>
      run((sql) =>
        sql.begin(async (tx) => {
          const key = await lockRun(tx, process, transactionId, replayId)
          const [row] = await tx<HeaderRow[]>`
            update "Order_Header" h set
              "Status" = 'Cancelled', "Version" = h."Version" + 1,
              "InDoubt" = h."InDoubt" or h."LeaseUntil" is not null, "LeaseOwner" = null,
              "LeaseUntil" = null, "StartedAt" = null, "NextAttemptAt" = null, "WaitingFor" = null,
              "CompletedAt" = now(), "UpdatedAt" = now()
            where ${isRun(tx, key)} and h."Status" in ('Queued', 'Running', 'Retrying', 'Waiting')
            returning h.*`
          if (row === undefined)
            throw new IntegrationError('transaction_not_active', 'the run is over')
          return headerOf(row)
        }),
      ),

    wake: (credential, limit) =>
      run(async (sql) => {
        const rows = await sql<HeaderRow[]>`
          with held as (
            select * from "Order_Header" h
            where h."Status" = 'Waiting' and h."WaitingFor" = ${credential}
            order by h."CreatedAt" limit ${limit} for update of h skip locked
          )
          update "Order_Header" h set
            "Status" = 'Running', "Version" = h."Version" + 1, "WaitingFor" = null,
            "NextAttemptAt" = now(), "NextSweepAt" = now() + ${sweepMs} * interval '1 ms',
            "SweepCount" = 0, "LastError" = null, "ErrorClass" = null, "UpdatedAt" = now()
          from held
          where (h."Process", h."TransactionID", h."ReplayID")
            = (held."Process", held."TransactionID", held."ReplayID")
          returning h.*`
        return rows.map(headerOf)
      }),

    paused: () =>
      run(async (sql) => {
        const rows = await sql<{ Process: string }[]>`
          select "Process" from "Order_Process" where "Paused"`
        return new Set(rows.map(({ Process }) => Process))
      }),

    setPaused: (process, isPaused) =>
      run(async (sql) => {
        await sql`
          insert into "Order_Process" ("Process", "Paused") values (${process}, ${isPaused})
          on conflict ("Process") do update set "Paused" = excluded."Paused", "UpdatedAt" = now()`
      }),

    audit: (processes) =>
      run((sql) =>
        sql.begin(async (tx) => {
          // It reads much of the tables; on this one connection, and never beyond this transaction.
          await tx`set local enable_seqscan = on`
          await tx`set local enable_hashjoin = on`
          await tx`set local enable_mergejoin = on`
          const counts = await tx<{ Status: HeaderRow['Status']; count: number }[]>`
          select "Status", count(*)::int as count from "Order_Header" group by 1`
          const dueBySteps = await tx<DueRuns[]>`
          select "Process" as process, "StepName" as step, count(*)::int as due,
            (extract(epoch from now() - min(greatest(coalesce("NextAttemptAt", "CreatedAt"), "LeaseUntil")))
              * 1000)::float8 as "oldestMs"
          from "Order_Header"
          where "CompletedAt" is null and "Status" in ('Queued', 'Running', 'Retrying')
            and coalesce("NextAttemptAt", now()) <= now()
            and ("LeaseUntil" is null or "LeaseUntil" <= now())
          group by 1, 2 order by 1, 2`
          const [found] = await tx<[Awaited<ReturnType<TransactionSource['audit']>>['violations']]>`
          select
            (select count(*)::int from (
                select * from "Order_Header"
                where "Status" = 'Completed' and "CompletedAt" > now() - interval '1 hour'
                order by "CompletedAt" desc limit ${AUDITED}) h
              where not exists (select from "Order_Item" i where i."Process" = h."Process"
                and i."TransactionID" = h."TransactionID" and i."ReplayID" = h."ReplayID"
                and i."StepName" = h."StepName" and i."Status" = 'Completed')) as "completedWithoutItem",
            (select count(*)::int from "Order_Header" h join "Order_Item" i
              using ("Process", "TransactionID", "ReplayID", "StepName")
              where h."CompletedAt" is null and h."Status" in ('Queued', 'Running', 'Retrying', 'Waiting')
              and i."Status" = 'Completed') as "itemAhead",
            (select count(*)::int from (
                select * from "Order_Item" where "FinishedAt" > now() - interval '1 hour'
                limit ${AUDITED}) i
              where not exists (select from "Order_Header" h where h."Process" = i."Process"
                and h."TransactionID" = i."TransactionID" and h."ReplayID" = i."ReplayID")) as "orphanItems",
            (select count(*)::int from "Order_Header"
              where "CompletedAt" is null and "Status" in ('Queued', 'Running', 'Retrying', 'Waiting')
              and greatest("NextSweepAt", "LeaseUntil") < now() - ${STUCK_MS} * interval '1 ms'
              and not exists (select from "Order_Process" p
                where p."Process" = "Order_Header"."Process" and p."Paused")) as stuck,
            (select count(*)::int from "Order_Header"
              where "CompletedAt" is null and "Status" in ('Queued', 'Running', 'Retrying', 'Waiting')
              and not ${JSON.stringify(processes)}::text::jsonb ? "Process") as "unknownProcess"`
          return {
            headers: Object.fromEntries(counts.map(({ Status, count }) => [Status, count])),
            dueBySteps,
            violations: found,
          }
        }),
      ),

    watch: (onDue) => connection.listen(DUE_CHANNEL, onDue),

    [Symbol.asyncDispose]: () => connection[Symbol.asyncDispose](),
  }
}

/**
 * Names the row that a row of `alias` is about, one look into the primary key for each: joined as a set, the
 * planner reads all active rows for every group. Used under LATERAL with FOR UPDATE, in key order.
 */
const isRunOf = (sql: postgres.Sql, alias: 'w' | 'd' | 'l' | 'm') => {
  const other = sql(alias)
  return sql`h."Process" = ${other}."Process" and h."TransactionID" = ${other}."TransactionID"
    and h."ReplayID" = ${other}."ReplayID"`
}

/**
 * True for every row of a group. The planner takes a group for a hundred rows, so reading a small table whole looks
 * cheaper than looking each up by its key, and the plan stays when the table has grown. Two bounds make it expect
 * one row (DEFAULT_RANGE_INEQ_SEL).
 */
const areFew = (sql: postgres.Sql) => sql`n between 0 and 1000000`

/** Names one row of `"Order_Header"`, aliased `h`. */
const isRun = (sql: postgres.Sql | postgres.TransactionSql, key: RunKey) =>
  sql`h."Process" = ${key.Process} and h."TransactionID" = ${key.TransactionID} and h."ReplayID" = ${key.ReplayID}`

/** Locks the run that is meant, the latest one when none is named. */
async function lockRun(
  tx: postgres.TransactionSql,
  process: string,
  transactionId: string,
  replayId: number | null,
): Promise<RunKey> {
  const [row] = await tx<HeaderRow[]>`
    select * from "Order_Header" h
    where h."Process" = ${process} and h."TransactionID" = ${transactionId}
      and (${replayId}::int is null or h."ReplayID" = ${replayId}::int)
    order by h."ReplayID" desc limit 1 for update`
  if (row === undefined)
    throw new IntegrationError('transaction_not_found', 'there is no such transaction')
  return row
}

async function queueGroup(
  sql: postgres.Sql,
  process: ProcessOutline,
  transactions: readonly QueueTransaction[],
  sweepMs: number,
): Promise<QueueResult[]> {
  const added = await sql<HeaderRow[]>`
    insert into "Order_Header" ("Process", "TransactionID", "StepName", "InitialData", "Realm", "NextSweepAt")
    select ${process.name}, t."TransactionID", ${process.steps[0]}, coalesce(t."InitialData", 'null'::jsonb),
      t."Realm", now() + ${sweepMs} * interval '1 ms'
    from jsonb_to_recordset(${JSON.stringify(transactions.map((transaction, n) => ({ ...transaction, n })))}::text::jsonb)
      as t(n int, "TransactionID" text, "InitialData" jsonb, "Realm" text)
    order by t."TransactionID" -- two groups with the same ids must lock them in the same order
    on conflict do nothing
    returning *`
  const isNew = new Set(added.map(({ TransactionID }) => TransactionID))
  const known = new Map(added.map((row) => [row.TransactionID, headerOf(row)]))
  const others = transactions.filter(({ TransactionID }) => !known.has(TransactionID))
  if (others.length > 0) {
    const rows = await sql<HeaderRow[]>`
      select * from "Order_Header" where "Process" = ${process.name} and "ReplayID" = 0
        and "TransactionID" in (select jsonb_array_elements_text(
          ${JSON.stringify(others.map(({ TransactionID }) => TransactionID))}::text::jsonb))`
    for (const row of rows) known.set(row.TransactionID, headerOf(row))
  }
  return transactions.map((transaction): QueueResult => {
    const header = known.get(transaction.TransactionID)
    if (header === undefined) throw new Error('a queued row is gone') // somebody deletes rows by hand
    if (isNew.delete(transaction.TransactionID)) return { outcome: 'queued', header }
    return isDeepStrictEqual(header.InitialData, transaction.InitialData) &&
      header.Realm === (transaction.Realm ?? null)
      ? { outcome: 'exists', header }
      : { outcome: 'conflict' }
  })
}

/** What the column holds. */
const MAX_REPLAY_ID = 2_147_483_647

async function replayRun(
  tx: postgres.TransactionSql,
  process: ProcessOutline,
  transactionId: string,
  fromStep: string | null,
  sweepMs: number,
): Promise<Run> {
  // Run 0 is the mutex of the transaction: of two replays one sees the other's run.
  await tx`select from "Order_Header" where "Process" = ${process.name}
    and "TransactionID" = ${transactionId} and "ReplayID" = 0 for update`
  const latest = await lockRun(tx, process.name, transactionId, null)
  const [active] = await tx<HeaderRow[]>`
    select * from "Order_Header" where "Process" = ${process.name} and "TransactionID" = ${transactionId}
      and "Status" in ('Queued', 'Running', 'Retrying', 'Waiting') limit 1`
  if (active !== undefined)
    throw new IntegrationError('transaction_active', `run ${active.ReplayID} is still active`)
  if (latest.ReplayID === MAX_REPLAY_ID)
    throw new IntegrationError('transaction_conflict', 'the transaction has no replay ids left')
  const first = fromStep ?? process.steps[0]
  const replayId = latest.ReplayID + 1
  const [row] = await tx<HeaderRow[]>`
    insert into "Order_Header" ("Process", "TransactionID", "ReplayID", "StepName", "InitialData", "Realm", "NextSweepAt")
    select "Process", "TransactionID", ${replayId}, ${first}, "InitialData", "Realm",
      now() + ${sweepMs} * interval '1 ms'
    from "Order_Header" h where ${isRun(tx, latest)}
    returning *`
  if (row === undefined) throw new Error('the locked run is gone')
  const before = process.steps.slice(0, process.steps.indexOf(first))
  const keys = before.map((step) => ({
    step,
    key: idempotencyKey({ ...latest, ReplayID: replayId }, step),
  }))
  const copied = await tx`
    insert into "Order_Item" ("Process", "TransactionID", "ReplayID", "StepName", "Status", "Attempt",
      "IdempotencyKey", "ResponseStatus", "ResponseBody", "Data", "StartedAt", "FinishedAt")
    select i."Process", i."TransactionID", ${replayId}, i."StepName", 'Copied', 0, k.key,
      i."ResponseStatus", i."ResponseBody", i."Data", i."StartedAt", i."FinishedAt"
    from "Order_Item" i join jsonb_to_recordset(${JSON.stringify(keys)}::text::jsonb) as k(step text, key text)
      on k.step = i."StepName"
    where i."Process" = ${latest.Process} and i."TransactionID" = ${latest.TransactionID}
      and i."ReplayID" = ${latest.ReplayID} and i."Status" in ('Completed', 'Copied')`
  if (copied.count < before.length)
    throw new IntegrationError('invalid_request', 'a step before fromStep was never completed')
  return headerOf(row)
}

/** Why claims were refused, from the rows as they are now. */
async function whyRefused(
  sql: postgres.Sql,
  refused: readonly (ClaimRequest & { readonly n: number })[],
): Promise<ReadonlyMap<number, ClaimResult>> {
  const rows = await sql<
    (Numbered<HeaderRow> & { asked: number; step: string; delayMs: number | null })[]
  >`
    select w.n, w.version as asked, w.step, h.*,
      (extract(epoch from h."NextAttemptAt" - now()) * 1000)::float8 as "delayMs"
    from jsonb_to_recordset(${JSON.stringify(refused)}::text::jsonb)
      as w(n int, "Process" text, "TransactionID" text, "ReplayID" int, version int, step text)
      join "Order_Header" h using ("Process", "TransactionID", "ReplayID")`
  return new Map(
    rows.map((row): [number, ClaimResult] => {
      const isDueLater =
        row.Version === row.asked &&
        (row.StepName === row.step || row.StepName === '') &&
        row.LeaseUntil === null &&
        row.delayMs !== null &&
        (row.Status === 'Retrying' || row.Status === 'Queued' || row.Status === 'Running')
      return [
        row.n,
        isDueLater
          ? { kind: 'early', delayMs: Math.max(0, row.delayMs ?? 0), version: row.Version }
          : { kind: 'stale' },
      ]
    }),
  )
}

const NO_REASONS: ReadonlyMap<number, ClaimResult> = new Map()

type ClaimedRow = Pick<
  Numbered<HeaderRow>,
  | 'n'
  | 'Version'
  | 'Attempt'
  | 'InDoubt'
  | 'InitialData'
  | 'Realm'
  | 'NextAttemptAt'
  | 'LastError'
  | 'ErrorClass'
  | 'CreatedAt'
  | 'UpdatedAt'
> & { readonly items: FinishedItem[] | null }

/** What the request says already does not come back from the database. */
function claimOf(
  { Process, TransactionID, ReplayID, step, owner }: ClaimRequest,
  row: ClaimedRow,
): Claim {
  return {
    lease: {
      Process,
      TransactionID,
      ReplayID,
      step,
      version: row.Version,
      owner,
      attempt: row.Attempt,
      startedAt: row.UpdatedAt,
    },
    header: {
      Process,
      TransactionID,
      ReplayID,
      Status: 'Running',
      StepName: step,
      InitialData: row.InitialData as Run['InitialData'],
      Realm: row.Realm,
      Version: row.Version,
      Attempt: row.Attempt,
      InDoubt: row.InDoubt,
      NextAttemptAt: row.NextAttemptAt,
      WaitingFor: null,
      LastError: row.LastError,
      ErrorClass: row.ErrorClass,
      CreatedAt: row.CreatedAt,
      UpdatedAt: row.UpdatedAt,
      CompletedAt: null,
    },
    items: row.items ?? [],
  }
}

type MovedRow = Pick<Numbered<HeaderRow>, 'n' | 'NextAttemptAt' | 'UpdatedAt'>

function movedOf(lease: Lease, transition: Transition, row: MovedRow): Moved {
  return {
    Process: lease.Process,
    TransactionID: lease.TransactionID,
    ReplayID: lease.ReplayID,
    Status: transition.status,
    StepName: transition.stepName,
    Version: lease.version + 1,
    Attempt: transition.attempt,
    InDoubt: transition.isInDoubt,
    NextAttemptAt: row.NextAttemptAt,
    WaitingFor: transition.waitingFor,
    LastError: transition.lastError,
    ErrorClass: transition.errorClass,
    UpdatedAt: row.UpdatedAt,
    CompletedAt: isOver(transition.status) ? row.UpdatedAt : null,
  }
}

const headerOf = (row: HeaderRow): Run => ({
  Process: row.Process,
  TransactionID: row.TransactionID,
  ReplayID: row.ReplayID,
  Status: row.Status,
  StepName: row.StepName,
  InitialData: row.InitialData as Run['InitialData'],
  Realm: row.Realm,
  Version: row.Version,
  Attempt: row.Attempt,
  NextAttemptAt: row.NextAttemptAt,
  WaitingFor: row.WaitingFor,
  LastError: row.LastError,
  ErrorClass: row.ErrorClass,
  InDoubt: row.InDoubt,
  CreatedAt: row.CreatedAt,
  UpdatedAt: row.UpdatedAt,
  CompletedAt: row.CompletedAt,
})

// Rows that came as JSON have times as Postgres prints them.
const iso = (time: string | null): string | null => (time === null ? null : isoTime(time))

const itemOf = (row: ItemRow): Item => ({
  StepName: row.StepName,
  Status: row.Status,
  Attempt: row.Attempt,
  IdempotencyKey: row.IdempotencyKey,
  ResponseStatus: row.ResponseStatus,
  ResponseBody: row.ResponseBody,
  Data: row.Data as Item['Data'],
  Error: row.Error,
  StartedAt: iso(row.StartedAt),
  FinishedAt: iso(row.FinishedAt),
})

const attemptOf = (row: AttemptRow): Attempt => ({
  StepName: row.StepName,
  Attempt: row.Attempt,
  Outcome: row.Outcome,
  ResponseStatus: row.ResponseStatus,
  Error: row.Error,
  StartedAt: isoTime(row.StartedAt),
  FinishedAt: iso(row.FinishedAt),
})
