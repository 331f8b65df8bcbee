import type postgres from 'postgres'
import type { Run } from '../../../run/run.ts'
import { type StepRef, SWEEP_CAP_MS } from '../../../run/transaction-source.ts'
import {
  isActive,
  isNotLostAgain,
  isNotWaitingAtPlace,
  isRunOf,
  isUnleased,
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
