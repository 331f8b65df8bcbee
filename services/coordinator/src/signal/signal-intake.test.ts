import { START_EXCHANGE, signalKey } from '@integration-host/shared/contracts/topology'
import { createLogger } from '@integration-host/shared/observability/logger'
import { type Clock, systemClock } from '@integration-host/shared/process/clock'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect, it } from 'vitest'
import { notFound } from '../run/errors.ts'
import type { StartQueue } from '../start/start-queue.ts'
import type { IntakeMessage } from '../worker/intake-queue.ts'
import { createStoreRetry } from '../worker/store-retry.ts'
import { startSignalIntake } from './signal-intake.ts'

const message: IntakeMessage = {
  address: { exchange: START_EXCHANGE, routingKey: signalKey('P'), headers: {} },
  messageId: 'a',
  userId: '',
  content: Buffer.from('{"TransactionID":"1","Event":"approved"}'),
  traceparent: null,
  deliveryCount: 0,
  renewals: 0,
}

/** Starts an intake for a process without runs. `looks` has the times at which it has looked for the run. */
function intakeOn(clock: Clock) {
  const looks: number[] = []
  const dead: string[] = []
  let consumer: Parameters<StartQueue['consume']>[1] | undefined
  const intake = startSignalIntake({
    pauses: { paused: async () => new Map() },
    queue: {
      consume(_process, handlers) {
        consumer = handlers
        return { cancel: async () => {} }
      },
      publishAgain: async () => {},
      deadLetter: async (_process, _message, reason) => void dead.push(reason),
    },
    runActions: {
      queue: async () => [],
      async signal(process, id) {
        looks.push(clock.now())
        throw notFound(process, id, null)
      },
    },
    processes: () => ['P'],
    isBatched: false,
    isDurable: true,
    retryStore: createStoreRetry(() => 0),
    log: createLogger('test', 'silent'),
    clock,
    random: () => 0.5,
    intervalMs: 10,
  })
  const handle = async (received = message) => {
    await eventually(() => expect(consumer).toBeDefined())
    return consumer?.handle(received)
  }
  return { intake, looks, dead, handle }
}

it('an event for a run that does not exist is held back for a minute, and then dead-lettered', async () => {
  let movedMs = 0
  const clock: Clock = {
    ...systemClock,
    now: () => movedMs,
    setTimeout(callback, ms) {
      movedMs += ms
      return systemClock.setTimeout(callback, 0)
    },
  }
  const { intake, looks, dead, handle } = intakeOn(clock)
  expect(await handle()).toBe('ack')
  expect(dead).toEqual(['transaction_not_found'])
  expect([looks.at(0), looks.at(-1)]).toEqual([0, 60_000])
  await intake[Symbol.asyncDispose]()
})

it('a shutdown returns an event that is held back to its queue', async () => {
  const { intake, looks, dead, handle } = intakeOn(systemClock)
  const settled = handle()
  await eventually(() => expect(looks).not.toEqual([]))
  await intake[Symbol.asyncDispose]()
  expect(await settled).toBe('requeue')
  expect(dead).toEqual([])
})

it('an event with the routing key of the messages that start runs is dead-lettered', async () => {
  const { intake, looks, dead, handle } = intakeOn(systemClock)
  const address = { ...message.address, routingKey: 'P' }
  expect(await handle({ ...message, address })).toBe('ack')
  expect(dead).toEqual([expect.stringMatching(/^misaddressed: /)])
  expect(looks).toEqual([])
  await intake[Symbol.asyncDispose]()
})
