import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'
import type { RunPage } from '../run/run-search.ts'
import { activeStatuses } from '../run/status.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { REMOVAL_WEBHOOK } from './webhook.ts'
import { WEBHOOKS } from './webhook-backlog.ts'

const PAGE = 500

const isDropped = (id: string): boolean => !id.startsWith(REMOVAL_WEBHOOK)

/**
 * Deletes the undelivered webhooks of a company, except those that report the removal of its credential. Returns the ids
 * of the webhook runs of the company that have not ended and do not report a removal.
 */
export async function dropWebhooks(
  source: Pick<TransactionSource, 'records' | 'search'>,
  realm: string,
): Promise<readonly string[]> {
  const webhooks = source.records(WEBHOOKS)
  let after: readonly string[] | undefined
  do {
    const from = after === undefined ? {} : { after: after.slice(-1) }
    const page = { where: { Realm: realm }, by: ['TransactionID'], ...from, limit: PAGE } as const
    after = (await webhooks.page(page)).map(({ TransactionID }) => TransactionID)
    const dropped = after.filter(isDropped)
    if (dropped.length > 0) await webhooks.remove({ where: { TransactionID: { in: dropped } } })
  } while (after.length === PAGE)
  const filter = { realm: [realm], status: [...activeStatuses] }
  const visible = { realms: ['*'], processes: ['*'] }
  const search = { process: WEBHOOK_PROCESS, filter, order: 'created', visible } as const
  const ids: string[] = []
  let page: RunPage = { runs: [], next: null }
  do {
    page = await source.search({ ...search, after: page.next, limit: PAGE })
    ids.push(...page.runs.map(({ TransactionID }) => TransactionID).filter(isDropped))
  } while (page.next !== null)
  return ids
}
