import { expect, it } from 'vitest'
import {
  coordinatorSummary,
  replica,
  unknownInstallation,
} from '../../test-support/installation.ts'
import { queuesOf } from './run-counts.ts'

const due = (Process: string, Step: string, Count: number) => ({
  Process,
  Step,
  Count,
  OldestSeconds: 14 * Count,
  IdleSeconds: 0,
})

it('the queues of a process contain the due runs of its steps, and its dead letters', () => {
  const Coordinator = coordinatorSummary({
    Due: [due('Order', 'order', 3), due('Other', 'order', 9)],
    DeadLetters: { Order: 2, Other: 5 },
  })
  const services = [{ name: 'coordinator', replicas: [replica({ Coordinator })] }]
  const process = { Process: 'Order', Steps: ['order', 'csv'] }
  expect(queuesOf({ ...unknownInstallation, services }, process)).toEqual({
    Queues: [
      { Step: 'order', Due: 3, OldestSeconds: 42 },
      { Step: 'csv', Due: 0, OldestSeconds: 0 },
    ],
    DeadLetters: 2,
  })
})
