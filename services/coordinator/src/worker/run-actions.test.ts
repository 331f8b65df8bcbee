import { IntegrationError } from '@integration-host/shared/errors'
import { describe, expect, it } from 'vitest'
import { claimedRun } from '../../test-support/claimed-run.ts'
import { defineProcess } from '../step/define-process.ts'
import type { StartOnArrival, TransactionSource } from '../run/transaction-source.ts'
import type { Run } from '../run/run.ts'
import { createRunActions, type RunActionsDeps } from './run-actions.ts'

it.each([
  ['after the step messages of its runs were sent', [{}, {}], ['sent', 'response']],
  ['without waiting if one of its runs has started', [{ claim: {} }, {}], ['response']],
])('the response to queued transactions is built %s', async (_when, claims, expected) => {
  const order: string[] = []
  const orders = defineProcess('Orders').step('only', (step) => step.complete())
  const runActions = createRunActions({
    processes: new Map([['Orders', orders]]),
    publisher: { written: async () => void order.push('sent') },
    worker: {
      async queueAndStart() {
        return claims.map((claim) => ({
          outcome: 'queued' as const,
          run: claimedRun({ TransactionID: '1' }),
          ...claim,
        }))
      },
    },
  } as unknown as RunActionsDeps)
  await runActions.queue('Orders', [{ TransactionID: '1', InitialData: null }])
  order.push('response')
  expect(order).toEqual(expected)
})

describe('queueing more transactions than one statement stores', () => {
  const transactions = Array.from({ length: 1_200 }, (_, n) => ({
    TransactionID: String(n),
    InitialData: null,
  }))

  /** Records the stored batches and how many step messages were published before each of them. */
  function fixture({ failsAt = Number.POSITIVE_INFINITY } = {}) {
    const batches: {
      readonly size: number
      readonly mayStart: boolean
      readonly published: number
    }[] = []
    let published = 0
    const source: Pick<TransactionSource, 'queue'> = {
      async queue({ name }, batch, _by, start) {
        batches.push({ size: batch.length, mayStart: start !== undefined, published })
        if (batches.length === failsAt)
          throw new IntegrationError('store_unavailable', 'the database cannot be reached now')
        return batch.map(({ TransactionID }) => ({
          outcome: 'queued' as const,
          run: claimedRun({ Process: name, TransactionID }) as Run,
        }))
      },
    }
    const runActions = createRunActions({
      source,
      processes: new Map([
        ['Orders', defineProcess('Orders').step('only', (step) => step.complete())],
      ]),
      publisher: {
        written: async () => {},
        publishSteps: (runs: readonly unknown[]) => void (published += runs.length),
      },
      worker: {
        queueAndStart: (
          _process: unknown,
          count: number,
          queue: (start: StartOnArrival) => unknown,
        ) => queue({ owner: 'replica', limit: count }),
      },
    } as unknown as RunActionsDeps)
    return { runActions, batches, published: () => published }
  }

  it('the step messages of a batch are published before the next batch is stored, and only runs of the first batch may start on arrival', async () => {
    const { runActions, batches, published } = fixture()
    const results = await runActions.queue('Orders', transactions)
    expect(results.map((result) => 'run' in result && result.run?.TransactionID)).toEqual(
      transactions.map(({ TransactionID }) => TransactionID),
    )
    expect(batches).toEqual([
      { size: 500, mayStart: true, published: 0 },
      { size: 500, mayStart: false, published: 500 },
      { size: 200, mayStart: false, published: 1_000 },
    ])
    expect(published()).toBe(1_200)
  })

  it('if a batch cannot be stored, the request fails, and the runs of the earlier batches continue', async () => {
    const { runActions, published } = fixture({ failsAt: 2 })
    await expect(runActions.queue('Orders', transactions)).rejects.toMatchObject({
      code: 'store_unavailable',
    })
    expect(published()).toBe(500)
  })
})
