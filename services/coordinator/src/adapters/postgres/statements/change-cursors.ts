import type postgres from 'postgres'
import type { ChangeCursor, Sweep } from '../../../change-feed/change-cursors.ts'
import type { realmCursor } from '../schema/operations.ts'

type CursorRow = typeof realmCursor.$inferSelect & { readonly lagMs: number }

const columns = (sql: postgres.Sql) => sql`
  c.*, greatest(0, extract(epoch from now() - c."Position") * 1000)::float8 as "lagMs"`

const cursorOf = (row: CursorRow): ChangeCursor => ({
  realm: row.Realm,
  position: new Date(row.Position).toISOString(),
  sweptAt: row.SweptAt === null ? null : new Date(row.SweptAt).toISOString(),
  events: row.Events,
  incomplete: row.Incomplete,
  lagMs: row.lagMs,
})

export async function beginCursor(sql: postgres.Sql, realm: string): Promise<ChangeCursor> {
  // The update leaves the row as it is. Its purpose is that the statement also returns a row that another coordinator
  // has already inserted.
  const rows = await sql<CursorRow[]>`
    insert into "Realm_Cursor" as c ("Realm") values (${realm})
    on conflict ("Realm") do update set "Realm" = excluded."Realm" returning ${columns(sql)}`
  return cursorOf(rows[0] as CursorRow)
}

export async function changeCursor(sql: postgres.Sql, realm: string): Promise<ChangeCursor | null> {
  const [row] = await sql<CursorRow[]>`
    select ${columns(sql)} from "Realm_Cursor" c where c."Realm" = ${realm}`
  return row === undefined ? null : cursorOf(row)
}

export async function moveCursor(sql: postgres.Sql, realm: string, sweep: Sweep): Promise<void> {
  await sql`
    update "Realm_Cursor" set "Position" = greatest("Position", ${sweep.position}), "SweptAt" = now(),
      "Events" = ${sweep.events}, "Incomplete" = ${sweep.incomplete}
    where "Realm" = ${realm}`
}

export async function removeCursor(sql: postgres.Sql, realm: string): Promise<void> {
  await sql`delete from "Realm_Cursor" where "Realm" = ${realm}`
}

export async function oldestCursors(
  sql: postgres.Sql,
  limit: number,
): Promise<readonly ChangeCursor[]> {
  const rows = await sql<CursorRow[]>`
    select ${columns(sql)} from "Realm_Cursor" c order by c."Position", c."Realm" limit ${limit}`
  return rows.map(cursorOf)
}

/** The name of the row of `"Order_Installation"` that contains the time of the provider's last delivery. */
const DELIVERY = 'delivery'

export async function keepDelivery(sql: postgres.Sql): Promise<void> {
  await sql`
    insert into "Order_Installation" ("Name", "Value") values (${DELIVERY}, to_jsonb(now()))
    on conflict ("Name") do update set "Value" = excluded."Value"`
}

export async function deliveryAgeMs(sql: postgres.Sql): Promise<number | null> {
  const [row] = await sql<{ readonly ms: number }[]>`
    select greatest(0, extract(epoch from now() - ("Value" #>> '{}')::timestamptz) * 1000)::float8 as ms
    from "Order_Installation" where "Name" = ${DELIVERY}`
  return row?.ms ?? null
}
