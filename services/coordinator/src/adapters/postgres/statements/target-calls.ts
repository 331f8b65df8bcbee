/**
 * The statements that count the calls to targets with limits. A target has one row, and each statement changes one row.
 * If two replicas reserve at the same time, the second one waits for the row lock and then sees the change of the
 * first. So the sum over all replicas stays within the limits.
 *
 * The statements use `clock_timestamp()` instead of `now()`, because a statement may have waited for its row.
 */
import type postgres from 'postgres'
import type { CallRequest, CallReservation, TargetKey } from '../../../run/target-calls.ts'

/** A time in epoch milliseconds, the format of the times in the column `Slots`. */
const epochMs = (sql: postgres.Sql, time: postgres.Fragment) =>
  sql`floor(extract(epoch from ${time}) * 1000)`
const clock = (sql: postgres.Sql) => sql`clock_timestamp()`
const milliseconds = (sql: postgres.Sql, ms: number) => sql`${ms}::float8 * interval '1 ms'`

/**
 * Reserves a call. If no reservation is possible, returns the reason, which a second part of the statement reads from
 * the row as it was when the statement began. If the row was inserted or changed since then, the reason is outdated,
 * and the caller requests again.
 */
export async function reserveCall(
  sql: postgres.Sql,
  { Process, Target, limits, slot, maxWaitMs, holdMs }: CallRequest,
): Promise<CallReservation> {
  const { intervalMs, concurrent } = limits
  const nextCall = sql`greatest(t."NextCallAt", clock_timestamp())`
  /** The concurrency slot of a call that is sent at the time `at`. */
  const slotAt = (at: postgres.Fragment) => sql`
    jsonb_build_object(${slot}::text, ${epochMs(sql, sql`${at} + ${milliseconds(sql, holdMs)}`)})`
  const isLive = sql`s.value::float8 > ${epochMs(sql, clock(sql))}`
  const [row] = await sql<{ kind: CallReservation['kind']; waitMs: number }[]>`
    with reserved as (
      insert into "Order_Target" as t ("Process", "Target", "NextCallAt", "Slots")
      values (${Process}, ${Target}, clock_timestamp() + ${milliseconds(sql, intervalMs)},
        ${concurrent === null ? sql`'{}'` : slotAt(clock(sql))})
      on conflict ("Process", "Target") do update set
        "NextCallAt" = ${nextCall} + ${milliseconds(sql, intervalMs)}
        ${
          concurrent === null
            ? sql``
            : sql`, "Slots" = ${slotAt(nextCall)} || (
                select coalesce(jsonb_object_agg(s.key, s.value), '{}')
                from jsonb_each(t."Slots") s where ${isLive})`
        }
      where t."NextCallAt" <= clock_timestamp() + ${milliseconds(sql, maxWaitMs)}
        ${
          concurrent === null
            ? sql``
            : sql`and (select count(*) from jsonb_each(t."Slots") s where ${isLive}) < ${concurrent}::int`
        }
      returning t."NextCallAt" - ${milliseconds(sql, intervalMs)} as at
    ), wait as (
      select 'reserved' as kind, at from reserved
      union all
      select case when "NextCallAt" > clock_timestamp() + ${milliseconds(sql, maxWaitMs)}
        then 'later' else 'full' end, "NextCallAt"
      from "Order_Target"
      where "Process" = ${Process} and "Target" = ${Target} and not exists (select from reserved)
    )
    select kind, (greatest(extract(epoch from at - clock_timestamp()), 0) * 1000)::float8 as "waitMs"
    from wait`
  return row === undefined || row.kind === 'full' ? { kind: 'full' } : { ...row, kind: row.kind }
}

export async function releaseCalls(
  sql: postgres.Sql,
  { Process, Target }: TargetKey,
  slots: readonly string[],
): Promise<void> {
  await sql`
    update "Order_Target" set "Slots" = "Slots" - array(
      select jsonb_array_elements_text(${JSON.stringify(slots)}::text::jsonb))
    where "Process" = ${Process} and "Target" = ${Target}`
}

export async function coolDownTarget(
  sql: postgres.Sql,
  { Process, Target }: TargetKey,
  ms: number,
): Promise<void> {
  await sql`
    insert into "Order_Target" as t ("Process", "Target", "NextCallAt")
    values (${Process}, ${Target}, clock_timestamp() + ${milliseconds(sql, ms)})
    on conflict ("Process", "Target") do update
      set "NextCallAt" = greatest(t."NextCallAt", excluded."NextCallAt")`
}
