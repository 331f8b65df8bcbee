/**
 * The statements of the periodic tasks that look for runs to continue or to end, and those that end or continue runs for
 * another reason than the outcome of a step.
 */
import type postgres from 'postgres'
import type { Run, RunKey } from '../../../run/run.ts'
import { WAITS_FOR_RESUME } from '../../../run/status.ts'
import { type ProcessOutline, type StepRef, SWEEP_CAP_MS } from '../../../run/transaction-source.ts'
import {
  DEADLINE_EXCEEDED,
  LAST_ERROR,
  LOST_BASE_MS,
  LOST_CAP_MS,
  PAST_DEADLINE,
  WORKER_LOST,
  WORKER_WAS_LOST,
} from '../../../run/transitions.ts'
import {
  familiesDue,
  isActive,
  isNotLostAgain,
  isNotWaitingAtPlace,
  isRun,
  isRunOf,
  isUnleased,
  leavesDoubt,
} from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'

/**
 * Returns at most `limit` overdue runs at these steps, and doubles the interval after which each of them is returned
 * again.
 *
 * A row without a step name was inserted by another program. This statement stores the version and the deadline of the
 * process in such a row. The claim of the run does not store them, because a claim should not cause writes to an index.
 * This statement always causes such a write, because it changes `NextSweepAt`. The deadline counts from `CreatedAt`, or
 * from a later `NotBefore`.
 *
 * A run that is not due yet is returned only once before it is due. A second message would be of no use, because the
 * first message is already delayed until that time.
 */
export async function takeDueRuns(
  sql: postgres.Sql,
  steps: readonly StepRef[],
  limit: number,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run[]> {
  const given = JSON.stringify(steps)
  /**
   * Reads a value that belongs to the first step of the run's process. PostgreSQL evaluates this subquery only for the
   * few rows without a step name.
   */
  const ofFirstStep = (value: 's.version' | 's."deadlineMs"') => sql`(
    select ${sql.unsafe(value)} from jsonb_to_recordset(${given}::text::jsonb)
      as s(process text, "isFirst" boolean, version text, "deadlineMs" float8)
    where s.process = h."Process" and s."isFirst")`
  const rows = await sql<RunRow[]>`
    with picked as (
      select h."Process", h."TransactionID", h."ReplayID"
      from "Order_Header" h
      where h."CompletedAt" is null and h."NextSweepAt" <= now()
        and ${isActive(sql)}
        and ${isUnleased(sql)}
        and ${isNotLostAgain(sql)}
        and ${isNotWaitingAtPlace(sql)}
        and exists (
          select from jsonb_to_recordset(${given}::text::jsonb)
            as s(process text, step text, "isFirst" boolean)
          where s.process = h."Process"
            and (s.step = h."StepName" or (h."StepName" = '' and s."isFirst")))
      order by h."NextSweepAt" limit ${limit}
      for update of h skip locked
    )
    update "Order_Header" h set
      "SweepCount" = h."SweepCount" + 1,
      "DefinitionVersion" = case when h."StepName" = ''
        then coalesce(h."DefinitionVersion", ${ofFirstStep('s.version')}) else h."DefinitionVersion" end,
      "DeadlineAt" = case when h."StepName" = ''
        then coalesce(h."DeadlineAt", greatest(h."CreatedAt", h."NotBefore") + ${ofFirstStep('s."deadlineMs"')} * interval '1 ms')
        else h."DeadlineAt" end,
      "NextSweepAt" = greatest(now(), h."NextAttemptAt") + least(${SWEEP_CAP_MS}, ${sweepMs} * power(2, least(h."SweepCount", 20)))
        * interval '1 ms'
    from picked
    where ${isRunOf(sql, 'picked')}
    returning h.*`
  return rows.map(runOf)
}

/**
 * Releases at most `limit` expired leases. Their runs become due again, and the attempts of the lost workers are
 * recorded as `in_doubt`. A run that has lost two or more workers in a row waits before its next attempt.
 */
export async function recoverExpiredLeases(
  sql: postgres.TransactionSql,
  limit: number,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run[]> {
  const rows = await sql<RunRow[]>`
    with held as (
      select *, case when h."ErrorClass" = ${WORKER_LOST}
        then least(${LOST_CAP_MS}::float8, ${LOST_BASE_MS}::float8 * 2 ^ least(greatest(h."Attempt" - 2, 0), 30)) * interval '1 ms'
        end as delay
      from "Order_Header" h
      where h."CompletedAt" is null and h."NextSweepAt" <= now()
        and h."Status" in ('Running', 'Undoing') and h."LeaseUntil" <= now()
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
      "InDoubt" = h."InDoubt" or ${leavesDoubt(sql)}, "Version" = h."Version" + 1,
      "ErrorClass" = ${WORKER_LOST}, "LastError" = ${WORKER_WAS_LOST},
      "Status" = case when delay is null or h."Status" = 'Undoing' then h."Status" else 'Retrying' end,
      "NextAttemptAt" = coalesce(now() + delay, h."NextAttemptAt"),
      "NextSweepAt" = now() + coalesce(delay, interval '0') + ${sweepMs} * interval '1 ms',
      "SweepCount" = 0, "UpdatedAt" = now()
    from held
    where ${isRunOf(sql, 'held')}
    returning h.*`
  return rows.map(runOf)
}

/** Returns at most `limit` overdue runs at a step that does not exist in their process. */
export async function runsAtUnknownStep(
  sql: postgres.Sql,
  processes: readonly ProcessOutline[],
  limit: number,
): Promise<Run[]> {
  const rows = await sql<RunRow[]>`
    select h.* from "Order_Header" h
      join jsonb_to_recordset(${JSON.stringify(processes)}::text::jsonb) as p(name text, steps jsonb)
        on p.name = h."Process"
    where h."CompletedAt" is null and h."NextSweepAt" <= now()
      and ${isActive(sql)}
      and ${isUnleased(sql)}
      and h."StepName" <> '' and not p.steps ? h."StepName"
    order by h."NextSweepAt" limit ${limit}`
  return rows.map(runOf)
}

/**
 * Fails at most `limit` active runs that have no lease and whose deadline has passed. The runs of the processes `undone`
 * begin to be undone instead.
 */
export async function failPastDeadline(
  sql: postgres.TransactionSql,
  limit: number,
  undone: readonly string[],
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run[]> {
  const rows = await sql<RunRow[]>`
    with held as (
      select *, ${JSON.stringify(undone)}::text::jsonb ? h."Process" as "isUndone" from "Order_Header" h
      where h."DeadlineAt" <= now() and h."CompletedAt" is null
        and ${isActive(sql)} and h."Status" <> 'Undoing' and h."LeaseUntil" is null
      order by h."DeadlineAt" limit ${limit}
      for update of h skip locked
    ), families as (${familiesDue(sql, 'held')})
    update "Order_Header" h set
      "Status" = case when "isUndone" then 'Undoing' else 'Failed' end, "Version" = h."Version" + 1,
      "Attempt" = case when "isUndone" then 0 else h."Attempt" end,
      "NextAttemptAt" = case when "isUndone" then now() end, "SweepCount" = 0,
      "NextSweepAt" = case when "isUndone" then now() + ${sweepMs} * interval '1 ms' else h."NextSweepAt" end,
      "WaitingFor" = null, "ErrorClass" = ${DEADLINE_EXCEEDED},
      "LastError" = ${PAST_DEADLINE} || coalesce(${LAST_ERROR} || h."LastError", ''),
      "CompletedAt" = case when not "isUndone" then now() end, "UpdatedAt" = now()
    from held
    where ${isRunOf(sql, 'held')}
    returning h.*`
  await endWaits(sql, rows)
  return rows.map(runOf)
}

/**
 * Fails an active run that has no lease, or begins its undo at the step `undoAt`. Returns `null` if the run has changed
 * since `version`.
 */
export async function failRun(
  sql: postgres.TransactionSql,
  key: RunKey,
  version: number,
  {
    errorClass,
    error,
    undoAt = null,
  }: {
    readonly errorClass: string
    readonly error: string
    readonly undoAt?: string | null | undefined
  },
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run | null> {
  const rows = await sql<RunRow[]>`
    with held as (
      select *, "InDoubt" or ${leavesDoubt(sql)} as doubt from "Order_Header" h
      where ${isRun(sql, key)} and h."Version" = ${version} and ${isActive(sql)} and ${isUnleased(sql)}
      for update of h
    ), decided as (
      select *, ${undoAt}::text is not null and (h."StepName" = ${undoAt} or not doubt) as "isUndone"
      from held h
    )
    update "Order_Header" h set "Version" = h."Version" + 1,
      "InDoubt" = decided.doubt, "LeaseOwner" = null, "LeaseUntil" = null, "WaitingFor" = null,
      "Status" = case when "isUndone" then 'Undoing'
        when ${undoAt}::text is not null or h."Status" = 'Undoing' then 'UndoFailed' else 'Failed' end,
      "StepName" = case when "isUndone" then ${undoAt} else h."StepName" end,
      "Attempt" = case when "isUndone" then 0 else h."Attempt" end,
      "NextAttemptAt" = case when "isUndone" then now() end,
      "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0, "UpdatedAt" = now(),
      "ErrorClass" = case when "isUndone" and h."Status" = 'Undoing' then h."ErrorClass" else ${errorClass} end,
      "LastError" = case when "isUndone" and h."Status" = 'Undoing' then h."LastError" else ${error} end,
      "CompletedAt" = case when not "isUndone" then now() end
    from decided
    where h."Process" = decided."Process" and h."TransactionID" = decided."TransactionID"
      and h."ReplayID" = decided."ReplayID"
    returning h.*`
  await endWaits(sql, rows)
  return rows[0] === undefined ? null : runOf(rows[0])
}

/** Makes at most `limit` runs due again that wait for this credential, or for the resume of this company. */
export async function wakeRuns(
  sql: postgres.Sql,
  waitingFor: string,
  limit: number,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run[]> {
  const keepsError = waitingFor.startsWith(WAITS_FOR_RESUME)
  const rows = await sql<RunRow[]>`
    with held as (
      select * from "Order_Header" h
      where h."Status" in ('Waiting', 'Undoing') and h."WaitingFor" = ${waitingFor}
      order by h."CreatedAt" limit ${limit} for update of h skip locked
    )
    update "Order_Header" h set
      "Status" = case h."Status" when 'Undoing' then h."Status" else 'Running' end, "Version" = h."Version" + 1, "WaitingFor" = null,
      "NextAttemptAt" = now(), "NextSweepAt" = now() + ${sweepMs} * interval '1 ms',
      "SweepCount" = 0, "UpdatedAt" = now(),
      "LastError" = case when ${keepsError} then h."LastError" end,
      "ErrorClass" = case when ${keepsError} then h."ErrorClass" end
    from held
    where ${isRunOf(sql, 'held')}
    returning h.*`
  return rows.map(runOf)
}

/** Ends the items at which these runs have waited, after the runs were cancelled or have failed. */
export async function endWaits(
  tx: postgres.TransactionSql,
  runs: readonly (RunKey & Pick<RunRow, 'Status' | 'ErrorClass'>)[],
): Promise<void> {
  if (runs.length === 0) return
  const ended = runs.map(({ Process, TransactionID, ReplayID, Status, ErrorClass }) => ({
    Process,
    TransactionID,
    ReplayID,
    status: Status === 'Cancelled' ? Status : 'Failed',
    error: Status === 'Cancelled' ? null : ErrorClass,
  }))
  await tx`
    update "Order_Item" i set "Status" = r.status, "FinishedAt" = now(),
      "Error" = coalesce(r.error, i."Error")
    from json_to_recordset(${JSON.stringify(ended)}::text::json) as r("Process" text collate "C",
      "TransactionID" text collate "C", "ReplayID" int, status text, error text)
    where i."Process" = r."Process" and i."TransactionID" = r."TransactionID"
      and i."ReplayID" = r."ReplayID" and i."Status" = 'Waiting'`
}
