import type { Channel, Message } from 'amqplib'
import type { Settlement } from '../message-bus.ts'

/** Settles the deliveries of one channel. */
export interface Settlements {
  open(message: Message): void
  /** Resolves when the ack or nack has been written to the channel. */
  settle(message: Message, settlement: Settlement): Promise<void>
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
  // The deliveries whose ack or nack was not written yet, in the order of arrival. Their number is at most the prefetch
  // count.
  const inFlight = new Map<Message, 'open' | 'done'>()
  let done = 0
  let deferred: Promise<void> | null = null

  function flush(): void {
    deferred = null
    let last: Message | null = null
    let isBehindOpen = false
    const singly: Message[] = []
    for (const [message, state] of inFlight) {
      if (done === 0) break // no finished delivery is left
      if (state === 'open') isBehindOpen = true
      else {
        if (isBehindOpen) singly.push(message)
        else last = message
        inFlight.delete(message)
        done -= 1
      }
    }
    try {
      if (last !== null) channel.ack(last, true)
      for (const message of singly) channel.ack(message)
    } catch {
      // The channel is closed, so the broker redelivers the messages.
    }
  }

  return {
    open: (message) => void inFlight.set(message, 'open'),
    async settle(message, settlement) {
      if (settlement === 'ack') {
        inFlight.set(message, 'done')
        done += 1
        deferred ??= new Promise((resolve) => {
          defer(() => {
            flush()
            resolve()
          })
        })
        return deferred
      }
      inFlight.delete(message)
      try {
        channel.nack(message, false, settlement === 'requeue')
      } catch {
        // The channel is closed, so the broker redelivers the message.
      }
    },
  }
}
