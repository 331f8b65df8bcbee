import type { Duplex } from 'node:stream'
import { inBurst } from './coalesce-writes.ts'

/**
 * Lets what is written to a stream in one turn of the event loop leave in one system call. Drivers write each
 * command or frame by itself, and under load those calls are a fifth of a service's processor time.
 */
export function corkWrites(stream: Duplex): void {
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
      inBurst(uncork)
    }
    return write(...args)
  }
}
