import { setTimeout as delay } from 'node:timers/promises'
import { Client } from 'pg'

export interface LockProbe extends AsyncDisposable {
  /** How long the probe waited for each row lock, in milliseconds. */
  waits(): readonly number[]
}

/** Locks random finished runs one after the other, as a replay or a resume would. */
export async function startLockProbe(databaseUrl: string): Promise<LockProbe> {
  const client = new Client({ connectionString: databaseUrl })
  await client.connect()
  const { rows } = await client.query<{ id: string }>(
    `select "TransactionID" as id from "Order_Header" tablesample system (1)
    where "TransactionID" like 'finished-%' limit 10000`,
  )
  const waits: number[] = []
  let isRunning = true
  const probing = (async () => {
    for (let n = 0; isRunning; n += 1) {
      const startedAt = performance.now()
      await client.query(
        `select from "Order_Header" where "Process" = 'OrderProcess' and "TransactionID" = $1 and "ReplayID" = 0 for update`,
        [rows[n % rows.length]?.id ?? ''],
      )
      waits.push(performance.now() - startedAt)
      await delay(5)
    }
  })()
  return {
    waits: () => waits,
    async [Symbol.asyncDispose]() {
      isRunning = false
      await probing
      await client.end()
    },
  }
}
