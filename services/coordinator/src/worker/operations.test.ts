import { afterThisTurn } from '@integration-host/shared/batching/coalesce-writes'
import { expect, it } from 'vitest'
import { claimedRun } from '../../test-support/claimed-run.ts'
import { defineProcess } from '../process/define-process.ts'
import { createOperations, type OperationsDeps } from './operations.ts'

it.each([
  ['after the step messages of its runs were sent', [{}, {}], ['sent', 'response']],
  ['without waiting if one of its runs has started', [{ claim: {} }, {}], ['response']],
])('the response to queued transactions is built %s', async (_when, claims, expected) => {
  const order: string[] = []
  const orders = defineProcess('Orders').step('only', (step) => step.complete())
  const operations = createOperations({
    processes: new Map([['Orders', orders]]),
    worker: {
      async queueAndStart() {
        // Like the connections to the broker and to the targets of calls, this write waits for the end of the turn.
        afterThisTurn(() => order.push('sent'))
        return claims.map((claim) => ({
          outcome: 'queued' as const,
          run: claimedRun({ TransactionID: '1' }),
          ...claim,
        }))
      },
    },
  } as unknown as OperationsDeps)
  await operations.queue('Orders', [{ TransactionID: '1', InitialData: null }])
  order.push('response')
  expect(order).toEqual(expected)
})
