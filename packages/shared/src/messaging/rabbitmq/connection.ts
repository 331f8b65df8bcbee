/**
 * Keeps one connection to the broker open, and replaces the connection when it is lost. amqplib's own recovery is not
 * used: if a connection breaks while it is opened, set up or closed, amqplib waits forever or ends the process.
 *
 * The nodes of a cluster are tried in rounds. Each round has a random order, so that the connections of many service
 * replicas are spread over the nodes. After a failed attempt, the next node of the round is tried immediately. After an
 * attempt with every node, there is a pause before the next round.
 */
import { once } from 'node:events'
import type { Duplex } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { type ChannelModel, connect, credentials } from 'amqplib'
import { backoffMs } from '../../process/backoff.ts'
import type { Secret } from '../../secrets/secret.ts'
import type { TlsFiles } from '../../tls/tls-files.ts'
import { type AmqpNode, parseAmqpUrl } from './address.ts'
import { brokerReason } from './broker-errors.ts'

/** How long a node may be unresponsive while a connection is opened. */
const CONNECT_TIMEOUT_MS = 5_000
/**
 * The shorter timeout that applies while another node of the cluster has not been tried yet in this round. A working
 * node responds much faster.
 */
const HASTY_CONNECT_TIMEOUT_MS = 1_500
const HEARTBEAT_SECONDS = '10'
const RECONNECT = { baseMs: 100, capMs: 2_000 } as const
/** The timeout for the close handshake of a channel or connection. */
export const CLOSE_TIMEOUT_MS = 1_000

export interface ConnectionHandlers {
  /** The connection's name on RabbitMQ's management page. */
  readonly name: string
  /** The files of `AMQP_CA_FILE`, `AMQP_CERT_FILE` and `AMQP_KEY_FILE`. */
  readonly tls: TlsFiles | undefined
  /**
   * Sets up a new connection: channels, topology and consumers. If the set-up fails, the connection is closed and
   * another connection is opened.
   */
  setUp(connection: ChannelModel): Promise<void>
  /** Called when the connection has been set up and is still open. */
  established(): void
  /**
   * Called when a connection could not be opened, or when the current connection has ended. `reason` contains no secret. `reason`
   * is `null` if an attempt has failed and another node is tried next.
   */
  lost(reason: string | null): void
}

/**
 * Keeps a connection open until disposed. Disposing closes the connection, and waits at most one second for the
 * broker's reply.
 *
 * @throws {AddressError} if the address has none of the forms of `AMQP_URL`.
 */
export function keepConnected(address: Secret, handlers: ConnectionHandlers): AsyncDisposable {
  const nodes = parseAmqpUrl(address.reveal())
  const closing = new AbortController()
  const { signal } = closing
  const closed = once(signal, 'abort').then(() => Promise.reject(new Error('closed')))
  closed.catch(() => {})

  /** Opens a connection and waits until it ends. @throws the reason why the connection was not opened or has ended. */
  async function runConnection(
    node: AmqpNode,
    timeout: number,
    onEstablished: () => void,
  ): Promise<never> {
    const connection = await connect(withHeartbeat(node.url), {
      // Without noDelay, every pair of small frames waits for a delayed TCP ACK. A transaction then takes 100 ms
      // instead of 9 ms.
      noDelay: true,
      timeout,
      clientProperties: { connection_name: handlers.name },
      ...(node.usesTls && tlsOptions(node, handlers.tls)),
    })
    // This listener is registered first, because an `error` event without a listener ends the process. The listener
    // does nothing, because the event `close` reports the same error.
    connection.on('error', () => {})
    const ended = new Promise<Error>((resolve) => {
      connection.once('close', (error?: Error) => resolve(error ?? new Error('it was closed')))
    })
    try {
      signal.throwIfAborted()
      const over = Promise.race([closed, ended.then((error) => Promise.reject(error))])
      await Promise.race([over, handlers.setUp(connection)])
      onEstablished()
      handlers.established()
      return await over
    } finally {
      await closeConnection(connection)
    }
  }

  async function keep(): Promise<void> {
    /** The reasons of the failed attempts in this round. */
    const reasons = new Map<AmqpNode, string>()
    let untried = shuffled(nodes)
    let failedRounds = 0
    while (!signal.aborted) {
      const node = untried.pop() ?? nodes[0]
      const timeout = untried.length > 0 ? HASTY_CONNECT_TIMEOUT_MS : CONNECT_TIMEOUT_MS
      let wasEstablished = false
      const onEstablished = (): void => {
        wasEstablished = true
        failedRounds = 0
        reasons.clear()
        // After the loss of this connection, the other nodes are tried first.
        untried = shuffled(nodes.filter((other) => other !== node))
      }
      await runConnection(node, timeout, onEstablished).catch((error: unknown) =>
        reasons.set(node, brokerReason(error)),
      )
      const isRoundOver = untried.length === 0
      handlers.lost(wasEstablished || isRoundOver ? described(nodes, reasons) : null)
      if (!isRoundOver) continue
      failedRounds += 1
      // The delay has a random part, so that service replicas that lost the same broker do not all reconnect at
      // the same moment.
      const random = 0.7 + 0.3 * Math.random()
      await delay(backoffMs(failedRounds, { ...RECONNECT, random }), undefined, { signal }).catch(
        () => {},
      )
      untried = shuffled(nodes)
      reasons.clear()
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
  // Destroying the socket of an ended connection has no effect. An error is passed, because amqplib notices the loss
  // of a socket only by the event `error`.
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

/** Returns the reasons of failed attempts, with the name of the node if there are several nodes. */
const described = (nodes: readonly AmqpNode[], reasons: ReadonlyMap<AmqpNode, string>): string =>
  nodes
    .flatMap((node) => {
      const reason = reasons.get(node)
      if (reason === undefined) return []
      return [nodes.length === 1 ? reason : `${node.name}: ${reason}`]
    })
    .join('; ')

/** Returns the elements in random order. */
const shuffled = <T>(elements: readonly T[]): T[] =>
  elements
    .map((element) => ({ element, order: Math.random() }))
    .toSorted((one, other) => one.order - other.order)
    .map(({ element }) => element)

// amqplib reads the heartbeat interval from the URL. An interval that the operator has set there takes precedence.
function withHeartbeat(text: string): string {
  const url = new URL(text)
  if (!url.searchParams.has('heartbeat')) url.searchParams.set('heartbeat', HEARTBEAT_SECONDS)
  return url.href
}

/**
 * Returns the TLS options. A client certificate also authenticates the user (SASL EXTERNAL) if the URL names no
 * user; RabbitMQ then needs the plugin rabbitmq_auth_mechanism_ssl.
 */
export const tlsOptions = (node: AmqpNode, tls: TlsFiles | undefined) => ({
  ...tls?.read(),
  ...(tls?.hasCertificate && !node.hasUser && { credentials: credentials.external() }),
})
