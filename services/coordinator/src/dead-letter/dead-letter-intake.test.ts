import { IntegrationError } from '@integration-host/shared/errors'
import { createLogger } from '@integration-host/shared/observability/logger'
import { systemClock } from '@integration-host/shared/process/clock'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, describe, expect, it } from 'vitest'
import { deadLetterOf, startDeadLetterIntake } from './dead-letter-intake.ts'
import type { NewDeadLetter } from './dead-letter-store.ts'
import type { DeadMessage } from '../worker/dead-letter-queue.ts'
import { createStoreRetry } from '../worker/store-retry.ts'

const message = (messageId: string, members: Partial<DeadMessage> = {}): DeadMessage => ({
  messageId,
  reason: 'malformed',
  content: Buffer.from('not json'),
  contentBytes: 8,
  deliveryCount: 0,
  ...members,
})
const unavailable = new IntegrationError('store_unavailable', 'the store is unavailable')

const opened: AsyncDisposable[] = []
afterEach(async () => {
  for (const resource of opened.splice(0)) await resource[Symbol.asyncDispose]()
})

/**
 * Starts an intake of dead letters for the process `P`, with fakes that record the calls of the
 * intake.
 */
function intakeOn({ intervalMs = 10, holdMs = 60_000 } = {}) {
  type Handlers = Parameters<Parameters<typeof startDeadLetterIntake>[0]['queue']['consume']>[1]
  const stored: NewDeadLetter[] = []
  const again: DeadMessage[] = []
  const logged: string[] = []
  const state = {
    error: null as Error | null,
    isBrokerUnavailable: false,
    consumer: null as Handlers | null,
    starts: 0,
    stored: ['P'],
    existing: ['P'],
    /** The queues whose existence the intake has checked. */
    checks: [] as string[],
    consumed: [] as string[],
    polls: 0,
    nowMs: 0,
  }
  const intake = startDeadLetterIntake({
    deadLetterStore: {
      capacity: 100,
      async add(letter) {
        if (state.error !== null) throw state.error
        stored.push(letter)
      },
      async counts() {
        if (state.error !== null) throw state.error
        return new Map([['P', stored.length]])
      },
    },
    source: {
      async storedProcesses() {
        state.polls += 1
        return new Map(state.stored.map((name) => [name, null]))
      },
    },
    queue: {
      async waiting(process) {
        state.checks.push(process)
        return state.isBrokerUnavailable || !state.existing.includes(process) ? null : 0
      },
      consume(process, handlers) {
        state.consumed.push(process)
        state.consumer = handlers
        state.starts += 1
        return {
          cancel: async () => {
            if (state.consumer === handlers) state.consumer = null
          },
        }
      },
      async publishAgain(_process, letter) {
        if (state.isBrokerUnavailable)
          throw new IntegrationError('broker_unavailable', 'the broker is unavailable')
        again.push(letter)
      },
    },
    processes: ['P'],
    retryStore: createStoreRetry(() => 0),
    log: createLogger('test', 'debug', {
      write: (line: string) => void logged.push(JSON.parse(line).msg),
    }),
    clock: { ...systemClock, now: () => state.nowMs },
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
  it('the intake of dead letters acknowledges a message only after storing it', async () => {
    const { stored, consuming } = intakeOn()
    const { handle } = await consuming()
    expect(await handle(message('a'))).toBe('ack')
    expect(stored).toMatchObject([{ Process: 'P', Reason: 'malformed' }])
  })

  it('while the store is unavailable, the intake of dead letters keeps a message in flight instead of returning it to the queue', async () => {
    const { state, stored, consuming } = intakeOn({ intervalMs: 3_600_000 })
    const { handle } = await consuming()
    state.error = unavailable
    const settled = handle(message('a'))
    await eventually(() => expect(state.consumer).toBeNull())
    state.error = null
    expect(await settled).toBe('ack')
    expect(stored).toHaveLength(1)
  })

  it('the intake returns a message that it could not store in time, and consumes nothing until the store is available', async () => {
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

  it('a shutdown returns a message that the intake keeps in flight while the store is unavailable', async () => {
    const { state, consuming, intake } = intakeOn()
    const { handle } = await consuming()
    state.error = unavailable
    const settled = handle(message('a'))
    await eventually(() => expect(state.consumer).toBeNull())
    await intake[Symbol.asyncDispose]()
    expect(await settled).toBe('requeue')
  })

  it('if storing a message fails because of a defect, the message stays in the queue, and the intake logs the error', async () => {
    const { state, logged, consuming } = intakeOn({ intervalMs: 3_600_000 })
    const { handle } = await consuming()
    state.error = new Error('a defect')
    expect(await handle(message('a'))).toBe('requeue')
    expect(state.consumer).toBeNull()
    expect(logged).toContain('dead letter could not be stored; the message stays in its queue')
  })

  it('the intake of dead letters republishes a message that was returned eight times, so that the broker never deletes it', async () => {
    const { state, stored, again, consuming } = intakeOn()
    const { handle } = await consuming()
    expect(await handle(message('a', { deliveryCount: 7 }))).toBe('ack')
    expect([stored.length, again.length]).toEqual([1, 0])
    expect(await handle(message('b', { deliveryCount: 8 }))).toBe('ack')
    expect([stored.length, again.length]).toEqual([1, 1])
    state.isBrokerUnavailable = true
    expect(await handle(message('c', { deliveryCount: 8 }))).toBe('ack')
    expect([stored.length, again.length]).toEqual([2, 1])
  })

  it('if the broker rejects the consumer of dead letters, the intake retries, and logs the reason once', async () => {
    const { state, logged, consuming } = intakeOn()
    for (let n = 0; n < 3; n += 1) {
      const { onRejected } = await consuming()
      state.consumer = null
      onRejected('ACCESS-REFUSED')
    }
    await consuming()
    expect(logged.filter((line) => line === 'consuming the dead letters failed')).toHaveLength(1)
  })
})

describe('the dead-letter queues of processes that are not loaded', () => {
  const nextPoll = async ({ state }: ReturnType<typeof intakeOn>): Promise<void> => {
    const { polls } = state
    await eventually(() => expect(state.polls).toBeGreaterThan(polls + 1))
  }

  it('the intake checks the dead-letter queues of unloaded processes only if such a process has runs', async () => {
    const intake = intakeOn()
    await nextPoll(intake)
    expect(intake.state.checks).toEqual([])
  })

  it('the intake consumes the dead-letter queue of an unloaded process, and checks for missing queues every five minutes', async () => {
    const intake = intakeOn()
    const { state } = intake
    state.stored = ['P', 'Removed', 'Missing']
    state.existing = ['P', 'Removed']
    await eventually(() => expect(state.consumed).toEqual(['P', 'Removed']))
    await nextPoll(intake)
    expect(state.checks.filter((name) => name !== 'P')).toEqual(['Removed', 'Missing'])
    state.existing.push('Missing')
    state.nowMs += 300_000
    await eventually(() => expect(state.consumed).toEqual(['P', 'Removed', 'Missing']))
  })

  it('the intake does not treat a dead-letter queue as missing while the broker is unavailable', async () => {
    const intake = intakeOn()
    const { state } = intake
    state.isBrokerUnavailable = true
    state.stored = state.existing = ['P', 'Removed']
    await nextPoll(intake)
    state.isBrokerUnavailable = false
    await eventually(() => expect(state.consumed).toEqual(['P', 'Removed']))
  })
})

describe('the dead letter that is stored for a message', () => {
  const step = { v: 1, Process: 'P', TransactionID: '66', ReplayID: 2, Step: 's', Version: 9 }
  const of = (content: string, messageId = 'm') =>
    deadLetterOf('P', message(messageId, { content: Buffer.from(content) }))

  it('a dead letter names a run only if its message is a step message of the same process', () => {
    const run = { TransactionID: '66', ReplayID: 2, StepName: 's' }
    const none = { TransactionID: null, ReplayID: null, StepName: null }
    expect(of(JSON.stringify(step))).toMatchObject(run)
    expect(of(JSON.stringify({ ...step, Process: 'Q' }))).toMatchObject(none)
    expect(of(JSON.stringify({ ...step, note: 'business data' }))).toMatchObject(none)
    expect(of('not json')).toMatchObject(none)
  })

  it('a dead letter has the same id at each redelivery, and a different id if its content or message id differs', () => {
    const { MessageID } = of('a')
    expect(of('a').MessageID).toBe(MessageID)
    const ids = [MessageID, of('b').MessageID, of('a', 'n').MessageID, of('a', '').MessageID]
    expect(new Set(ids).size).toBe(4)
    expect(of('a', '').MessageID).toMatch(/^sha256:[0-9a-f]{64}$/)
  })

  it('the id and the reason of a dead letter contain no control character and no unpaired surrogate', () => {
    const letter = deadLetterOf('P', message('a\u0000\ud800b', { reason: 'x\ny' }))
    expect(letter).toMatchObject({
      Reason: 'x\ufffdy',
      MessageID: expect.stringMatching(/^a\ufffd\ufffdb#/),
    })
  })
})
