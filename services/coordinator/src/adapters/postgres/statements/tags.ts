import type postgres from 'postgres'
import { isRunOf } from '../predicates.ts'

/**
 * Returns the CTEs that delete the tags of the runs in the CTE `runs`, which has the columns `CreatedAt` and `Tags`.
 * The CTE `tagged` is materialized, because otherwise PostgreSQL might not look up each tag by its whole key.
 */
export const deleteTags = (
  sql: postgres.Sql | postgres.TransactionSql,
  runs: 'ended' | 'held',
) => sql`
  tagged as materialized (
    select runs.*, tag.key, tag.value
    from ${sql(runs)} runs cross join lateral jsonb_each_text(runs."Tags") tag
  ), tags as (
    delete from "Order_Tag" h using tagged t
    where h."Name" = t.key and h."Value" = t.value and h."CreatedAt" = t."CreatedAt"
      and ${isRunOf(sql, 't')}
  )`
