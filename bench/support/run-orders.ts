import { setTimeout as delay } from 'node:timers/promises'
import type { System } from '@integration-host/tests/system'

const DEADLINE_MS = 300_000

/**
 * Queues orders in one request to a coordinator, and waits until all of them are completed. Returns the seconds from the
 * request to the last completion.
 *
 * @throws {Error} the orders were not queued, or were not completed within five minutes.
 */
export async function runOrders(
  system: System,
  coordinator: string,
  orders: number,
): Promise<number> {
  const run = crypto.randomUUID()
  const done = (await completedOrders(coordinator)) + orders
  const lines = Array.from({ length: orders }, (_, n) =>
    JSON.stringify({ TransactionID: `${run}-${n}`, InitialData: n }),
  )
  const startedAt = performance.now()
  const response = await system.call(`${coordinator}/processes/OrderProcess/transactions/bulk`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/x-ndjson' },
    body: lines.join('\n'),
  })
  if (!response.ok) throw new Error(`the orders were not queued: ${response.status}`)
  await response.body?.cancel()
  while ((await completedOrders(coordinator)) < done) {
    if (performance.now() - startedAt > DEADLINE_MS)
      throw new Error('the orders were not completed')
    await delay(50)
  }
  return (performance.now() - startedAt) / 1_000
}

/** Returns how many orders have completed their last step. The number is read from the coordinator's metrics. */
async function completedOrders(coordinator: string): Promise<number> {
  const text = await (await fetch(`${coordinator}/metrics`)).text()
  const line = text
    .split('\n')
    .find((each) => /^coordinator_steps_total\{.*step="csv",outcome="completed"/.test(each))
  return Number(line?.split(' ').at(-1) ?? 0)
}
