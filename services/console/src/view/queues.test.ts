import { describe, expect, it } from 'vitest'
import { CURRENT, type Installation } from './installation.ts'
import { parseMetrics } from './metric-text.ts'
import { queuesOf } from './queues.ts'

const METRICS = `coordinator_due_runs{process="Order",step="order"} 3
coordinator_due_runs{process="Order",step="csv"} 0
coordinator_due_runs{process="Other",step="order"} 9
coordinator_oldest_due_seconds{process="Order",step="order"} 42
coordinator_dead_messages{process="Order"} 2
coordinator_dead_messages{process="Other"} 5
`
const installation: Installation = {
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
  asOf: CURRENT,
  processes: null,
}
const process = { Process: 'Order', Steps: ['order', 'csv'] }

describe('the queues of a process on the page Processes', () => {
  it('the queues of a process contain the due runs and the times of its steps, and its dead letters', () => {
    const times = [
      { labels: ['Other', 'csv'], value: 9 },
      { labels: ['Order', 'order'], value: 0.04 },
    ]
    expect(queuesOf(installation, process, times)).toEqual({
      Queues: [
        { Step: 'order', Due: 3, OldestSeconds: 42, P95Seconds: 0.04 },
        { Step: 'csv', Due: 0, OldestSeconds: 0, P95Seconds: null },
      ],
      DeadLetters: 2,
    })
  })
})
