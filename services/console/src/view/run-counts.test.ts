import { describe, expect, it } from 'vitest'
import {
  coordinatorSummary,
  processState,
  replica,
  runGroup,
  unknownInstallation,
} from '../../test-support/installation.ts'
import type { RunGroup } from './installation.ts'
import { queuesOf, runCounts, waitingRuns } from './run-counts.ts'

describe('runCounts(): the numbers of runs that all pages show', () => {
  const group = (process: string, status: string, count: number, inDoubt = 0): RunGroup =>
    runGroup({ process, status, count, inDoubt })
  const processes = [
    processState('Orders', [group('Orders', 'Failed', 3, 1), group('Orders', 'Failed', 2)]),
    processState('Invoices', [
      group('Invoices', 'Waiting', 4),
      group('Invoices', 'Queued', 1),
      group('Invoices', 'Running', 1),
      group('Invoices', 'Retrying', 2),
      group('Invoices', 'Unknown', 9),
    ]),
    processState('Uncounted', null),
  ]

  const NONE = {
    InFlight: 0,
    Retrying: 0,
    Asking: 0,
    Waiting: 0,
    Failed: 0,
    Cancelled: 0,
    InDoubt: 0,
  }

  it('runCounts() sums the runs of each group over all processes or within one process', () => {
    const invoices = { ...NONE, InFlight: 4, Retrying: 2, Waiting: 4 }
    expect(runCounts(processes)).toEqual({ ...invoices, Failed: 5, InDoubt: 1 })
    expect(runCounts(processes, 'Invoices')).toEqual(invoices)
  })

  it('runCounts() does not count a waiting run as a run in flight', () => {
    const waiting = processState('P', [group('P', 'Waiting', 3)])
    expect(runCounts([waiting])).toEqual({ ...NONE, Waiting: 3 })
  })

  it('runCounts() counts the runs whose step asks again later, which are not retried', () => {
    const asking = { ...group('P', 'Retrying', 3), errorClass: 'step_waits' }
    const retried = { ...group('P', 'Retrying', 2), errorClass: 'http_503' }
    expect(runCounts([processState('P', [asking, retried])])).toEqual({
      ...NONE,
      InFlight: 5,
      Retrying: 5,
      Asking: 3,
    })
  })

  it('waitingRuns() counts the runs of all processes that wait for one company', () => {
    const waiting = (process: string, waitingFor: string): RunGroup => ({
      ...group(process, 'Waiting', 2),
      waitingFor,
    })
    const both = [
      processState('P', [waiting('P', 'ACC-1'), waiting('P', 'ACC-2')]),
      processState('Q', [waiting('Q', 'ACC-1'), group('Q', 'Failed', 1)]),
    ]
    expect(waitingRuns(both, '1')).toBe(4)
    expect(waitingRuns(both, '3')).toBe(0)
    expect(waitingRuns(null, '1')).toBeNull()
  })

  it('runCounts() returns null before the first count', () => {
    expect(runCounts(null)).toBeNull()
    expect(runCounts(processes, 'Uncounted')).toBeNull()
  })
})

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
