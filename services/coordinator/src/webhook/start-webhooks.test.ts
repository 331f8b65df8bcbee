import { createLogger } from '@integration-host/shared/observability/logger'
import { systemClock } from '@integration-host/shared/process/clock'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect, it } from 'vitest'
import { startWebhookRuns } from './start-webhooks.ts'

it('if counting the undelivered webhooks fails, the next poll does not count them', async () => {
  const calls = { polls: 0, counts: 0 }
  const starter = startWebhookRuns({
    source: {
      startWebhooks: async () => {
        calls.polls += 1
        return { runs: [], hasMore: false }
      },
      webhookBacklog: async () => {
        calls.counts += 1
        throw new Error('canceling statement due to statement timeout')
      },
    },
    publish() {},
    onBacklog() {},
    log: createLogger('test', 'silent'),
    clock: systemClock,
    random: () => 0.5,
    intervalMs: 3_600_000,
  })
  await eventually(() => expect(calls.counts).toBe(1))
  starter.hint()
  await eventually(() => expect(calls.polls).toBe(2))
  await starter[Symbol.asyncDispose]()
  expect(calls).toEqual({ polls: 2, counts: 1 })
})
