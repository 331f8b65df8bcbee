import { createLogger } from '@integration-host/shared/observability/logger'
import { describe, expect, it } from 'vitest'
import { claimedRun } from '../../test-support/claimed-run.ts'
import { defineProcess } from '../step/define-process.ts'
import type { Claim, QueueResult } from '../run/transaction-source.ts'
import { createArrivals } from './step-consumers.ts'

const PREFETCH = 8
const inline = defineProcess('Inline', { dispatch: 'inline' }).step('only', (step) =>
  step.complete(),
)

/** Creates the object under test. Its runs end when the test settles the promise of `started`. */
function arrivalsOf() {
  const state = { isOpen: true }
  const started: { readonly id: string; readonly end: PromiseWithResolvers<void> }[] = []
  const logged: string[] = []
  const arrivals = createArrivals({
    gate: { isOpen: () => state.isOpen },
    owner: 'replica-1',
    prefetch: PREFETCH,
    async runClaimed(_process, claim) {
      const end = Promise.withResolvers<void>()
      started.push({ id: claim.run.TransactionID, end })
      await end.promise
    },
    log: createLogger('test', 'debug', {
      write: (line: string) => void logged.push(JSON.parse(line).msg),
    }),
  })
  /**
   * Queues `count` transactions into a fake source that claims at most the first `inserted` of them. Returns how many
   * runs the source was allowed to claim.
   */
  async function queue(
    count: number,
    { process = inline, inserted = count } = {},
  ): Promise<number> {
    let limit = 0
    await arrivals.queueAndStart(process, count, async (start) => {
      limit = start?.limit ?? 0
      expect(start?.owner ?? 'replica-1').toBe('replica-1')
      return Array.from({ length: count }, (_, n): QueueResult => {
        const run = claimedRun({ TransactionID: `${n}` })
        const claim = { run, items: [] } as unknown as Claim // the lease is not used
        const isClaimed = n < Math.min(limit, inserted)
        return { outcome: 'queued', run: run as never, ...(isClaimed && { claim }) }
      })
    })
    return limit
  }
  return { arrivals, queue, started, state, logged }
}

describe('runs that start on arrival, without a step message', () => {
  it('the runs that start on arrival and the deliveries in progress together are at most half of the prefetch count', async () => {
    const { arrivals, queue, started } = arrivalsOf()
    expect(await queue(10)).toBe(4)
    expect(started).toHaveLength(4)
    expect(await queue(1)).toBe(0)
    for (const { end } of started) end.resolve()
    await arrivals[Symbol.asyncDispose]()
    const delivery = Promise.withResolvers<'ack'>()
    const handled = arrivals.handleDelivery('Inline', () => delivery.promise)
    void arrivals.handleDelivery('Other', () => delivery.promise)
    expect(await queue(10, { inserted: 0 })).toBe(3)
    delivery.resolve('ack')
    expect(await handled).toBe('ack')
    expect(await queue(10, { inserted: 0 })).toBe(4)
  })

  it('the capacity for runs that start on arrival is reserved before they are stored, and released if a run is not claimed', async () => {
    const { arrivals, queue } = arrivalsOf()
    const stored = Promise.withResolvers<never>()
    const first = arrivals.queueAndStart(inline, 3, () => stored.promise)
    expect(await queue(10, { inserted: 0 })).toBe(1)
    stored.reject(new Error('unavailable'))
    await expect(first).rejects.toThrow('unavailable')
    expect(await queue(10, { inserted: 0 })).toBe(4)
  })

  it('no run starts on arrival if its process dispatches by message, has a concurrency limit, is paused, or waits for the internet', async () => {
    const { queue, state } = arrivalsOf()
    const perStep = defineProcess('PerStep').step('only', (step) => step.complete())
    const limited = defineProcess('Limited', { dispatch: 'inline', concurrency: 1 }).step(
      'only',
      (step) => step.complete(),
    )
    expect(await queue(1, { process: perStep })).toBe(0)
    expect(await queue(1, { process: limited })).toBe(0)
    state.isOpen = false
    expect(await queue(1)).toBe(0)
  })

  it('if runs that started on arrival fail unexpectedly, each failure is logged, and a shutdown waits until their capacity is released', async () => {
    const { arrivals, queue, started, logged } = arrivalsOf()
    await queue(4)
    const shutdown = arrivals[Symbol.asyncDispose]()
    for (const { end } of started) end.reject(new Error('no lease'))
    await shutdown
    expect(logged).toHaveLength(4)
    expect(await queue(4, { inserted: 0 })).toBe(4)
  })
})
