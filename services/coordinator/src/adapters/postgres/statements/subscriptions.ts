import type postgres from 'postgres'

/**
 * Stores the routing keys that a process subscribes to, each with the time of this statement, in a row of
 * `"Order_Installation"`. Returns the keys that were stored within the last `keptMs` milliseconds. Older keys stay in
 * the row for 30 days, because after an outage of all replicas the change feed must still read the changes with these
 * keys. No row is inserted for a process that has never subscribed to an event.
 */
export async function keepSubscriptions(
  sql: postgres.Sql,
  process: string,
  routingKeys: readonly string[],
  keptMs: number,
): Promise<readonly string[]> {
  const name = `on:${process}`
  const keys = JSON.stringify(routingKeys)
  const kept = sql`(
    select coalesce(jsonb_object_agg(key, value), '{}') from jsonb_each(r."Value")
    where (value #>> '{}')::timestamptz > now() - interval '30 days')`
  const recent = sql`(
    select coalesce(jsonb_agg(key), '[]') from jsonb_each(r."Value")
    where (value #>> '{}')::timestamptz > now() - ${keptMs} * interval '1 ms')`
  const wanted = sql`(
    select coalesce(jsonb_object_agg(key, now()), '{}')
    from jsonb_array_elements_text(${keys}::text::jsonb) as key)`
  const rows =
    routingKeys.length === 0
      ? await sql<{ readonly keys: readonly string[] }[]>`
          update "Order_Installation" r set "Value" = ${kept} where r."Name" = ${name} returning ${recent} as keys`
      : await sql<{ readonly keys: readonly string[] }[]>`
          insert into "Order_Installation" as r ("Name", "Value") values (${name}, ${wanted})
          on conflict ("Name") do update set "Value" = ${kept} || excluded."Value" returning ${recent} as keys`
  return rows[0]?.keys ?? []
}

export async function wantedChanges(sql: postgres.Sql): Promise<readonly string[]> {
  const rows = await sql<{ readonly key: string }[]>`
    select distinct key from "Order_Installation" r, jsonb_object_keys(r."Value") as key
    where r."Name" like 'on:%'`
  return rows.map(({ key }) => key)
}
