import type { Duplex } from 'node:stream'

/**
 * The writes of the current turn of the event loop. Module state on purpose: a process has one event loop, and the
 * point of the queue is that all sockets of the process are flushed in one `setImmediate`.
 */
let queued: (() => void)[] = []

/**
 * Runs `write` after the current turn of the event loop, together with all others of this turn. Each write to a
 * socket wakes the process that reads it, which costs the writer more than the write itself. With all writes of a
 * turn at once, a reader that is still busy with the first one is not woken again.
 */
export function afterThisTurn(write: () => void): void {
  if (queued.length === 0) setImmediate(flush)
  queued.push(write)
}

function flush(): void {
  const writes = queued
  queued = []
  for (const write of writes) write()
}

/**
 * Sends everything that is written to a stream in one turn of the event loop with one system call. Drivers write
 * each command or frame separately; under load those calls take a fifth of a service's processor time. The stream's
 * `write` is replaced, because neither amqplib nor ioredis has an option for it.
 */
export function coalesceWrites(stream: Duplex): void {
  const write = stream.write.bind(stream) as (...args: unknown[]) => boolean
  let isCorked = false
  const uncork = (): void => {
    isCorked = false
    stream.uncork()
  }
  stream.write = (...args: unknown[]) => {
    if (!isCorked) {
      isCorked = true
      stream.cork()
      afterThisTurn(uncork)
    }
    return write(...args)
  }
}
