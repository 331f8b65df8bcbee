import type { Message } from 'amqplib'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Settlement } from '../message-bus.ts'
import { createSettlements } from './settlements.ts'

/**
 * A fake channel that records the unacknowledged deliveries, the requeued deliveries, and the acknowledgement frames.
 */
function fixture() {
  const unacknowledged = new Set<number>()
  const requeued: number[] = []
  const frames: string[] = []
  let flush = (): void => {}
  let tags = 0
  const tagOf = ({ fields }: Message): number => fields.deliveryTag
  const settlements = createSettlements(
    {
      ack(message, allUpTo = false) {
        const tag = tagOf(message)
        if (!unacknowledged.has(tag)) throw new Error('PRECONDITION_FAILED - unknown delivery tag')
        for (const other of unacknowledged)
          if (other === tag || (allUpTo && other < tag)) unacknowledged.delete(other)
        frames.push(`${tag}${allUpTo ? '…' : ''}`)
      },
      nack(message, _allUpTo, isRequeued) {
        unacknowledged.delete(tagOf(message))
        if (isRequeued === true) requeued.push(tagOf(message))
      },
    },
    (deferred) => void (flush = deferred),
  )
  const deliver = (): Message => {
    const message = { fields: { deliveryTag: (tags += 1) } } as Message
    unacknowledged.add(tags)
    settlements.open(message)
    return message
  }
  return { settlements, unacknowledged, requeued, frames, deliver, flush: () => flush() }
}

describe('settling the deliveries of a channel', () => {
  it('one AMQP frame acknowledges all deliveries that arrived earlier than the oldest delivery in flight', () => {
    const { settlements, deliver, flush, frames, unacknowledged } = fixture()
    const messages = [1, 2, 3, 4, 5, 6].map(deliver)
    for (const n of [2, 0, 1, 4]) void settlements.settle(messages[n] as Message, 'ack')
    flush()
    expect(frames).toEqual(['3…', '5'])
    expect([...unacknowledged]).toEqual([4, 6])
  })

  it('exactly the finished deliveries are acknowledged, in whatever order their handlers finish', () => {
    const settlement = fc.constantFrom<Settlement>('ack', 'ack', 'ack', 'requeue', 'reject')
    const action = fc.oneof(
      fc.constant('deliver' as const),
      fc.constant('flush' as const),
      fc.tuple(fc.nat(), settlement),
    )
    fc.assert(
      fc.property(fc.array(action, { maxLength: 60 }), (actions) => {
        const { settlements, deliver, flush, unacknowledged, requeued } = fixture()
        const inHand: Message[] = []
        const returned: number[] = []
        for (const one of actions) {
          if (one === 'deliver') inHand.push(deliver())
          else if (one === 'flush') flush()
          else if (inHand.length > 0) {
            const [message] = inHand.splice(one[0] % inHand.length, 1) as [Message]
            void settlements.settle(message, one[1])
            if (one[1] === 'requeue') returned.push(message.fields.deliveryTag)
          }
        }
        flush()
        expect([...unacknowledged]).toEqual(inHand.map(({ fields }) => fields.deliveryTag))
        expect(requeued).toEqual(returned)
      }),
      { numRuns: 1_000 },
    )
  })
})
