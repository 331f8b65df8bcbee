import type { Socket } from 'node:net'
import type { ChannelModel } from 'amqplib'

/**
 * Lets the frames that amqplib writes in one turn of the event loop leave in one system call. It writes
 * each by itself, and under load those calls are a fifth of a coordinator's processor time.
 */
export function corkWrites(model: ChannelModel): void {
  // Not in the types: the stream that amqplib opened for this connection.
  const { stream } = model.connection as unknown as { readonly stream: Socket }
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
      process.nextTick(uncork)
    }
    return write(...args)
  }
}
