import { describe, expect, it } from 'vitest'
import type { Installation, RunGroup } from './installation.ts'
import { parseMetrics } from './metric-text.ts'
import { queuesOf } from './queues.ts'

const METRICS = `coordinator_due_runs{process="Order",step="order"} 3
coordinator_due_runs{process="Order",step="csv"} 0
coordinator_due_runs{process="Other",step="order"} 9
coordinator_oldest_due_seconds{process="Order",step="order"} 42
coordinator_dead_messages{process="Order"} 2
coordinator_dead_messages{process="Other"} 5
`
const group = (status: string, count: number): RunGroup => ({
  process: 'Order',
  step: 'order',
  status,
  errorClass: null,
  waitingFor: null,
  count,
  inDoubt: 0,
  oldestAt: null,
})
const installation = (groups: readonly RunGroup[] | null): Installation => ({
  services: [
    {
      name: 'coordinator',
      replicas: [
        {
          address: 'one',
          misses: 0,
          since: 0,
          reason: null,
          report: null,
          samples: parseMetrics(METRICS),
          clockOffsetMs: null,
        },
      ],
    },
  ],
  companies: null,
  faulted: [],
  processes: [
    {
      name: 'Order',
      isLoaded: true,
      needsInternet: false,
      isPaused: false,
      pausedAt: null,
      pausedBy: null,
      reason: null,
      groups,
    },
  ],
})
const process = { Process: 'Order', Steps: ['order', 'csv'] }

describe('the queues of a process on the page Processes', () => {
  it('the queues of a process contain the due runs and the times of its steps, and its dead letters', () => {
    const counted = installation([group('Queued', 4), group('Failed', 2), group('Cancelled', 1)])
    const times = [
      { labels: ['Other', 'csv'], value: 9 },
      { labels: ['Order', 'order'], value: 0.04 },
    ]
    expect(queuesOf(counted, process, times)).toEqual({
      Queues: [
        { Step: 'order', Due: 3, OldestSeconds: 42, P95Seconds: 0.04 },
        { Step: 'csv', Due: 0, OldestSeconds: 0, P95Seconds: null },
      ],
      Unfinished: 4,
      Failed: 2,
      DeadLetters: 2,
    })
  })

  it('the queues of a process have no counts of runs before the coordinator has counted them', () => {
    expect(queuesOf(installation(null), process, [])).toMatchObject({
      Unfinished: null,
      Failed: null,
    })
  })
})
