import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { afterThisTurn } from '@integration-host/shared/batching'
import {
  type FailureKind,
  type Flow,
  HttpFailure,
  type HttpRequest,
  type Receiver,
} from './exchange.ts'
import {
  type HeaderList,
  headerValue,
  headerValues,
} from '@integration-host/shared/http/header-list'
import type { ConnectSocket } from '@integration-host/shared/http/forward-proxy/tunnel'
import { type Head, HttpParser, type MessageReceiver } from '../parser.ts'

const MAX_HEAD_BYTES = 65_536
/** The maximum size of a request body that is copied into one buffer together with its head. */
const MAX_COPIED_BYTES = 16_384
/**
 * How long a connection may be idle and still be reused. If the server announces a shorter time (`Keep-Alive:
 * timeout=…`), that time applies.
 */
const MAX_IDLE_MS = 10_000
/**
 * A connection is no longer reused if less than this time is left until the server's idle timeout. Otherwise the server
 * could close the connection while a request is being sent, and the request would be lost.
 */
const KEEP_ALIVE_MARGIN_MS = 1_000
/**
 * The interval of TCP keep-alive. While a response is awaited, keep-alive detects a server that has vanished without
 * closing the connection.
 */
const TCP_KEEP_ALIVE_MS = 60_000

export interface ConnectionEvents {
  /**
   * Called when the response is complete. In the next turn of the event loop, {@link Connection.isUsable} says whether
   * the connection can be reused.
   */
  onFinished(): void
  onClosed(): void
}

/** The request in flight on a connection. */
class InFlightRequest implements Flow {
  readonly request: HttpRequest
  readonly receiver: Receiver
  readonly #connection: Connection
  isSent = false
  /** Whether the whole request, with its body, has been written. */
  isComplete = false
  hasResponse = false
  isPaused = false

  constructor(request: HttpRequest, receiver: Receiver, connection: Connection) {
    this.request = request
    this.receiver = receiver
    this.#connection = connection
  }

  pause(): void {
    this.isPaused = true
    this.#connection.onFlowChange(this)
  }

  resume(): void {
    this.isPaused = false
    this.#connection.onFlowChange(this)
  }

  abort(): void {
    this.#connection.abort(this)
  }
}

/**
 * An HTTP/1.1 connection to an origin. It has at most one request in flight (no pipelining), so a broken connection
 * fails only one request. The class follows no redirects and decodes no content codings. The caller must pass valid
 * header names and values, because they are not checked.
 */
export class Connection implements MessageReceiver {
  /** The socket; `null` until the function `connect` of the constructor has opened it. */
  #socket: Socket | null = null
  /** The socket, as soon as a request can be written to it. */
  #connected: Socket | null = null
  /** Aborts the function `connect`; `null` without such a function. */
  readonly #connecting: AbortController | null
  readonly #closed = Promise.withResolvers<void>()
  readonly #parser = new HttpParser('response', this, MAX_HEAD_BYTES)
  readonly #events: ConnectionEvents
  readonly #host: string
  #inFlight: InFlightRequest | null = null
  #status = 0
  #maxIdleMs = MAX_IDLE_MS
  #lastActiveAt = 0

  /**
   * @param connect opens the socket, for example through a forward proxy; `undefined` connects to the origin directly
   */
  constructor(
    origin: URL,
    connectTimeoutMs: number,
    events: ConnectionEvents,
    connect?: ConnectSocket,
  ) {
    this.#events = events
    this.#host = origin.host
    this.#connecting = connect === undefined ? null : new AbortController()
    if (connect === undefined) this.#connectTo(origin, connectTimeoutMs)
    else void this.#connectBy(connect, connectTimeoutMs)
  }

  async #connectBy(connect: ConnectSocket, timeoutMs: number): Promise<void> {
    const { signal } = this.#connecting ?? {}
    const socket = await connect({ timeoutMs, ...(signal && { signal }) }).catch(
      (cause: unknown) => {
        this.#fail(isTimeout(cause) ? 'timeout' : 'unreachable', cause)
        return null
      },
    )
    if (socket === null) return this.#onClosed()
    this.#listenTo(socket)
    if (signal?.aborted === true || socket.destroyed) socket.destroy()
    else this.#onConnected(socket)
  }

  #connectTo({ protocol, hostname, port }: URL, timeoutMs: number): void {
    const isTls = protocol === 'https:'
    const name = hostname.replace(/^\[|\]$/g, '')
    const address = { host: name, port: Number(port || (isTls ? 443 : 80)) }
    const socket = isTls
      ? connectTls({
          ...address,
          ...(isIP(name) === 0 && { servername: name }),
          ALPNProtocols: ['http/1.1'],
        })
      : connectTcp(address)
    socket.setNoDelay(true)
    socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS)
    this.#listenTo(socket)
    const timer = setTimeout(() => this.#fail('timeout'), timeoutMs)
    socket.once('close', () => clearTimeout(timer))
    socket.once(isTls ? 'secureConnect' : 'connect', () => {
      clearTimeout(timer)
      this.#onConnected(socket)
    })
  }

  #listenTo(socket: Socket): void {
    this.#socket = socket
    socket.on('data', (chunk: Buffer) => this.#read(chunk))
    socket.on('end', () => this.#ended())
    socket.on('error', (cause) => this.#fail(isTimeout(cause) ? 'timeout' : 'unreachable', cause))
    socket.on('close', () => {
      this.#fail('unreachable')
      this.#onClosed()
    })
  }

  #onConnected(socket: Socket): void {
    this.#connected = socket
    if (this.#inFlight !== null) this.#write(this.#inFlight, socket)
  }

  #onClosed(): void {
    this.#parser.free()
    this.#closed.resolve()
    this.#events.onClosed()
  }

  get isUsable(): boolean {
    const isFresh = performance.now() - this.#lastActiveAt < this.#maxIdleMs
    return isFresh && this.#inFlight === null && this.#socket?.writable === true
  }

  send(request: HttpRequest, receiver: Receiver): void {
    const inFlight = new InFlightRequest(request, receiver, this)
    this.#inFlight = inFlight
    this.#lastActiveAt = performance.now()
    receiver.onStart(inFlight)
    if (this.#inFlight === inFlight && this.#connected !== null)
      this.#write(inFlight, this.#connected)
  }

  /**
   * Pauses or resumes the socket according to `inFlight.isPaused`. Calls for an earlier request of this connection are
   * ignored.
   */
  onFlowChange(inFlight: InFlightRequest): void {
    if (this.#inFlight !== inFlight) return
    this.#lastActiveAt = performance.now()
    if (inFlight.isPaused) this.#socket?.pause()
    else this.#socket?.resume()
  }

  abort(inFlight: InFlightRequest): void {
    if (this.#inFlight !== inFlight) return
    if (inFlight.isSent || this.#connected === null) return this.#fail('unreachable')
    if (inFlight.isPaused) this.#socket?.resume()
    this.#inFlight = null
    inFlight.receiver.onFailure(new HttpFailure('unreachable'))
    this.#events.onFinished()
  }

  #write(inFlight: InFlightRequest, socket: Socket): void {
    const { method, path, headers, body } = inFlight.request
    let head = `${method} ${path} HTTP/1.1\r\nhost: ${this.#host}\r\nconnection: keep-alive\r\n`
    for (let i = 0; i < headers.length; i += 2) head += `${headers[i]}: ${headers[i + 1]}\r\n`
    if (body === null || isInMemory(body)) {
      const parts = body ?? []
      if (body !== null && headerValue(headers, 'content-length') === null)
        head += `content-length: ${sizeOf(parts)}\r\n`
      afterThisTurn(() => {
        if (this.#inFlight !== inFlight) return
        inFlight.isSent = true
        inFlight.isComplete = true
        writeMessage(socket, `${head}\r\n`, parts)
      })
      return
    }
    const length = headerValue(headers, 'content-length')
    inFlight.isSent = true
    if (length === null) head += 'transfer-encoding: chunked\r\n'
    socket.write(`${head}\r\n`, 'latin1')
    void this.#stream(inFlight, socket, body, length === null ? null : Number(length))
  }

  async #stream(
    inFlight: InFlightRequest,
    socket: Socket,
    body: AsyncIterable<Buffer>,
    length: number | null,
  ): Promise<void> {
    let left = length ?? 0
    try {
      for await (const chunk of body) {
        if (this.#inFlight !== inFlight) return
        if (chunk.length === 0) continue
        left -= chunk.length
        if (length !== null && left < 0) return this.#fail('unsendable')
        if (length === null) socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1')
        const hasRoom = socket.write(chunk)
        if (length === null) socket.write('\r\n', 'latin1')
        if (!hasRoom) await drained(socket)
      }
    } catch (cause) {
      // Reading the caller's body failed. The connection is closed before the last chunk or the announced number of
      // bytes has been sent. The server thereby notices that the request is incomplete (RFC 9112 §8).
      if (this.#inFlight === inFlight) this.#fail('unreachable', cause)
      return
    }
    if (this.#inFlight !== inFlight) return
    if (length !== null && left > 0) return this.#fail('unsendable')
    if (length === null) socket.write('0\r\n\r\n', 'latin1')
    inFlight.isComplete = true
  }

  #read(chunk: Buffer): void {
    if (!this.#parser.read(chunk)) this.#fail('unreachable', NO_HTTP)
    else this.#inFlight?.receiver.onCaughtUp()
  }

  onMessageBegin(): boolean {
    // A response that arrives while no request is in flight would be taken for the response to the next request. RFC
    // 9112 §9.2 requires closing the connection.
    const inFlight = this.#inFlight
    return inFlight?.isSent === true
  }

  onHead({ status, headers, isUpgrade }: Head): 'body' | 'no body' | 'rejected' {
    const inFlight = this.#inFlight
    const isUnexpected = isUpgrade || status === 101 || status < 100
    if (inFlight === null || isUnexpected || !this.#isFramingValid(headers)) return 'rejected'
    this.#status = status
    if (status < 200) {
      // RFC 9110 §15.2.1: 100 Continue concerns this connection only, so it is not passed on.
      if (status !== 100) inFlight.receiver.onInformation(status, headers)
      return this.#inFlight === inFlight ? 'no body' : 'rejected'
    }
    inFlight.hasResponse = true
    this.#lastActiveAt = performance.now()
    this.#maxIdleMs = announcesForbiddenBody(status, headers) ? 0 : maxIdleMsOf(headers)
    inFlight.receiver.onHeaders(status, headers)
    if (this.#inFlight !== inFlight) return 'rejected'
    return inFlight.request.method === 'HEAD' ? 'no body' : 'body'
  }

  /**
   * Returns whether the framing of a response is supported: HTTP/1.0 without a transfer coding, or HTTP/1.1 with no
   * other transfer coding than `chunked` (RFC 9112 §6.1).
   *
   * llhttp accepts other versions, and other codings before `chunked`. A body with such a coding would be passed on
   * encoded, but without its `Transfer-Encoding` field, which is hop-by-hop.
   */
  #isFramingValid(headers: HeaderList): boolean {
    const codings = headerValues(headers, 'transfer-encoding')
    if (codings.length === 0) return this.#parser.isHttp11 || this.#parser.isHttp10
    return this.#parser.isHttp11 && codings.length === 1 && /^chunked$/i.test(codings[0] ?? '')
  }

  onBody(part: Buffer): boolean {
    // Each part of the body restarts the idle timeout. Other received bytes do not restart the timeout, because a
    // server that sends only chunk extensions makes no progress.
    this.#lastActiveAt = performance.now()
    this.#inFlight?.receiver.onData(part)
    return this.#inFlight !== null
  }

  onMessageComplete(trailers: HeaderList, isReusable: boolean): boolean {
    const inFlight = this.#inFlight
    if (inFlight === null) return false
    if (this.#status < 200) return true
    this.#inFlight = null
    this.#lastActiveAt = performance.now()
    if (inFlight.isPaused) this.#socket?.resume()
    inFlight.receiver.onEnd(trailers)
    if (!isReusable || !inFlight.isComplete || this.#maxIdleMs <= 0) return false
    this.#events.onFinished()
    return true
  }

  // A response without a length ends when its connection is closed (RFC 9112 §6.3).
  #ended(): void {
    this.#parser.finish()
    this.#fail('unreachable')
  }

  #fail(kind: FailureKind, cause?: unknown): void {
    const inFlight = this.#inFlight
    this.#inFlight = null
    this.#connecting?.abort()
    this.#socket?.destroy()
    inFlight?.receiver.onFailure(new HttpFailure(kind, { cause }))
  }

  /**
   * Enforces the timeouts.
   * @param at the current time in milliseconds of the monotonic clock
   */
  checkTimeouts(at: number, idleTimeoutMs: number): void {
    const inFlight = this.#inFlight
    const inactiveMs = at - this.#lastActiveAt
    if (inFlight === null) {
      if (inactiveMs >= this.#maxIdleMs) this.#fail('unreachable')
    } else if (inFlight.hasResponse && !inFlight.isPaused && inactiveMs >= idleTimeoutMs)
      this.#fail('timeout')
  }

  close(): Promise<void> {
    this.#fail('unreachable')
    return this.#closed.promise
  }
}

/**
 * Writes a head and its body in one system call. A small body is copied into one buffer together with the head, because
 * a write of several buffers costs more.
 */
function writeMessage(socket: Socket, head: string, body: readonly Buffer[]): void {
  const size = sizeOf(body)
  if (size === 0) socket.write(head, 'latin1')
  else if (size <= MAX_COPIED_BYTES) {
    const bytes = Buffer.allocUnsafe(head.length + size)
    let end = bytes.write(head, 0, 'latin1')
    for (const part of body) end += part.copy(bytes, end)
    socket.write(bytes)
  } else {
    socket.cork()
    socket.write(head, 'latin1')
    for (const part of body) socket.write(part)
    socket.uncork()
  }
}

const isInMemory = (body: readonly Buffer[] | AsyncIterable<Buffer>): body is readonly Buffer[] =>
  Array.isArray(body)

const sizeOf = (parts: readonly Buffer[]): number =>
  parts.reduce((sum, { length }) => sum + length, 0)

function maxIdleMsOf(headers: HeaderList): number {
  const hint = headerValue(headers, 'keep-alive')
  const seconds = hint === null ? null : /(?:^|[\s,])timeout=(\d{1,6})/i.exec(hint)?.[1]
  if (seconds === undefined || seconds === null) return MAX_IDLE_MS
  return Math.min(MAX_IDLE_MS, Number(seconds) * 1_000 - KEEP_ALIVE_MARGIN_MS)
}

/**
 * Returns whether a response that cannot have a body (RFC 9110 §6.4.1) has a header that announces a body. If so, the
 * connection is not reused, because the bytes of the announced body would be read as the next response.
 */
const announcesForbiddenBody = (status: number, headers: HeaderList): boolean =>
  (status === 204 || status === 304) &&
  (headerValue(headers, 'transfer-encoding') !== null ||
    Number(headerValue(headers, 'content-length') ?? 0) > 0)

/** The error if a response is not valid, if its head is too large, or if the server switches to another protocol. */
const NO_HTTP = Object.assign(new Error('the response is not valid HTTP'), { code: 'NO_HTTP' })

const isTimeout = (error: unknown): boolean =>
  error instanceof Error &&
  'code' in error &&
  (error.code === 'ETIMEDOUT' || error.code === 'PROXY_TIMEOUT')

/** Resolves when the socket's buffer has room again, or when the socket is closed. */
const drained = (socket: Socket): Promise<void> =>
  new Promise((resolve) => {
    const go = (): void => {
      socket.off('drain', go)
      socket.off('close', go)
      resolve()
    }
    socket.on('drain', go)
    socket.on('close', go)
  })
