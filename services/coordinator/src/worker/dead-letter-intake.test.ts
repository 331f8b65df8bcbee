import { IntegrationError } from '@integration-host/shared/errors'
import { createLogger } from '@integration-host/shared/observability/logger'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, describe, expect, it } from 'vitest'
import type { NewDeadLetter } from '../transaction/dead-letter.ts'
import { deadLetterOf, startDeadLetterIntake } from './dead-letter-intake.ts'
import type { DeadMessage } from './dead-letter-queue.ts'
import { createStoreRetry } from './store-retry.ts'

const message = (messageId: string, members: Partial<DeadMessage> = {}): DeadMessage => ({
  messageId,
  reason: 'malformed',
  content: Buffer.from('not json'),
  contentBytes: 8,
  deliveryCount: 0,
  ...members,
})
const unavailable = new IntegrationError('store_unavailable', 'away')

const opened: AsyncDisposable[] = []
afterEach(async () => {
  for (const resource of opened.splice(0)) await resource[Symbol.asyncDispose]()
})

/** Starts an intake of the process `P` on fakes that record its calls. */
function intakeOn({ intervalMs = 10, holdMs = 60_000 } = {}) {
  type Handlers = Parameters<Parameters<typeof startDeadLetterIntake>[0]['queue']['consume']>[1]
  const stored: NewDeadLetter[] = []
  const again: DeadMessage[] = []
  const logged: string[] = []
  const state = {
    error: null as Error | null,
    isBrokerAway: false,
    consumer: null as Handlers | null,
    starts: 0,
  }
  const intake = startDeadLetterIntake({
    store: {
      deadLetterCapacity: 100,
      async addDeadLetter(letter) {
        if (state.error !== null) throw state.error
        stored.push(letter)
      },
      async deadLetterCounts() {
        if (state.error !== null) throw state.error
        return new Map([['P', stored.length]])
      },
      storedProcesses: async () => ['P'],
    },
    queue: {
      waiting: async () => 0,
      consume(_process, handlers) {
        state.consumer = handlers
        state.starts += 1
        return {
          cancel: async () => {
            if (state.consumer === handlers) state.consumer = null
          },
        }
      },
      async publishAgain(_process, letter) {
        if (state.isBrokerAway) throw new IntegrationError('broker_unavailable', 'away')
        again.push(letter)
      },
    },
    processes: ['P'],
    retryStore: createStoreRetry(() => 0),
    log: createLogger('test', 'debug', {
      write: (line: string) => void logged.push(JSON.parse(line).msg),
    }),
    now: () => 0,
    random: () => 0.5,
    intervalMs,
    holdMs,
  })
  opened.push(intake)
  const consuming = async (): Promise<Handlers> => {
    await eventually(() => expect(state.consumer).not.toBeNull())
    return state.consumer as Handlers
  }
  return { state, stored, again, logged, consuming, intake }
}

describe('the intake of dead letters', () => {
  it('a message is acknowledged after it is stored', async () => {
    const { stored, consuming } = intakeOn()
    const { handle } = await consuming()
    expect(await handle(message('a'))).toBe('ack')
    expect(stored).toMatchObject([{ Process: 'P', Reason: 'malformed' }])
  })

  it('a message in flight is held while the store is unavailable, and not returned to the queue', async () => {
    const { state, stored, consuming } = intakeOn({ intervalMs: 3_600_000 })
    const { handle } = await consuming()
    state.error = unavailable
    const settled = handle(message('a'))
    await eventually(() => expect(state.consumer).toBeNull())
    state.error = null
    expect(await settled).toBe('ack')
    expect(stored).toHaveLength(1)
  })

  it('after the hold a message is returned once, and none is consumed until the store is available', async () => {
    const { state, consuming } = intakeOn({ holdMs: 50 })
    const { handle } = await consuming()
    state.error = unavailable
    expect(await handle(message('a'))).toBe('requeue')
    const { starts } = state
    expect(state.consumer).toBeNull()
    state.error = null
    await consuming()
    expect(state.starts).toBe(starts + 1)
  })

  it('a shutdown while the store is unavailable ends the hold', async () => {
    const { state, consuming, intake } = intakeOn()
    const { handle } = await consuming()
    state.error = unavailable
    const settled = handle(message('a'))
    await eventually(() => expect(state.consumer).toBeNull())
    await intake[Symbol.asyncDispose]()
    expect(await settled).toBe('requeue')
  })

  it('a message that the store rejects for another reason stays in the queue, and the error is logged', async () => {
    const { state, logged, consuming } = intakeOn({ intervalMs: 3_600_000 })
    const { handle } = await consuming()
    state.error = new Error('a defect')
    expect(await handle(message('a'))).toBe('requeue')
    expect(state.consumer).toBeNull()
    expect(logged).toContain('dead letter could not be stored; it stays in its queue')
  })

  it('a message that was returned eight times is published again, so that the broker never deletes it', async () => {
    const { state, stored, again, consuming } = intakeOn()
    const { handle } = await consuming()
    expect(await handle(message('a', { deliveryCount: 7 }))).toBe('ack')
    expect([stored.length, again.length]).toEqual([1, 0])
    expect(await handle(message('b', { deliveryCount: 8 }))).toBe('ack')
    expect([stored.length, again.length]).toEqual([1, 1])
    state.isBrokerAway = true
    expect(await handle(message('c', { deliveryCount: 8 }))).toBe('ack')
    expect([stored.length, again.length]).toEqual([2, 1])
  })

  it('a queue that the broker does not let it consume is tried again, and the reason is logged once', async () => {
    const { state, logged, consuming } = intakeOn()
    for (let n = 0; n < 3; n += 1) {
      const { onRejected } = await consuming()
      state.consumer = null
      onRejected('ACCESS-REFUSED')
    }
    await consuming()
    expect(logged.filter((line) => line === 'dead letters cannot be consumed')).toHaveLength(1)
  })
})

describe('a message as a dead letter', () => {
  const step = { v: 1, Process: 'P', TransactionID: '66', ReplayID: 2, Step: 's', Version: 9 }
  const of = (content: string, messageId = 'm') =>
    deadLetterOf('P', message(messageId, { content: Buffer.from(content) }))

  it('belongs to the run that a step message of its process names, and otherwise to none', () => {
    const run = { TransactionID: '66', ReplayID: 2, StepName: 's' }
    const none = { TransactionID: null, ReplayID: null, StepName: null }
    expect(of(JSON.stringify(step))).toMatchObject(run)
    expect(of(JSON.stringify({ ...step, Process: 'Q' }))).toMatchObject(none)
    expect(of(JSON.stringify({ ...step, note: 'business data' }))).toMatchObject(none)
    expect(of('not json')).toMatchObject(none)
  })

  it('has the same id for each delivery, and another id for another content or message id', () => {
    const { MessageID } = of('a')
    expect(of('a').MessageID).toBe(MessageID)
    const ids = [MessageID, of('b').MessageID, of('a', 'n').MessageID, of('a', '').MessageID]
    expect(new Set(ids).size).toBe(4)
    expect(of('a', '').MessageID).toMatch(/^sha256:[0-9a-f]{64}$/)
  })

  it('has no control characters and half surrogate pairs in its id and reason', () => {
    const letter = deadLetterOf('P', message('a\u0000\ud800b', { reason: 'x\ny' }))
    expect(letter).toMatchObject({
      Reason: 'x\ufffdy',
      MessageID: expect.stringMatching(/^a\ufffd\ufffdb#/),
    })
  })
})
