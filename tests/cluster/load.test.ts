import { EventEmitter, once } from 'node:events'
import { describe, expect, it } from 'vitest'
import type { Client } from './client.ts'
import { startLoad } from './load.ts'

/**
 * Starts a load that only queues orders. The attempts to queue an order get the given HTTP statuses, one after the
 * other; further attempts get the last status.
 */
function orderLoad(statuses: readonly (number | null)[]) {
  const calls = new EventEmitter()
  let count = 0
  const client: Pick<Client, 'queueOrder'> = {
    queueOrder: () => {
      const status = statuses[Math.min(count, statuses.length - 1)] ?? null
      count += 1
      calls.emit(String(count))
      return Promise.resolve(status)
    },
  }
  const load = startLoad({
    client: client as Client,
    companies: [],
    rates: { orders: 0.01, reads: 0, connects: 0 },
    prefix: 'a',
    random: () => 0,
    now: () => performance.now(),
  })
  return { load, call: (number: number) => once(calls, String(number)) }
}

describe('the load', () => {
  it('the load queues an order again until the order is accepted', async () => {
    const { load, call } = orderLoad([503, 202])
    await call(2)
    await load.stop(0)
    expect(load.ledger).toMatchObject({
      accepted: ['a-0'],
      calls: 2,
      failedCalls: 1,
      unservedCalls: 0,
      failures: { 'order 503': 1 },
    })
  })

  it('the load counts a call that failed three times as one unserved call', async () => {
    const { load, call } = orderLoad([503, null])
    await call(4)
    await load.stop(0)
    expect(load.ledger).toMatchObject({
      accepted: [],
      unservedCalls: 1,
      failures: { 'order 503': 1, 'order without response': 3 },
    })
  })
})
