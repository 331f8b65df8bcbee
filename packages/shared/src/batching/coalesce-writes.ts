import type { Duplex } from 'node:stream'

let waiting: (() => void)[] = []

/**
 * Runs `write` after the current turn of the event loop, together with all others of this turn. A write to a
 * socket wakes the process that reads it. A reader that is still busy with the previous write need not be
 * woken again, and waking costs the writer more than the write does.
 */
export function afterThisTurn(write: () => void): void {
  if (waiting.length === 0) setImmediate(flush)
  waiting.push(write)
}

function flush(): void {
  const writes = waiting
  waiting = []
  for (const write of writes) write()
}

/**
 * Sends everything that is written to a stream in one turn of the event loop in one system call. Drivers
 * write each command or frame by itself; under load those calls are a fifth of a service's processor time.
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
