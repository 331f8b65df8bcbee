import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'
import type { RunPage } from '../run/run-search.ts'
import { activeStatuses } from '../run/status.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { REMOVAL_WEBHOOK } from './webhook.ts'
import { type WebhookRow, WEBHOOKS } from './webhook-backlog.ts'

const PAGE = 500

const reportsRemoval = ({ TransactionID: id }: Pick<WebhookRow, 'TransactionID'>): boolean =>
  id.startsWith(REMOVAL_WEBHOOK)

/**
 * Deletes the undelivered webhooks of a company, except those that report the removal of its credential. Returns the ids
 * of the webhook runs of the company that have not ended and do not report a removal.
 */
export async function dropWebhooks(
  source: Pick<TransactionSource, 'records' | 'search'>,
  realm: string,
): Promise<readonly string[]> {
  const webhooks = source.records(WEBHOOKS)
  let rows: readonly WebhookRow[] = []
  do {
    const after = rows.slice(-1).map(({ TransactionID }) => TransactionID)
    const from = { by: ['TransactionID'] as const, ...(after.length > 0 && { after }) }
    rows = await webhooks.page({ where: { Realm: realm }, ...from, limit: PAGE })
    const dropped = rows.filter((row) => !reportsRemoval(row))
    await Promise.all(dropped.map((row) => webhooks.replace(row, undefined)))
  } while (rows.length === PAGE)
  const filter = { realm: [realm], status: [...activeStatuses] }
  const visible = { realms: ['*'], processes: ['*'] }
  const search = {
    process: WEBHOOK_PROCESS,
    filter,
    order: 'created',
    visible,
    limit: PAGE,
  } as const
  const ids: string[] = []
  let page: RunPage = { runs: [], next: null }
  do {
    page = await source.search({ ...search, after: page.next })
    for (const run of page.runs) if (!reportsRemoval(run)) ids.push(run.TransactionID)
  } while (page.next !== null)
  return ids
}
