import { expect, it } from 'vitest'
import { processState, runGroup, unknownInstallation } from '../../test-support/installation.ts'
import type { RunGroup } from './installation.ts'
import { parseMetrics } from './metric-text.ts'
import { nowView } from './pages.ts'

const METRICS = `coordinator_transactions{status="waiting"} 0
coordinator_transactions{status="failed"} 1
coordinator_transactions{status="queued"} 5
`
const group = (status: string, waitingFor: string | null): RunGroup =>
  runGroup({ process: 'Order', status, waitingFor })

it('the page Now takes its numbers of runs from the counts of the coordinator and not from the metrics, which are older', () => {
  const coordinator = {
    address: 'one',
    misses: 0,
    since: 0,
    reason: null,
    report: null,
    samples: parseMetrics(METRICS),
    clockOffsetMs: null,
  }
  const groups = [group('Failed', null), group('Waiting', 'ACC-1'), group('Waiting', 'ACC-2')]
  const { Runs, RunsOf, ChangesAsOf } = nowView({
    at: 0,
    watchedSince: 0,
    installation: {
      ...unknownInstallation,
      services: [{ name: 'coordinator', replicas: [coordinator] }],
      processes: [processState('Order', groups)],
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
  expect(Runs).toMatchObject({ InFlight: 0, Failed: 3, Waiting: 6 })
  expect(RunsOf).toEqual([{ Process: 'Order', ...Runs }])
  expect(ChangesAsOf).toEqual([{ Service: 'coordinator', At: '1970-01-01T00:00:00.000Z' }])
})
