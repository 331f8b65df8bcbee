import type { Families } from '../run/families.ts'
import { type RunKey, runKey } from '../run/run.ts'
import type { Child } from '../step/step.ts'

/** The number of children that are read at once. */
const PAGE = 200

/** Reads the children that a place of a run has started, in the order of the list. */
export async function* readChildren(
  source: Pick<Families, 'children'>,
  run: RunKey,
  place: string,
): AsyncGenerator<Child, void, undefined> {
  const key = { ...runKey(run), Place: place }
  for (let after = -1; ;) {
    const rows = await source.children(key, { after, limit: PAGE, withData: true })
    for (const row of rows)
      yield {
        id: row.ItemID,
        transactionId: row.TransactionID,
        status: row.Status,
        data: row.Data,
        errorClass: row.ErrorClass,
        error: row.LastError,
      }
    const last = rows.at(-1)
    if (last === undefined || rows.length < PAGE) return
    after = last.Item
  }
}
