import type { RecordKind } from '../records/records.ts'
import type { TransactionSource } from '../run/transaction-source.ts'

/** The members of a row of `"Order_Webhook"` by which webhooks are counted or dropped. */
export interface WebhookRow {
  readonly TransactionID: string
  readonly Receiver: string
  readonly Realm: string | null
  readonly At: string
}

export const WEBHOOKS: RecordKind<WebhookRow> = {
  table: 'Order_Webhook',
  key: ['TransactionID'],
  columns: ['TransactionID', 'Receiver', 'Realm', 'At'],
}

export interface WebhookBacklog {
  readonly receiver: string
  readonly waiting: number
  /** The age of the oldest undelivered event. */
  readonly oldestMs: number
}

/** Returns the undelivered webhooks of each receiver: their number and the age of the oldest. */
export async function webhookBacklog(
  source: Pick<TransactionSource, 'records'>,
): Promise<readonly WebhookBacklog[]> {
  const webhooks = source.records(WEBHOOKS)
  const counts = await webhooks.count({ by: ['Receiver'], oldest: 'At' })
  const now = await webhooks.now()
  return counts.map(({ Receiver, Count, Oldest }) => ({
    receiver: Receiver,
    waiting: Count,
    oldestMs: now - Date.parse(Oldest ?? ''),
  }))
}
