import type postgres from 'postgres'

export async function pausedProcesses(sql: postgres.Sql): Promise<ReadonlySet<string>> {
  const rows = await sql<{ Process: string }[]>`
    select "Process" from "Order_Process" where "Paused"`
  return new Set(rows.map(({ Process }) => Process))
}

export async function setPaused(
  sql: postgres.Sql,
  process: string,
  isPaused: boolean,
): Promise<void> {
  await sql`
    insert into "Order_Process" ("Process", "Paused") values (${process}, ${isPaused})
    on conflict ("Process") do update set "Paused" = excluded."Paused", "UpdatedAt" = now()`
}
