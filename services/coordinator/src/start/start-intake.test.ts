import { START_EXCHANGE } from '@integration-host/shared/contracts/topology'
import { IntegrationError } from '@integration-host/shared/errors'
import { createLogger } from '@integration-host/shared/observability/logger'
import { systemClock } from '@integration-host/shared/process/clock'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, describe, expect, it } from 'vitest'
import { claimedRun } from '../../test-support/claimed-run.ts'
import type { Pause } from '../run/pause.ts'
import type { QueueResult } from '../run/transaction-source.ts'
import { startStartIntake, type StartResult } from './start-intake.ts'
import type { StartQueue } from './start-queue.ts'
import type { IntakeMessage } from '../worker/intake-queue.ts'
import { createStoreRetry } from '../worker/store-retry.ts'

const message = (members: Partial<IntakeMessage> = {}): IntakeMessage => ({
  address: { exchange: START_EXCHANGE, routingKey: 'P', headers: {} },
  messageId: 'a',
  userId: '',
  content: Buffer.from('{"InitialData":1}'),
  traceparent: null,
  deliveryCount: 0,
  renewals: 0,
  ...members,
})
const unavailable = new IntegrationError('store_unavailable', 'the store is unavailable')
const unconfirmed = new IntegrationError('broker_unavailable', 'the broker is unavailable')

const opened: AsyncDisposable[] = []
afterEach(async () => {
  for (const resource of opened.splice(0)) await resource[Symbol.asyncDispose]()
})

/**
 * Starts an intake of start messages for the process `P`, with fakes that record the calls of the
 * intake.
 */
function intakeOn({ holdMs = 60_000 } = {}) {
  type Handlers = Parameters<StartQueue['consume']>[1]
  const again: IntakeMessage[] = []
  const dead: string[] = []
  const counted: StartResult[] = []
  const logged: string[] = []
  /** The number of transactions in each statement, in the order of the statements. */
  const batches: number[] = []
  const state = {
    error: null as Error | null,
    isBrokerUnavailable: false,
    /** Resolves when the broker confirms a dead letter. */
    confirm: Promise.resolve(),
    consumer: null as Handlers | null,
    starts: 0,
    polls: 0,
    paused: new Map<string, Pause>(),
  }
  const intake = startStartIntake({
    pauses: {
      async paused() {
        state.polls += 1
        return state.paused
      },
    },
    queue: {
      consume(_process, handlers) {
        state.consumer = handlers
        state.starts += 1
        return {
          cancel: async () => {
            if (state.consumer === handlers) state.consumer = null
          },
        }
      },
      async publishAgain(_process, renewed) {
        if (state.isBrokerUnavailable) throw unconfirmed
        again.push(renewed)
      },
      async deadLetter(_process, _message, reason) {
        if (state.isBrokerUnavailable) throw unconfirmed
        dead.push(reason)
        await state.confirm
      },
    },
    runActions: {
      async queue(_process, transactions) {
        if (state.error !== null) throw state.error
        batches.push(transactions.length)
        const run = claimedRun() as unknown as QueueResult['run'] // the intake does not read the run
        return transactions.map(() => ({ outcome: 'queued', run }))
      },
    },
    processes: () => ['P'],
    isBatched: true,
    isDurable: true,
    retryStore: createStoreRetry(() => 0),
    log: createLogger('test', 'debug', {
      write: (line: string) => void logged.push(JSON.parse(line).msg),
    }),
    clock: systemClock,
    random: () => 0.5,
    intervalMs: 10,
    count: (_process, result) => counted.push(result),
    holdMs,
  })
  opened.push(intake)
  const consuming = async (): Promise<Handlers> => {
    await eventually(() => expect(state.consumer).not.toBeNull())
    return state.consumer as Handlers
  }
  return { state, again, dead, counted, logged, batches, consuming, intake }
}

describe('the intake of start messages', () => {
  it('simultaneous start messages are queued in few statements of at most 100 transactions', async () => {
    const { batches, counted, consuming } = intakeOn()
    const { handle } = await consuming()
    const settlements = Array.from({ length: 250 }, (_, n) =>
      handle(message({ messageId: `${n}` })),
    )
    expect(new Set(await Promise.all(settlements))).toEqual(new Set(['ack']))
    expect(batches).toEqual([100, 100, 50])
    expect(counted).toHaveLength(250)
  })

  it('while the store is unavailable, the intake keeps a start message in flight and consumes no other messages', async () => {
    const { state, consuming } = intakeOn()
    const { handle } = await consuming()
    state.error = unavailable
    const settled = handle(message())
    await eventually(() => expect(state.consumer).toBeNull())
    const { starts } = state
    // Every poll of the store succeeds: the store can be read, but not written.
    const { polls } = state
    await eventually(() => expect(state.polls).toBeGreaterThan(polls + 3))
    expect(state.starts).toBe(starts)
    state.error = null
    expect(await settled).toBe('ack')
    await consuming()
  })

  it('the intake returns a start message to its queue if the store stays unavailable for too long', async () => {
    const { state, consuming } = intakeOn({ holdMs: 50 })
    const { handle } = await consuming()
    state.error = unavailable
    expect(await handle(message())).toBe('requeue')
    state.error = null
    await consuming()
  })

  it('a shutdown returns a start message that the intake keeps in flight', async () => {
    const { state, consuming, intake } = intakeOn()
    const { handle } = await consuming()
    state.error = unavailable
    const settled = handle(message())
    await eventually(() => expect(state.consumer).toBeNull())
    await intake[Symbol.asyncDispose]()
    expect(await settled).toBe('requeue')
  })

  it('a shutdown ends the wait of the intake for the confirm of a dead letter', async () => {
    const { state, dead, counted, consuming, intake } = intakeOn()
    const { handle } = await consuming()
    state.confirm = new Promise(() => {})
    const settled = handle(message({ content: Buffer.from('?') }))
    await eventually(() => expect(dead).toHaveLength(1))
    await intake[Symbol.asyncDispose]()
    expect(await settled).toBe('requeue')
    expect(counted).toEqual([])
  })

  it('a start message that was returned eight times is published as a new message before it reaches the delivery limit', async () => {
    const { state, again, counted, consuming } = intakeOn()
    const { handle } = await consuming()
    expect(await handle(message({ deliveryCount: 7 }))).toBe('ack')
    expect([again.length, counted]).toEqual([0, ['queued']])
    const traceparent = `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`
    expect(await handle(message({ deliveryCount: 8, renewals: 3, traceparent }))).toBe('ack')
    expect(again).toMatchObject([{ messageId: 'a', renewals: 4, traceparent }])
    expect(counted).toEqual(['queued'])
    state.isBrokerUnavailable = true
    expect(await handle(message({ deliveryCount: 8 }))).toBe('ack')
    expect(counted).toEqual(['queued', 'queued'])
  })

  it('a start message that was published again 50 times is dead-lettered, because the message itself may crash the coordinators', async () => {
    const { dead, counted, batches, consuming } = intakeOn()
    const { handle } = await consuming()
    expect(await handle(message({ deliveryCount: 8, renewals: 50 }))).toBe('ack')
    expect([dead, counted, batches]).toEqual([['delivery_limit'], ['delivery_limit'], []])
  })

  it('an invalid start message returns to its queue if the broker does not confirm its dead letter', async () => {
    const { state, dead, counted, consuming, intake } = intakeOn()
    const { handle } = await consuming()
    state.isBrokerUnavailable = true
    const settled = handle(message({ content: Buffer.from('?') }))
    await intake[Symbol.asyncDispose]() // ends the pause before the message is returned
    expect(await settled).toBe('requeue')
    expect([dead, counted]).toEqual([[], []])
  })

  it('if the broker rejects the consumer of start messages, the intake retries, and logs the reason once', async () => {
    const { state, logged, consuming } = intakeOn()
    for (let n = 0; n < 3; n += 1) {
      const { onRejected } = await consuming()
      state.consumer = null
      onRejected('ACCESS-REFUSED')
    }
    await consuming()
    expect(logged.filter((line) => line === 'consuming the start messages failed')).toHaveLength(1)
  })

  it('the intake cancels its consumer of start messages when the process is paused, and starts it when the process is resumed', async () => {
    const { state, consuming, intake } = intakeOn()
    await consuming()
    state.paused.set('P', { Process: 'P', PausedAt: null, PausedBy: null, Reason: null })
    intake.setPaused(state.paused)
    await eventually(() => expect(state.consumer).toBeNull())
    state.paused.delete('P')
    intake.setPaused(state.paused)
    await consuming()
  })
})
