import { expect, it } from 'vitest'
import { processState, runGroup, unknownInstallation } from '../../test-support/installation.ts'
import type { ProcessState, RunGroup } from './installation.ts'
import { parseMetrics } from './metric-text.ts'
import { nowView } from './pages.ts'

const METRICS = `coordinator_transactions{status="waiting"} 0
coordinator_transactions{status="failed"} 1
coordinator_transactions{status="queued"} 5
`
const group = (status: string, waitingFor: string | null): RunGroup =>
  runGroup({ process: 'Order', status, waitingFor })

const now = (metrics: string, processes: readonly ProcessState[]) => {
  const coordinator = {
    address: 'one',
    misses: 0,
    since: 0,
    reason: null,
    report: null,
    samples: parseMetrics(metrics),
    clockOffsetMs: null,
  }
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
    changes: [],
    changesAsOf: [
      { service: 'coordinator', at: 0 },
      { service: 'token-service', at: null },
    ],
  })
}

it('the page Now takes its numbers of runs from the counts of the coordinator and not from the metrics, which are older', () => {
  const groups = [group('Failed', null), group('Waiting', 'ACC-1'), group('Waiting', 'ACC-2')]
  const { Runs, RunsOf, ChangesAsOf } = now(METRICS, [processState('Order', groups)])
  expect(Runs).toMatchObject({ InFlight: 0, Failed: 3, Waiting: 6 })
  expect(RunsOf).toEqual([{ Process: 'Order', ...Runs }])
  expect(ChangesAsOf).toEqual([{ Service: 'coordinator', At: '1970-01-01T00:00:00.000Z' }])
})

it('the page Now has the due runs with the time of the oldest count', () => {
  const metrics = `coordinator_due_runs{process="A",step="one"} 1
coordinator_due_runs{process="B",step="two"} 2
coordinator_oldest_due_seconds{process="B",step="two"} 42
`
  const counted = (name: string, countedAt: number | null) => ({ ...processState(name), countedAt })
  expect(now(metrics, [counted('A', 9_000), counted('B', 5_000)]).Due).toEqual({
    Count: 3,
    OldestSeconds: 42,
    CountedAt: '1970-01-01T00:00:05.000Z',
  })
  expect(now(metrics, [counted('A', null)]).Due?.CountedAt).toBeNull()
})
