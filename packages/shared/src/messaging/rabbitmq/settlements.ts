import type { Channel, Message } from 'amqplib'
import { type Link, LinkedList } from '../../process/pending-work.ts'
import type { Settlement } from '../message-bus.ts'

/** A delivery whose ack or nack has not been written yet. */
interface OpenDelivery {
  readonly message: Message
  /** Whether the delivery is finished and will be acknowledged. */
  isDone: boolean
}

/** Settles the deliveries of one channel. */
export interface Settlements {
  open(message: Message): Link<OpenDelivery>
  /** Resolves when the ack or nack has been written to the channel. */
  settle(delivery: Link<OpenDelivery>, settlement: Settlement): Promise<void>
}

/**
 * Acknowledges finished deliveries at the end of each turn of the event loop. One frame with `multiple` acknowledges
 * all deliveries that arrived earlier than the oldest delivery in flight, and a quorum queue writes only one log entry
 * for this frame. Finished deliveries that arrived later than the oldest delivery in flight are acknowledged one by
 * one, so that they do not wait for a slow delivery.
 */
export function createSettlements(
  channel: Pick<Channel, 'ack' | 'nack'>,
  defer: (flush: () => void) => void = setImmediate,
): Settlements {
  // The deliveries in the order of arrival. Their number is at most the prefetch count.
  const inFlight = new LinkedList<OpenDelivery>()
  let done = 0
  let deferred: Promise<void> | null = null

  function flush(): void {
    deferred = null
    let last: Message | null = null
    let isBehindOpen = false
    const singly: Message[] = []
    for (const delivery of inFlight) {
      if (done === 0) break // no finished delivery is left
      const { message, isDone } = delivery.value
      if (isDone) {
        if (isBehindOpen) singly.push(message)
        else last = message
        delivery.remove()
        done -= 1
      } else isBehindOpen = true
    }
    try {
      if (last !== null) channel.ack(last, true)
      for (const message of singly) channel.ack(message)
    } catch {
      // The channel is closed, so the broker redelivers the messages.
    }
  }

  return {
    open: (message) => inFlight.add({ message, isDone: false }),
    async settle(delivery, settlement) {
      if (settlement === 'ack') {
        delivery.value.isDone = true
        done += 1
        deferred ??= new Promise((resolve) => {
          defer(() => {
            flush()
            resolve()
          })
        })
        return deferred
      }
      delivery.remove()
      try {
        channel.nack(delivery.value.message, false, settlement === 'requeue')
      } catch {
        // The channel is closed, so the broker redelivers the message.
      }
    },
  }
}
