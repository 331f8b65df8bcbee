import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'
import { isOver } from '../../run/status.ts'
import type { NewWebhook, WebhookBacklog } from '../../run/transaction-source.ts'
import type { RunTable } from './run-table.ts'

export type StoredWebhook = Required<NewWebhook>

/** The webhooks of the memory source that are not delivered yet, in the order of their events. */
export interface WebhookQueue {
  all(): readonly StoredWebhook[]
  /** Whether the webhook is new: it is not in the queue, and no run was queued for it. */
  isNew(webhook: NewWebhook): boolean
  add(webhooks: readonly StoredWebhook[]): void
  remove(transactionId: string): void
  /**
   * Undoes `remove`. The webhook is put back at the front of the queue, because only the oldest webhook of a receiver
   * and realm is ever removed.
   */
  restore(webhook: StoredWebhook): void
  get(transactionId: string): StoredWebhook | undefined
  /**
   * Returns the webhooks whose runs have ended. Also returns, for each receiver and realm, the oldest webhook that has
   * no run yet.
   */
  oldest(): { readonly over: readonly StoredWebhook[]; readonly next: readonly StoredWebhook[] }
  /** @param now epoch ms */
  backlog(now: number): readonly WebhookBacklog[]
}

export const webhookRunKey = (TransactionID: string) => ({
  Process: WEBHOOK_PROCESS,
  TransactionID,
  ReplayID: 0,
})

export function createWebhookQueue(table: Pick<RunTable, 'get'>): WebhookQueue {
  let webhooks = new Map<string, StoredWebhook>()
  const runOf = (id: string) => table.get(webhookRunKey(id))
  return {
    all: () => [...webhooks.values()],
    isNew: ({ TransactionID: id }) => !webhooks.has(id) && runOf(id) === undefined,
    add(added) {
      for (const webhook of added) webhooks.set(webhook.TransactionID, webhook)
    },
    remove: (id) => void webhooks.delete(id),
    restore(webhook) {
      webhooks = new Map([[webhook.TransactionID, webhook], ...webhooks])
    },
    get: (id) => webhooks.get(id),
    oldest() {
      const over: StoredWebhook[] = []
      const next: StoredWebhook[] = []
      const seen = new Set<string>()
      for (const webhook of webhooks.values()) {
        const key = JSON.stringify([webhook.Receiver, webhook.Realm ?? webhook.Lane])
        if (seen.has(key)) continue
        const run = runOf(webhook.TransactionID)
        if (run !== undefined && isOver(run.header.Status)) {
          over.push(webhook)
          continue
        }
        seen.add(key)
        if (run === undefined) next.push(webhook)
      }
      return { over, next }
    },
    backlog(now) {
      const receivers = new Map<string, WebhookBacklog>()
      for (const { Receiver: receiver, At } of webhooks.values()) {
        const { waiting = 0, oldestMs = 0 } = receivers.get(receiver) ?? {}
        receivers.set(receiver, {
          receiver,
          waiting: waiting + 1,
          oldestMs: Math.max(oldestMs, now - Date.parse(At)),
        })
      }
      return [...receivers.values()]
    },
  }
}
