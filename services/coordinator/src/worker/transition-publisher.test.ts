import { describe, expect, it } from 'vitest'
import { createLogger } from '@integration-host/shared/observability/logger'
import type { RunState } from '../transaction/transaction-source.ts'
import { createTransitionPublisher } from './transition-publisher.ts'

const run: RunState = {
  Process: 'OrderProcess',
  TransactionID: '1',
  ReplayID: 0,
  Status: 'Waiting',
  StepName: 'order',
  Version: 4,
  Attempt: 0,
  NextAttemptAt: null,
  LastError: null,
  ErrorClass: 'credential_faulted',
  WaitingFor: 'ACC-1',
  InDoubt: false,
  UpdatedAt: '2026-01-01T00:00:00.000Z',
  CompletedAt: null,
}

function createPublisher() {
  const events: string[] = []
  const messages: number[] = []
  const publisher = createTransitionPublisher({
    queue: { publish: async ({ version }) => void messages.push(version) },
    feed: { add: () => {} },
    publishEvent: ({ Status }) => void events.push(Status),
    log: createLogger('test', 'silent'),
    firstStep: () => 'order',
  })
  return { publisher, events, messages }
}

describe('publishing the transition of a run that waits for a credential', () => {
  it('the transition itself publishes an event and no step message', async () => {
    const { publisher, events, messages } = createPublisher()
    await publisher.publishStep(run)
    expect([events, messages]).toEqual([['Waiting'], []])
  })

  it('the sweeper publishes the step message, because the event of the credential may have been missed', async () => {
    const { publisher, events, messages } = createPublisher()
    await publisher.republishStep(run)
    expect([events, messages]).toEqual([[], [4]])
  })

  it('the step message of a run that is over is never published', async () => {
    const { publisher, messages } = createPublisher()
    await publisher.republishStep({ ...run, Status: 'Cancelled' })
    expect(messages).toEqual([])
  })
})
