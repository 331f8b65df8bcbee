import { expect, it } from 'vitest'
import {
  coordinatorSummary,
  processState,
  replica,
  runGroup,
  unknownInstallation,
} from '../../test-support/installation.ts'
import type { ProcessState, RunGroup } from './installation.ts'
import { nowView } from './pages.ts'

const group = (status: string, waitingFor: string | null): RunGroup =>
  runGroup({ process: 'Order', status, waitingFor })

const now = (
  counts: Parameters<typeof coordinatorSummary>[0],
  processes: readonly ProcessState[],
) => {
  const coordinator = replica({ Coordinator: coordinatorSummary(counts) })
  return nowView({
    at: 0,
    watchedSince: 0,
    installation: {
      ...unknownInstallation,
      services: [{ name: 'coordinator', replicas: [coordinator] }],
      processes,
    },
    conditions: [],
    prometheusFailedSince: null,
    lastEnded: null,
    minutes: [],
    lastHour: () => ({ Done: 0, Failed: 0 }),
    changes: [],
    changesAsOf: [
      { service: 'coordinator', at: 0 },
      { service: 'token-service', at: null },
    ],
  })
}

it('the page Now takes its numbers of runs from the counts of the coordinator and not from the metrics, which are older', () => {
  const groups = [group('Failed', null), group('Waiting', 'ACC-1'), group('Waiting', 'ACC-2')]
  const { Runs, RunsOf, ChangesAsOf } = now({ Runs: { Failed: 1, Queued: 5 } }, [
    processState('Order', groups),
  ])
  expect(Runs).toMatchObject({ InFlight: 0, Failed: 3, Waiting: 6 })
  expect(RunsOf).toMatchObject([{ Process: 'Order', ...Runs }])
  expect(ChangesAsOf).toEqual([{ Service: 'coordinator', At: '1970-01-01T00:00:00.000Z' }])
})

it('the page Now has the due runs with the time of the oldest count', () => {
  const due = (Process: string, Step: string, Count: number, OldestSeconds: number) => ({
    Process,
    Step,
    Count,
    OldestSeconds,
    IdleSeconds: 0,
  })
  const counts = { Due: [due('A', 'one', 1, 0), due('B', 'two', 2, 42)] }
  const counted = (name: string, countedAt: number | null) => ({ ...processState(name), countedAt })
  expect(now(counts, [counted('A', 9_000), counted('B', 5_000)]).Due).toEqual({
    Count: 3,
    OldestSeconds: 42,
    CountedAt: '1970-01-01T00:00:05.000Z',
  })
  expect(now(counts, [counted('A', null)]).Due?.CountedAt).toBeNull()
})
