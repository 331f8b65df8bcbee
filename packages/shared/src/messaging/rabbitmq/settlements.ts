import type { Channel, Message } from 'amqplib'
import type { Settlement } from '../message-bus.ts'

/** What becomes of the deliveries of one channel. */
export interface Settlements {
  open(message: Message): void
  /** Resolves when the channel was told. */
  settle(message: Message, settlement: Settlement): Promise<void>
}

/**
 * Acknowledges at the end of each turn of the event loop what was done in it. One frame says it for all up to the
 * oldest delivery that is still in hand; for a quorum queue that is one entry of its log instead of one each. What
 * lies behind a delivery that takes long is acknowledged singly: it must not wait.
 */
export function createSettlements(
  channel: Pick<Channel, 'ack' | 'nack'>,
  defer: (flush: () => void) => void = setImmediate,
): Settlements {
  // In the order of delivery, and never more than the prefetch.
  const inHand = new Map<Message, 'open' | 'done'>()
  let done = 0
  let deferred: Promise<void> | null = null

  function flush(): void {
    deferred = null
    let last: Message | null = null
    let isBehindOpen = false
    const singly: Message[] = []
    for (const [message, state] of inHand) {
      if (done === 0) break // what lies behind is in hand, and can be much
      if (state === 'open') isBehindOpen = true
      else {
        if (isBehindOpen) singly.push(message)
        else last = message
        inHand.delete(message)
        done -= 1
      }
    }
    try {
      if (last !== null) channel.ack(last, true)
      for (const message of singly) channel.ack(message)
    } catch {
      // The channel is gone, the broker redelivers.
    }
  }

  return {
    open: (message) => void inHand.set(message, 'open'),
    async settle(message, settlement) {
      if (settlement === 'ack') {
        inHand.set(message, 'done')
        done += 1
        deferred ??= new Promise((resolve) => {
          defer(() => {
            flush()
            resolve()
          })
        })
        return deferred
      }
      inHand.delete(message)
      try {
        channel.nack(message, false, settlement === 'requeue')
      } catch {
        // As above.
      }
    },
  }
}
