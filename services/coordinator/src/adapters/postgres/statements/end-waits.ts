import type postgres from 'postgres'
import type { RunKey } from '../../../run/run.ts'
import type { RunRow } from '../rows.ts'

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
