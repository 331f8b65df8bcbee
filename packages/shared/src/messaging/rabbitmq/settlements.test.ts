import type { Message } from 'amqplib'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Settlement } from '../message-bus.ts'
import { createSettlements, type Settlements } from './settlements.ts'

type Delivery = ReturnType<Settlements['open']>
const tagOf = ({ value }: Delivery): number => value.message.fields.deliveryTag

/**
 * A fake channel that records the unacknowledged deliveries, the requeued deliveries, and the acknowledgement frames.
 */
function fixture() {
  const unacknowledged = new Set<number>()
  const requeued: number[] = []
  const frames: string[] = []
  let flush = (): void => {}
  let tags = 0
  const settlements = createSettlements(
    {
      ack(message, allUpTo = false) {
        const tag = message.fields.deliveryTag
        if (!unacknowledged.has(tag)) throw new Error('PRECONDITION_FAILED - unknown delivery tag')
        for (const other of unacknowledged)
          if (other === tag || (allUpTo && other < tag)) unacknowledged.delete(other)
        frames.push(`${tag}${allUpTo ? '…' : ''}`)
      },
      nack(message, _allUpTo, isRequeued) {
        const tag = message.fields.deliveryTag
        unacknowledged.delete(tag)
        if (isRequeued === true) requeued.push(tag)
      },
    },
    (deferred) => void (flush = deferred),
  )
  const deliver = () => {
    unacknowledged.add((tags += 1))
    return settlements.open({ fields: { deliveryTag: tags } } as Message)
  }
  return { settlements, unacknowledged, requeued, frames, deliver, flush: () => flush() }
}

describe('settling the deliveries of a channel', () => {
  it('one AMQP frame acknowledges all deliveries that arrived earlier than the oldest delivery in flight', () => {
    const { settlements, deliver, flush, frames, unacknowledged } = fixture()
    const deliveries = [1, 2, 3, 4, 5, 6].map(deliver)
    for (const n of [3, 1, 2, 5]) void settlements.settle(deliveries[n - 1] as Delivery, 'ack')
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
        const unsettled: Delivery[] = []
        const returned: number[] = []
        for (const one of actions) {
          if (one === 'deliver') unsettled.push(deliver())
          else if (one === 'flush') flush()
          else if (unsettled.length > 0) {
            const [delivery] = unsettled.splice(one[0] % unsettled.length, 1) as [Delivery]
            void settlements.settle(delivery, one[1])
            if (one[1] === 'requeue') returned.push(tagOf(delivery))
          }
        }
        flush()
        expect([...unacknowledged]).toEqual(unsettled.map(tagOf))
        expect(requeued).toEqual(returned)
      }),
      { numRuns: 1_000 },
    )
  })
})
