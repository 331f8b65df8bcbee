import type postgres from 'postgres'
import { DELAYED_RUNS_PER_KEY } from '../../../run/delayed-runs.ts'

/**
 * Reserves places for delayed runs of a service key, see `DelayedRuns`. A place is a row of `"Order_Delayed"`. It is
 * stored before the run, so a row without a run counts for ten minutes: its run may be about to be stored. The rows of
 * runs that no longer wait are deleted when the key has no place left, so that starting a run does not touch the table.
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
