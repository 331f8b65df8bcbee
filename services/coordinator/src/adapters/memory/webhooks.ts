/**
 * The webhooks of the memory source that are not delivered yet. They are rows, like those of the table
 * `"Order_Webhook"`.
 */
import { WEBHOOK_PROCESS, WEBHOOK_STEP } from '@integration-host/shared/contracts/events'
import type { Run } from '../../run/run.ts'
import { isOver } from '../../run/status.ts'
import type { NewWebhook, TransactionSource, WebhooksOf } from '../../run/transaction-source.ts'
import { queued, type StoredRun, type Times } from '../../run/transitions.ts'
import { keyOf, type RecordChange } from './records.ts'
import type { MemoryStore } from './store.ts'

const TABLE = 'Order_Webhook'

/** A stored webhook. The later its event was, the greater is its `ID`. */
export type StoredWebhook = Required<NewWebhook> & { readonly ID: number }

const placeOf = (id: string) => ({ table: TABLE, key: keyOf([id]) })
export const addedWebhook = (webhook: StoredWebhook): RecordChange => ({
  ...placeOf(webhook.TransactionID),
  row: webhook,
})
export const removedWebhook = (id: string): RecordChange => ({ ...placeOf(id), row: null })
/** Returns the webhooks in the order of their events. */
export const storedWebhooks = ({ records }: Pick<MemoryStore, 'records'>): StoredWebhook[] =>
  ([...records.values(TABLE)] as StoredWebhook[]).toSorted((a, b) => a.ID - b.ID)

const webhookRunKey = (TransactionID: string) => ({
  Process: WEBHOOK_PROCESS,
  TransactionID,
  ReplayID: 0,
})

export function createMemoryWebhooks(
  store: MemoryStore,
  times: () => Times,
  webhooksOf: WebhooksOf = () => [],
) {
  const { table, records, commit } = store
  const runOf = (id: string) => table.get(webhookRunKey(id))
  let lastId = storedWebhooks(store).at(-1)?.ID ?? 0

  /**
   * Returns the rows of those webhooks that are new: they are not stored, and no run was queued for them. Missing realms
   * and times are taken from `event`.
   */
  const added = (
    webhooks: readonly NewWebhook[],
    event: Pick<Run, 'Realm' | 'UpdatedAt'> | null = null,
  ): RecordChange[] =>
    webhooks
      .filter(({ TransactionID: id }) => {
        const { table: name, key } = placeOf(id)
        return records.get(name, key) === undefined && runOf(id) === undefined
      })
      .map((webhook) => {
        lastId += 1
        const At = event?.UpdatedAt ?? new Date(times().now).toISOString()
        return addedWebhook({ Realm: event?.Realm ?? null, At, ...webhook, ID: lastId })
      })

  /**
   * Returns the webhooks whose runs have ended. Also returns, for each receiver and realm, the oldest webhook that has no
   * run yet.
   */
  function oldest() {
    const over: StoredWebhook[] = []
    const next: StoredWebhook[] = []
    const seen = new Set<string>()
    for (const webhook of storedWebhooks(store)) {
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
  }

  const members: Pick<TransactionSource, 'addWebhooks' | 'startWebhooks'> = {
    async addWebhooks(webhooks) {
      const rows = added(webhooks)
      if (rows.length > 0) await commit({ records: rows })
      else await store.flush() // an earlier call may still be writing the event to disk
    },
    async startWebhooks(limit) {
      const { over, next } = oldest()
      const started = next.slice(0, limit).map(({ TransactionID, InitialData, Realm, At }) => {
        const data = { InitialData: { ...InitialData, At } as Run['InitialData'], Realm }
        return queued(webhookRunKey(TransactionID), WEBHOOK_STEP, data, times())
      })
      await commit(
        ...over.map(({ TransactionID }) => ({ record: removedWebhook(TransactionID) })),
        ...started.map((run) => ({ run })),
      )
      return { runs: started.map(({ header }) => header), hasMore: next.length > limit }
    },
  }
  return {
    members,
    /** Returns the webhooks that report a transition of the run. */
    webhooksAfter: (run: StoredRun): RecordChange[] => added(webhooksOf(run.header), run.header),
  }
}
