import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, describe, it } from 'vitest'
import { createLogger } from '../../observability/logger.ts'
import { messageBusContract } from '../message-bus.contract.ts'
import type { MessageBus, Settlement } from '../message-bus.ts'
import { createInProcessBus } from './message-bus.ts'

messageBusContract('the in-process bus', async () =>
  createInProcessBus(createLogger('test', 'silent')),
)

describe('the in-process message bus with a message that is the only copy of its data', () => {
  const topology = {
    exchanges: [
      { name: 'work', type: 'direct' as const },
      { name: 'dead', type: 'direct' as const },
    ],
    queues: [
      {
        name: 'a',
        bindings: [{ exchange: 'work', routingKey: 'x' }],
        deadLetter: { exchange: 'dead', routingKey: 'a' },
      },
      { name: 'b', bindings: [{ exchange: 'work', routingKey: 'x' }] },
      { name: 'dead.a', bindings: [{ exchange: 'dead', routingKey: 'a' }] },
    ],
  }
  /**
   * Publishes a message whose deliveries the test settles. `state` shows whether the publish has
   * been confirmed or has failed.
   */
  async function publishTo(bus: MessageBus, routingKey = 'x') {
    await bus.declare(topology)
    const state = { result: 'pending' }
    const published = bus
      .publish({
        exchange: 'work',
        routingKey,
        messageId: '1',
        type: 'x',
        body: {},
        mandatory: false,
        isOnlyCopy: true,
      })
      .then(
        () => (state.result = 'confirmed'),
        (error: unknown) => (state.result = (error as { code: string }).code),
      )
    const consume = (queue: string) => {
      const { promise, resolve } = Promise.withResolvers<Settlement>()
      bus.consume(queue, { prefetch: 1, tag: queue }, () => promise)
      return resolve
    }
    const later = async (): Promise<string> => {
      for (let turn = 0; turn < 10; turn += 1) await nextTurn()
      return state.result
    }
    return { consume, later, published }
  }
  const open = () => createInProcessBus(createLogger('test', 'silent'))

  it('the bus confirms a message that is the only copy of its data after the consumers of all queues acknowledged it', async () => {
    await using bus = open()
    const { consume, later } = await publishTo(bus)
    const [settleA, settleB] = [consume('a'), consume('b')]
    expect(await later()).toBe('pending')
    settleA('ack')
    expect(await later()).toBe('pending')
    settleB('ack')
    expect(await later()).toBe('confirmed')
  })

  it('if a message that is the only copy of its data is dead-lettered, it is confirmed when the dead letter is acknowledged', async () => {
    await using bus = open()
    const { consume, later } = await publishTo(bus)
    consume('b')('ack')
    consume('a')('reject')
    expect(await later()).toBe('pending')
    consume('dead.a')('ack')
    expect(await later()).toBe('confirmed')
  })

  it('publishing a message that is the only copy of its data fails if the bus is closed before the message is acknowledged', async () => {
    const bus = open()
    const { later } = await publishTo(bus)
    await bus[Symbol.asyncDispose]()
    expect(await later()).toBe('broker_unavailable')
  })

  it('the bus immediately confirms a message that is the only copy of its data if no queue receives the message', async () => {
    await using bus = open()
    expect(await (await publishTo(bus, 'other')).later()).toBe('confirmed')
  })
})
