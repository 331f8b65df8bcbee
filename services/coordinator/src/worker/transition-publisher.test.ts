import { describe, expect, it } from 'vitest'
import type { TransactionEvent } from '@integration-host/shared/contracts/events'
import { createLogger } from '@integration-host/shared/observability/logger'
import type { RunState } from '../run/transaction-source.ts'
import { type Clock, systemClock } from '@integration-host/shared/process/clock'
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
  Priority: 'normal',
  UpdatedAt: '2026-01-01T00:00:00.000Z',
  CompletedAt: null,
}

function createPublisher() {
  const published: TransactionEvent[] = []
  const messages: number[] = []
  const delays: number[] = []
  const timers = new Map<() => void, number>()
  const clock: Clock = {
    ...systemClock,
    now: () => 0,
    setTimeout(callback, ms) {
      timers.set(callback, ms)
      return { unref: () => {}, [Symbol.dispose]: () => void timers.delete(callback) }
    },
  }
  const publisher = createTransitionPublisher({
    queue: {
      async publish({ version }, delayMs) {
        messages.push(version)
        delays.push(delayMs)
      },
      written: async () => {},
    },
    feed: { add: () => {} },
    lanes: { of: () => null, published: () => {} },
    listeners: [(event) => void published.push(event)],
    log: createLogger('test', 'silent'),
    clock,
    processes: new Map([['OrderProcess', { stepNames: ['order'] }]]),
  })
  return { publisher, published, messages, delays, timers }
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
      ProviderError: null,
      WaitingFor: 'ACC-1',
      InDoubt: true,
      NextAttemptAt: run.UpdatedAt,
      Version: 4,
      At: run.UpdatedAt,
    },
  ])
})

it('the event of a run that the provider has rejected has the code and message of the provider, and no details', async () => {
  const { publisher, published } = createPublisher()
  const LastError = '6240 Duplicate Name Exists Error: Ada Ltd (POST x responded with 400)'
  await publisher.publishStep({ ...run, Status: 'Failed', ErrorClass: 'http_400', LastError })
  expect(published).toMatchObject([{ ProviderError: '6240 Duplicate Name Exists Error' }])
  expect(JSON.stringify(published)).not.toContain('Ada')
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

describe('publishing the transition of a step that waits for a cool-down', () => {
  const held: RunState = { ...run, Status: 'Retrying', ErrorClass: 'credential_held' }

  it('the event is published at once, but the step message only when the cool-down has ended', () => {
    const { publisher, published, messages, delays, timers } = createPublisher()
    publisher.publishHeld(held, 250_000)
    expect([published.length, messages]).toEqual([1, []])
    const [[callback, ms] = []] = timers
    expect(ms).toBe(250_000)
    callback?.()
    expect([messages, delays]).toEqual([[4], [0]])
  })

  it('at shutdown, the waiting messages are published with their delays', async () => {
    const { publisher, messages, delays, timers } = createPublisher()
    publisher.publishHeld(held, 250_000)
    await publisher.flush()
    expect([messages, delays, timers.size]).toEqual([[4], [250_000], 0])
  })

  it('if ten thousand messages wait in memory, the next message waits in a delay queue', () => {
    const { publisher, messages, delays } = createPublisher()
    for (let n = 0; n < 10_001; n += 1) publisher.publishHeld(held, 1_000 + n)
    expect([messages, delays]).toEqual([[4], [11_000]])
  })
})
