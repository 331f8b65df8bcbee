import { setTimeout as delay } from 'node:timers/promises'
import type { System } from '@integration-host/tests/system'
import { completedTransactions } from '../support/completed-transactions.ts'

export interface OrderLoad extends AsyncDisposable {
  /** Discards all measurements so far. */
  reset(): void
  completed(): number
  /** The time from the request to the completion event of each order, in milliseconds. */
  latencies(): readonly number[]
}

const IN_FLIGHT = 64
let names = 0

/** Queues `perSecond` orders a second. If `perSecond` is 0, keeps 64 orders in flight instead. */
export async function startOrderLoad(system: System, perSecond: number): Promise<OrderLoad> {
  const coordinator = system.url('coordinator')
  names += 1
  const name = `load-${names}`
  const startedAt = new Map<string, number>()
  const leaving = new AbortController()
  let latencies: number[] = []
  let sent = 0

  function queue(): void {
    const id = `${name}-${sent}`
    sent += 1
    startedAt.set(id, performance.now())
    void system
      .call(`${coordinator}/processes/OrderProcess/transactions`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ TransactionID: id, InitialData: id }),
        signal: leaving.signal,
      })
      .then((response) => response.body?.cancel())
      .catch(() => startedAt.delete(id))
  }

  const stream = await system.call(`${coordinator}/events`, { signal: leaving.signal })
  const reading = (async () => {
    for await (const id of completedTransactions(stream.body)) {
      const at = startedAt.get(id)
      if (at === undefined) continue
      startedAt.delete(id)
      latencies.push(performance.now() - at)
      if (perSecond === 0) queue()
    }
  })().catch(() => {})
  const sending = (async () => {
    if (perSecond === 0) for (let n = 0; n < IN_FLIGHT; n += 1) queue()
    const begin = performance.now()
    for (let n = 0; perSecond > 0 && !leaving.signal.aborted; n += 1) {
      await delay(Math.max(0, begin + (n * 1_000) / perSecond - performance.now()))
      queue()
    }
  })()
  return {
    reset() {
      latencies = []
    },
    completed: () => latencies.length,
    latencies: () => latencies,
    async [Symbol.asyncDispose]() {
      leaving.abort()
      await Promise.allSettled([reading, sending])
    },
  }
}
