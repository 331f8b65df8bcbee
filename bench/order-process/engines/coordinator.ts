import { setTimeout as delay } from 'node:timers/promises'
import { Client } from 'pg'
import type { Completions, EngineSettings, StartEngine } from '../engine.ts'
import { createJsonClient } from '../post-json.ts'
import { watchCompletions } from '../watch-completions.ts'

/** Maximum number of transactions in one `POST …/bulk`. */
const MAX_LINES = 10_000
const LOOK_MS = 20

/**
 * A client of a coordinator that runs in another process. Many transactions are queued with `POST …/bulk`, and the
 * table is polled until all are completed, because an event for each transition would be extra work. A single transaction
 * is queued with `Prefer: wait`, so its response comes when it is completed. In the variant with events, the response
 * comes when the transaction is durable, and the client waits for the event of its completion.
 */
export const start: StartEngine = async (settings) => {
  const transactions = `${settings.coordinator.url}/processes/OrderProcess/transactions`
  const database = new Client({ connectionString: settings.databaseUrl })
  await database.connect()
  const leaving = new AbortController()
  let events: Promise<Completions> | null = null

  const client = createJsonClient(settings.concurrency, authorization(settings))
  /**
   * Whether all runs have ended, of which `last` was queued last. Only this run is looked up until it has ended. A
   * query for any unfinished run reads the index entries of the runs that have just been completed: 50 such queries a
   * second took a quarter of PostgreSQL's time.
   */
  async function haveEnded(last: string): Promise<boolean> {
    const lastRun = await database.query(
      `select from "Order_Header" where "Process" = 'OrderProcess' and "TransactionID" = $1
      and "ReplayID" = 0 and "CompletedAt" is not null`,
      [last],
    )
    if (lastRun.rowCount === 0) return false
    const unfinished = await database.query(
      'select from "Order_Header" where "CompletedAt" is null order by "NextSweepAt" limit 1',
    )
    return unfinished.rowCount === 0
  }
  async function queueAndWait(id: string): Promise<void> {
    const transaction = { TransactionID: id, InitialData: id }
    const status = await client.post(transactions, transaction, { Prefer: 'wait=30' })
    if (status !== 200) throw new Error(`transaction ${id} has not ended: status ${status}`)
  }
  return {
    async runAll(ids) {
      const startedAt = performance.now()
      for (let from = 0; from < ids.length; from += MAX_LINES)
        await client.post(
          `${transactions}/bulk`,
          ids.slice(from, from + MAX_LINES).map((id) => ({ TransactionID: id, InitialData: id })),
        )
      const queuedMs = performance.now() - startedAt
      while (!(await haveEnded(ids.at(-1) ?? ''))) await delay(LOOK_MS)
      return { queuedMs }
    },
    async runOne(id) {
      if (!settings.byEvents) return queueAndWait(id)
      events ??= watchCompletions(settings.coordinator.url, leaving.signal, authorization(settings))
      const completed = (await events).until(id)
      await client.post(transactions, { TransactionID: id, InitialData: id })
      await completed
    },
    async [Symbol.asyncDispose]() {
      leaving.abort()
      await client[Symbol.asyncDispose]()
      await database.end()
    },
  }
}

const authorization = ({ coordinator }: EngineSettings) => ({
  Authorization: `Bearer ${coordinator.key}`,
})
