import type postgres from 'postgres'
import {
  itemJsonColumns,
  type OutdatedPayloads,
  type PayloadPage,
  type StoredPayload,
} from '../../../run/payload.ts'
import { runKey, type RunKey } from '../../../run/run.ts'
import { WHOLE_PROCESS } from '../../../run/slots.ts'
import { isFirstRunOf, isRunOf } from '../predicates.ts'
import { type Group, lockGroups } from './slots.ts'

/** The payloads of the run `h` that are not encrypted with the current key. */
const outdatedOf = (sql: postgres.Sql, keyId: string) => sql`
  select 'InitialData' as column, null as step, h."InitialData" as stored
  where h."InitialData" <> 'null'
    and split_part(h."InitialData" ->> '$sealed', '.', 2) is distinct from ${keyId}
  union all
  select k.name, i."StepName", k.value from "Order_Item" i
  cross join lateral (values ${itemJsonColumns.map((column, n) => sql`${n === 0 ? sql`` : sql`,`} (${column}, i.${sql(column)})`)}) k (name, value)
  where ${isRunOf(sql, 'i')} and k.value <> 'null'
    and split_part(k.value ->> '$sealed', '.', 2) is distinct from ${keyId}
  union all
  select 'ResponseBody', i."StepName", to_jsonb(i."ResponseBody") from "Order_Item" i
  where ${isRunOf(sql, 'i')} and ${isOutdatedText(sql, sql`i."ResponseBody"`, keyId)}
  union all
  select k.name, null, to_jsonb(k.value)
  from (values ('ConcurrencyKey', h."ConcurrencyKey"), ('DebounceKey', h."DebounceKey")) k (name, value)
  where ${isOutdatedText(sql, sql`k.value`, keyId)}
  union all
  select 'SlotKey', null, to_jsonb(s."Key") from "Order_Slot" s
  where ${isRunOf(sql, 's')} and s."Key" <> '' and ${isOutdatedText(sql, sql`s."Key"`, keyId)}`

const isOutdatedText = (sql: postgres.Sql, column: postgres.Fragment, keyId: string) => sql`(
  ${column} is not null
  and not (${column} like '$sealed:%' and split_part(${column}, '.', 2) = ${keyId}))`

/** Reads those payloads of the next runs, in the order of the primary key, that are not encrypted with the current key. */
export async function outdatedPayloads(
  sql: postgres.Sql,
  keyId: string,
  { after, limit, isCount = false }: PayloadPage,
): Promise<OutdatedPayloads> {
  const rows = await sql<(RunKey & { count: number; payloads: PayloadRow[] | null })[]>`
    select h."Process", h."TransactionID", h."ReplayID", p.*
    from (
      select * from "Order_Header" h
      ${
        after === null
          ? sql``
          : sql`where (h."Process", h."TransactionID", h."ReplayID")
              > (${after.Process}, ${after.TransactionID}, ${after.ReplayID}::int)`
      }
      order by h."Process", h."TransactionID", h."ReplayID" limit ${limit}) h
    cross join lateral (
      select count(*)::int as count, ${isCount ? sql`null::jsonb` : sql`jsonb_agg(p)`} as payloads
      from (${outdatedOf(sql, keyId)}) p) p
    order by h."Process", h."TransactionID", h."ReplayID"`
  const last = rows.at(-1)
  return {
    count: rows.reduce((sum, { count }) => sum + count, 0),
    payloads: rows.flatMap(({ payloads, count: _count, ...key }) =>
      (payloads ?? []).map((payload): StoredPayload => ({ ...runKey(key), ...payload })),
    ),
    next: last === undefined || rows.length < limit ? null : runKey(last),
  }
}

type PayloadRow = Pick<StoredPayload, 'column' | 'step' | 'stored'>

/** Replaces payloads unless they have changed since they were read. The runs are locked in key order. */
export async function replacePayloads(
  tx: postgres.TransactionSql,
  payloads: readonly (StoredPayload & { readonly by: StoredPayload['stored'] })[],
): Promise<number> {
  const given = (of: StoredPayload['column']) =>
    JSON.stringify(payloads.filter(({ column }) => column === of))
  const columns = tx`"Process" text, "TransactionID" text, "ReplayID" int, step text`
  const inKey = tx`(${columns}, stored text, by text)`
  await lockSlotsOf(tx, payloads)
  await tx`
    select from "Order_Header" h where exists (
      select from json_to_recordset(${JSON.stringify(payloads)}::text::json) as p(${columns})
      where ${isRunOf(tx, 'p')})
    order by "Process", "TransactionID", "ReplayID" for update`
  const headers = await tx`
    update "Order_Header" h set "InitialData" = p.by
    from json_to_recordset(${given('InitialData')}::text::json)
      as p(${columns}, stored jsonb, by jsonb)
    where ${isRunOf(tx, 'p')} and h."InitialData" = p.stored`
  const ofItems: { readonly count: number }[] = []
  for (const column of itemJsonColumns)
    ofItems.push(
      await tx`
        update "Order_Item" h set ${tx(column)} = p.by
        from json_to_recordset(${given(column)}::text::json) as p(${columns}, stored jsonb, by jsonb)
        where ${isRunOf(tx, 'p')} and h."StepName" = p.step and h.${tx(column)} = p.stored`,
    )
  const bodies = await tx`
    update "Order_Item" h set "ResponseBody" = p.by
    from json_to_recordset(${given('ResponseBody')}::text::json)
      as p(${columns}, stored text, by text)
    where ${isRunOf(tx, 'p')} and h."StepName" = p.step and h."ResponseBody" = p.stored`
  const keys = await tx`
    update "Order_Header" h set "ConcurrencyKey" = p.by
    from json_to_recordset(${given('ConcurrencyKey')}::text::json) as p${inKey}
    where ${isRunOf(tx, 'p')} and h."ConcurrencyKey" = p.stored`
  const slots = await tx`
    update "Order_Slot" h set "Key" = p.by
    from json_to_recordset(${given('SlotKey')}::text::json) as p${inKey}
    where ${isRunOf(tx, 'p')} and h."Key" = p.stored`
  const debounces = await tx`
    update "Order_Header" h set "DebounceKey" = p.by
    from json_to_recordset(${given('DebounceKey')}::text::json) as p${inKey}
    where ${isRunOf(tx, 'p')} and h."DebounceKey" = p.stored`
  // If the new form already has a row, that row belongs to a later request, and the run absorbs no more requests.
  await tx`
    with moved as (
      delete from "Order_Debounce" h
      using json_to_recordset(${given('DebounceKey')}::text::json) as p${inKey}
      where ${isFirstRunOf(tx, 'p')} and h."Key" = p.stored
      returning h.*, p.by
    )
    insert into "Order_Debounce" ("Process", "Realm", "Key", "TransactionID", "Until")
    select "Process", "Realm", by, "TransactionID", "Until" from moved order by "Realm", by
    on conflict do nothing`
  const counts = [headers, ...ofItems, bodies, keys, slots, debounces].map(({ count }) => count)
  return counts.reduce((sum, count) => sum + count, 0)
}

/** Locks the groups of slots that the runs leave and enter, so that no slot is assigned meanwhile. */
async function lockSlotsOf(
  tx: postgres.TransactionSql,
  payloads: readonly (StoredPayload & { readonly by: StoredPayload['stored'] })[],
): Promise<void> {
  const groups = payloads
    .filter(({ column }) => column === 'SlotKey')
    .flatMap(({ Process, stored, by }) =>
      // The empty key is that of a process with a total.
      [stored, by, WHOLE_PROCESS].map((key): Group => ({ Process, Key: key as string })),
    )
  if (groups.length > 0) await lockGroups(tx, groups, [])
}
