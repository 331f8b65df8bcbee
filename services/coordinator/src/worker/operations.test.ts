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
  } as unknown as OperationsDeps)
  await operations.queue('Orders', [{ TransactionID: '1', InitialData: null }])
  order.push('response')
  expect(order).toEqual(expected)
})
