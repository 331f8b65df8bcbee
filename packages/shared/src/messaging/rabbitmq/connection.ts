/**
 * One connection to the broker after the other. amqplib's own recovery is not used: it waits for ever, or ends the
 * process, when a line breaks in the moment in which it is opened, set up or closed.
 */
import { once } from 'node:events'
import type { Duplex } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { type ChannelModel, connect } from 'amqplib'
import { backoffMs } from '../../process/backoff.ts'
import type { Secret } from '../../secrets/secret.ts'

const CONNECT_TIMEOUT_MS = 5_000
const HEARTBEAT_SECONDS = '10'
const RECONNECT = { baseMs: 100, capMs: 2_000 } as const
/** What is closed politely has so long to answer. */
export const CLOSE_PATIENCE_MS = 1_000

export interface ConnectionUser {
  /** The connection's name in the console. */
  readonly name: string
  /** Makes all that is needed on a new connection; when it fails, the connection is closed and another one tried. */
  build(connection: ChannelModel): Promise<void>
  /** It is built, and has not ended meanwhile. */
  stands(): void
  /** No connection could be made, or the one there was has ended. */
  lost(error: unknown): void
}

/** Keeps a connection until it is disposed; that closes the one there is, and waits a second for it at most. */
export function keepConnected(url: Secret, user: ConnectionUser): AsyncDisposable {
  const leaving = new AbortController()
  const { signal } = leaving
  const left = once(signal, 'abort').then(() => Promise.reject(new Error('closed')))
  left.catch(() => {})
  let failures = 0

  /** @throws why the connection could not be made, or has ended. */
  async function useOne(): Promise<never> {
    const connection = await connect(withHeartbeat(url), {
      // Without noDelay every small pair of frames waits for a delayed ACK: 100 ms a transaction instead of 9.
      noDelay: true,
      timeout: CONNECT_TIMEOUT_MS,
      clientProperties: { connection_name: user.name },
    })
    // At once: an error that nobody listens to ends the process. It comes again with 'close'.
    connection.on('error', () => {})
    const ended = new Promise<Error>((resolve) => {
      connection.once('close', (error?: Error) => resolve(error ?? new Error('it was closed')))
    })
    try {
      signal.throwIfAborted()
      const over = Promise.race([left, ended.then((error) => Promise.reject(error))])
      await Promise.race([over, user.build(connection)])
      failures = 0
      user.stands()
      return await over
    } finally {
      await closeConnection(connection)
    }
  }

  async function keep(): Promise<void> {
    for (; !signal.aborted; failures += 1) {
      await useOne().catch((error: unknown) => user.lost(error))
      // The random part keeps replicas that lost the same broker from reconnecting all at once.
      const pauseMs = backoffMs(failures + 1, { ...RECONNECT, random: 0.7 + 0.3 * Math.random() })
      await delay(pauseMs, undefined, { signal }).catch(() => {})
    }
  }

  const keeping = keep()
  return {
    async [Symbol.asyncDispose]() {
      leaving.abort()
      await within(CLOSE_PATIENCE_MS, keeping)
    },
  }
}

/** Closes a connection politely, or with its line when the broker does not answer that. */
export async function closeConnection(connection: ChannelModel): Promise<void> {
  // amqplib answers nobody who closes a line that is lost meanwhile.
  const ended = new Promise<void>((resolve) => connection.once('close', () => resolve()))
  await within(CLOSE_PATIENCE_MS, Promise.race([connection.close(), ended]))
  // Nothing, once it has ended; amqplib listens to errors of the line alone.
  streamOf(connection).destroy(new Error('the broker did not answer the close'))
}

/** Not in the types: the stream that amqplib opened for this connection. */
export const streamOf = ({ connection }: ChannelModel): Duplex =>
  (connection as unknown as { readonly stream: Duplex }).stream

/** What `work` came to, or null when it failed or a broker that no longer answers held it up. */
export async function within<Result>(ms: number, work: Promise<Result>): Promise<Result | null> {
  const patience = new AbortController()
  const late = delay(ms, null, { signal: patience.signal })
  try {
    return await Promise.race([work, late])
  } catch {
    return null
  } finally {
    patience.abort()
    late.catch(() => {})
  }
}

// amqplib takes the heartbeat from the URL; an operator's own setting wins.
function withHeartbeat(secret: Secret): string {
  const url = new URL(secret.reveal())
  if (!url.searchParams.has('heartbeat')) url.searchParams.set('heartbeat', HEARTBEAT_SECONDS)
  return url.href
}
