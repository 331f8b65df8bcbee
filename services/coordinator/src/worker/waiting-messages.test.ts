import { expect, it } from 'vitest'
import { processOf } from '../../test-support/process-of.ts'
import { countWaitingMessages } from './waiting-messages.ts'

const steps = { one: () => null }
const sale = processOf('Sale', {
  on: [
    { provider: 'intuit', entity: 'Invoice', operations: ['create'] },
    { entry: ['deleted'], entity: 'Invoice' },
  ],
  steps,
})
const plain = processOf('Plain', { steps })
const builtIn = {
  ...processOf('Builtin', { steps }),
  runBuiltIn: async () => ({ kind: 'released' as const }),
}

it('the waiting messages of each process are counted, but not those of built-in processes or of queues whose depth is unknown', async () => {
  const depths: Readonly<Record<string, number>> = {
    'start.Sale': 3,
    'on.Sale': 5,
    'entries.Sale': 7,
  }
  const asked: string[] = []
  const counted = await countWaitingMessages(
    {
      async depth(queue) {
        asked.push(queue)
        const ready = depths[queue]
        return ready === undefined ? null : { ready, consumers: 1 }
      },
    },
    [sale, plain, builtIn],
  )
  expect(counted).toEqual([
    { process: 'Sale', kind: 'start', count: 3 },
    { process: 'Sale', kind: 'on', count: 5 },
    { process: 'Sale', kind: 'entries', count: 7 },
  ])
  expect(asked).toEqual(['start.Sale', 'on.Sale', 'entries.Sale', 'start.Plain'])
})
