import { describe, expect, it } from 'vitest'
import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'
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
  const published: TransactionEvent[] = []
  const messages: number[] = []
  const publisher = createTransitionPublisher({
    queue: { publish: async ({ version }) => void messages.push(version) },
    feed: { add: () => {} },
    publishEvent: (event) => void published.push(event),
    log: createLogger('test', 'silent'),
    firstStep: () => 'order',
  })
  return { publisher, published, messages }
}

it('the event of a transition contains the error class, credential, in-doubt flag, attempt and due time, but no data', async () => {
  const { publisher, published } = createPublisher()
  await publisher.publishStep({ ...run, Attempt: 2, InDoubt: true, NextAttemptAt: run.UpdatedAt })
  expect(published).toEqual([
    {
      Process: 'OrderProcess',
      TransactionID: '1',
      ReplayID: 0,
      Status: 'Waiting',
      StepName: 'order',
      Attempt: 2,
      ErrorClass: 'credential_faulted',
      WaitingFor: 'ACC-1',
      InDoubt: true,
      NextAttemptAt: run.UpdatedAt,
      Version: 4,
      At: run.UpdatedAt,
    },
  ])
})

describe('publishing the transition of a run that waits for a credential', () => {
  it('the transition of a run that waits for a credential publishes an event but no step message', async () => {
    const { publisher, published, messages } = createPublisher()
    await publisher.publishStep(run)
    expect([published.map(({ Status }) => Status), messages]).toEqual([['Waiting'], []])
  })

  it('the sweeper also publishes the step message of a run that waits for a credential, because a credential event can be missed', async () => {
    const { publisher, published, messages } = createPublisher()
    await publisher.republishStep(run)
    expect([published, messages]).toEqual([[], [4]])
  })

  it('the step message of a run that has ended is never published', async () => {
    const { publisher, messages } = createPublisher()
    await publisher.republishStep({ ...run, Status: 'Cancelled' })
    expect(messages).toEqual([])
  })
})
