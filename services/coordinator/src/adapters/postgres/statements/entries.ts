import type postgres from 'postgres'
import type { BookObjectId, EntryCheck, EntryRow, NewEntry } from '../../../entry/book-entry.ts'

type Sql = postgres.Sql | postgres.TransactionSql

/** How new the object was that an entry has seen; `rankOf` in entry/book-entry.ts is the same rule. */
const rankOf = (sql: Sql, alias: 'b' | 'w') => {
  const entry = sql(alias)
  return sql`case when ${entry}."Operation" = 'delete' then 'infinity'::float8
    when ${entry}."SyncToken" ~ '^\\d{1,15}$' then ${entry}."SyncToken"::float8 else -1 end`
}

/** True for the entries of the same object. The columns are in the order of the index `Book_Entry_object`. */
const isSameObject = (sql: Sql) => sql`
  (b."EntityID", b."Realm", b."Entity") = (w."EntityID", w."Realm", w."Entity")`

/**
 * Returns the part of the statement that stores the entries of the recorded outcomes in the CTE `moved`, and marks those as
 * superseded that they replace. `withEntries` in entry/book-entry.ts is the same rule. The replaced entries are locked in
 * the order of their ids, so that two statements cannot deadlock.
 */
export const insertEntries = (
  sql: Sql,
  entries: readonly (NewEntry & { readonly n: number })[],
) => sql`
    , written as (
      select distinct on (e."EntryID") e.*, m."Process", m."TransactionID", m."ReplayID", m.step
      from json_to_recordset(${JSON.stringify(entries.map((entry, k) => ({ ...entry, k })))}::text::json) as e(
        n int, k int, "EntryID" text collate "C", "Realm" text collate "C", "Entity" text collate "C",
        "EntityID" text collate "C", "Operation" text, "SyncToken" text, "Fields" jsonb, "FieldsKey" text)
      join moved m on m.n = e.n
      where not exists (select from "Book_Entry" b where b."EntryID" = e."EntryID")
      order by e."EntryID", e.k
    ), known as (
      select b."EntryID", b."EntityID", b."Realm", b."Entity", b."Operation", b."SyncToken"
      from "Book_Entry" b
      where b."State" <> 'Superseded' and exists (select from written w where ${isSameObject(sql)})
      order by b."EntryID" for update
    ), entries as (
      insert into "Book_Entry" ("EntryID", "Realm", "Entity", "EntityID", "Operation", "Process",
        "TransactionID", "ReplayID", "StepName", "SyncToken", "Fields", "FieldsKey", "RecordedAt", "State")
      select "EntryID", "Realm", "Entity", "EntityID", "Operation", "Process", "TransactionID",
        "ReplayID", step, "SyncToken", "Fields", "FieldsKey", date_trunc('milliseconds', now()),
        case when row_number() over (
            partition by w."EntityID", w."Realm", w."Entity" order by ${rankOf(sql, 'w')} desc, w.k desc) > 1
          or exists (select from known b where ${isSameObject(sql)} and ${rankOf(sql, 'b')} > ${rankOf(sql, 'w')})
          then 'Superseded' else 'Recorded' end
      from written w order by "EntryID"
      on conflict do nothing
    ), superseded as (
      update "Book_Entry" e set "State" = 'Superseded'
      from known b
      where e."EntryID" = b."EntryID" and exists (
        select from written w where ${isSameObject(sql)} and ${rankOf(sql, 'b')} <= ${rankOf(sql, 'w')})
    )`

export const newestEntries = (
  sql: postgres.Sql,
  realm: string,
  objects: readonly BookObjectId[],
): Promise<readonly EntryRow[]> => sql<EntryRow[]>`
  select b.* from json_to_recordset(${JSON.stringify(objects)}::text::json)
      as o(entity text collate "C", id text collate "C")
    join "Book_Entry" b on (b."EntityID", b."Realm", b."Entity") = (o.id, ${realm}, o.entity)
  where b."State" <> 'Superseded'`

export async function checkEntries(
  sql: postgres.Sql,
  checks: readonly EntryCheck[],
): Promise<void> {
  await sql`
    with given as (
      select * from json_to_recordset(${JSON.stringify(checks)}::text::json)
        as c("EntryID" text collate "C", "State" text, "Changed" jsonb)
    ), locked as (
      select b."EntryID" from "Book_Entry" b join given using ("EntryID")
      where b."State" not in ('Superseded', 'Unproven') order by b."EntryID" for update of b)
    update "Book_Entry" b set "State" = c."State", "Changed" = nullif(c."Changed", 'null'),
      "CheckedAt" = date_trunc('milliseconds', now())
    from given c join locked using ("EntryID") where b."EntryID" = c."EntryID"`
}
