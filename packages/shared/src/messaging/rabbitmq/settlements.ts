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
 * all deliveries before the oldest delivery in flight. So a quorum queue writes one log entry instead of one per
 * delivery. Later deliveries are acknowledged one by one, so that a slow delivery does not delay them.
 */
export function createSettlements(
  channel: Pick<Channel, 'ack' | 'nack'>,
  defer: (flush: () => void) => void = setImmediate,
): Settlements {
  // The deliveries without a written ack or nack, in the order of arrival. There are at most as many as the prefetch
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
      if (done === 0) break // all deliveries after the last finished one are in flight
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
