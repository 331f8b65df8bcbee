/**
 * Keeps one connection to the broker open, and replaces the connection when it is lost. amqplib's own recovery is not
 * used: if a connection breaks while being opened, set up or closed, amqplib waits forever or ends the process.
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
/** The timeout for the close handshake of a channel or connection. */
export const CLOSE_TIMEOUT_MS = 1_000

export interface ConnectionHandlers {
  /** The connection's name on RabbitMQ's management page. */
  readonly name: string
  /**
   * Sets up a new connection: channels, topology, consumers. If this fails, the connection is closed and another one is
   * opened.
   */
  setUp(connection: ChannelModel): Promise<void>
  /** Called when the connection has been set up and is still open. */
  established(): void
  /** Called when a connection could not be opened, or when the current connection has ended. */
  lost(error: unknown): void
}

/**
 * Keeps a connection open until disposed. Disposing closes the connection, and waits at most one second for the
 * broker's reply.
 */
export function keepConnected(url: Secret, handlers: ConnectionHandlers): AsyncDisposable {
  const closing = new AbortController()
  const { signal } = closing
  const closed = once(signal, 'abort').then(() => Promise.reject(new Error('closed')))
  closed.catch(() => {})
  let failures = 0

  /** Opens a connection and waits until it ends. @throws the reason why it could not be opened, or has ended. */
  async function runConnection(): Promise<never> {
    const connection = await connect(withHeartbeat(url), {
      // If noDelay is not set, every pair of small frames waits for a delayed TCP ACK, and a transaction takes 100 ms
      // instead of 9 ms.
      noDelay: true,
      timeout: CONNECT_TIMEOUT_MS,
      clientProperties: { connection_name: handlers.name },
    })
    // This listener is registered first, because an `error` event without a listener ends the process. The event
    // `close` contains the same error again.
    connection.on('error', () => {})
    const ended = new Promise<Error>((resolve) => {
      connection.once('close', (error?: Error) => resolve(error ?? new Error('it was closed')))
    })
    try {
      signal.throwIfAborted()
      const over = Promise.race([closed, ended.then((error) => Promise.reject(error))])
      await Promise.race([over, handlers.setUp(connection)])
      failures = 0
      handlers.established()
      return await over
    } finally {
      await closeConnection(connection)
    }
  }

  async function keep(): Promise<void> {
    for (; !signal.aborted; failures += 1) {
      await runConnection().catch((error: unknown) => handlers.lost(error))
      // The delay has a random part, so that replicas that lost the same broker do not all reconnect at the same
      // moment.
      const pauseMs = backoffMs(failures + 1, { ...RECONNECT, random: 0.7 + 0.3 * Math.random() })
      await delay(pauseMs, undefined, { signal }).catch(() => {})
    }
  }

  const keeping = keep()
  return {
    async [Symbol.asyncDispose]() {
      closing.abort()
      await within(CLOSE_TIMEOUT_MS, keeping)
    },
  }
}

/** Closes a connection with AMQP's handshake, or destroys its socket if the broker does not respond. */
export async function closeConnection(connection: ChannelModel): Promise<void> {
  // amqplib's close() never settles if the socket is lost before the broker's reply.
  const ended = new Promise<void>((resolve) => connection.once('close', () => resolve()))
  await within(CLOSE_TIMEOUT_MS, Promise.race([connection.close(), ended]))
  // Destroying the socket has no effect if the connection has ended already. An error is passed, because amqplib
  // notices the loss of a socket only by the socket's `error` event.
  streamOf(connection).destroy(new Error('the broker did not respond to the close'))
}

/** Returns the socket of a connection. amqplib's types do not contain the socket. */
export const streamOf = ({ connection }: ChannelModel): Duplex =>
  (connection as unknown as { readonly stream: Duplex }).stream

/** Returns the result of `work`; `null` if `work` fails or takes longer than `ms` milliseconds. */
export async function within<Result>(ms: number, work: Promise<Result>): Promise<Result | null> {
  const settled = new AbortController()
  const timeout = delay(ms, null, { signal: settled.signal })
  try {
    return await Promise.race([work, timeout])
  } catch {
    return null
  } finally {
    settled.abort()
    timeout.catch(() => {})
  }
}

// amqplib reads the heartbeat interval from the URL. An interval that the operator has set there has precedence.
function withHeartbeat(secret: Secret): string {
  const url = new URL(secret.reveal())
  if (!url.searchParams.has('heartbeat')) url.searchParams.set('heartbeat', HEARTBEAT_SECONDS)
  return url.href
}
