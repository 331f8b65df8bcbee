import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { afterThisTurn } from '../../batching/coalesce-writes.ts'
import {
  type FailureKind,
  type Flow,
  HttpFailure,
  type HttpRequest,
  type Receiver,
} from './exchange.ts'
import { type HeaderList, headerValue } from './header-list.ts'
import { type Head, HttpParser, type MessageReceiver } from './parser.ts'

const LONGEST_HEAD = 65_536
/** How long a connection is kept for the next call, unless the server says less (`Keep-Alive: timeout=…`). */
const KEPT_MS = 10_000
/** A server closes at its own time; a call that is sent just then is lost. */
const KEEP_ALIVE_MARGIN_MS = 1_000
/** A peer that is gone without a word is found out while its answer is waited for. */
const PROBED_AFTER_MS = 60_000

export interface ConnectionEvents {
  /** Ready for the next call, once what came with the end of the last one was looked at. */
  onFinished(): void
  onClosed(): void
}

/** One call on its connection. */
class Exchange implements Flow {
  readonly request: HttpRequest
  readonly receiver: Receiver
  readonly #connection: Connection
  isSent = false
  /** Nothing of the request is still to come. */
  isWhole = false
  isAnswered = false
  isPaused = false

  constructor(request: HttpRequest, receiver: Receiver, connection: Connection) {
    this.request = request
    this.receiver = receiver
    this.#connection = connection
  }

  pause(): void {
    this.isPaused = true
    this.#connection.steered(this)
  }

  resume(): void {
    this.isPaused = false
    this.#connection.steered(this)
  }

  abort(): void {
    this.#connection.abort(this)
  }
}

/**
 * A connection to an origin (HTTP/1.1), for one call at a time, so that one that breaks takes no other with it.
 * Redirects are not followed, nothing is decoded. Names and values of headers are not checked.
 */
export class Connection implements MessageReceiver {
  readonly #socket: Socket
  readonly #parser = new HttpParser('response', this, LONGEST_HEAD)
  readonly #events: ConnectionEvents
  readonly #host: string
  readonly #connecting: NodeJS.Timeout
  #isConnected = false
  #exchange: Exchange | null = null
  #status = 0
  #keptMs = KEPT_MS
  #heardAt = 0

  constructor(origin: URL, connectTimeoutMs: number, events: ConnectionEvents) {
    const { protocol, hostname, host } = origin
    const isTls = protocol === 'https:'
    const name = hostname.replace(/^\[|\]$/g, '')
    const address = { host: name, port: Number(origin.port || (isTls ? 443 : 80)) }
    this.#events = events
    this.#host = host
    this.#socket = isTls
      ? connectTls({
          ...address,
          ...(isIP(name) === 0 && { servername: name }),
          ALPNProtocols: ['http/1.1'],
        })
      : connectTcp(address)
    const socket = this.#socket
    socket.setNoDelay(true)
    socket.setKeepAlive(true, PROBED_AFTER_MS)
    this.#connecting = setTimeout(() => this.#fail('timeout'), connectTimeoutMs)
    socket.once(isTls ? 'secureConnect' : 'connect', () => {
      clearTimeout(this.#connecting)
      this.#isConnected = true
      if (this.#exchange !== null) this.#write(this.#exchange)
    })
    socket.on('data', (chunk: Buffer) => this.#read(chunk))
    socket.on('end', () => this.#ended())
    socket.on('error', (cause) => this.#fail(isTimeout(cause) ? 'timeout' : 'unreachable', cause))
    socket.on('close', () => {
      clearTimeout(this.#connecting)
      this.#fail('unreachable')
      this.#parser.free()
      events.onClosed()
    })
  }

  get isFit(): boolean {
    const isFresh = performance.now() - this.#heardAt < this.#keptMs
    return isFresh && this.#exchange === null && this.#socket.writable
  }

  send(request: HttpRequest, receiver: Receiver): void {
    const exchange = new Exchange(request, receiver, this)
    this.#exchange = exchange
    this.#heardAt = performance.now()
    receiver.onStart(exchange)
    if (this.#exchange === exchange && this.#isConnected) this.#write(exchange)
  }

  /** A call of before has no say any more. */
  steered(exchange: Exchange): void {
    if (this.#exchange !== exchange) return
    this.#heardAt = performance.now()
    if (exchange.isPaused) this.#socket.pause()
    else this.#socket.resume()
  }

  abort(exchange: Exchange): void {
    if (this.#exchange !== exchange) return
    if (exchange.isSent || !this.#isConnected) return this.#fail('unreachable')
    if (exchange.isPaused) this.#socket.resume()
    this.#exchange = null
    exchange.receiver.onFailure(new HttpFailure('unreachable'))
    this.#events.onFinished()
  }

  #write(exchange: Exchange): void {
    const { method, path, headers, body } = exchange.request
    let head = `${method} ${path} HTTP/1.1\r\nhost: ${this.#host}\r\nconnection: keep-alive\r\n`
    for (let i = 0; i < headers.length; i += 2) head += `${headers[i]}: ${headers[i + 1]}\r\n`
    if (body === null) {
      afterThisTurn(() => {
        if (this.#exchange !== exchange) return
        exchange.isSent = true
        exchange.isWhole = true
        this.#socket.write(`${head}\r\n`, 'latin1')
      })
      return
    }
    const length = headerValue(headers, 'content-length')
    exchange.isSent = true
    if (Buffer.isBuffer(body)) {
      if (length === null) head += `content-length: ${body.length}\r\n`
      exchange.isWhole = true
      this.#socket.cork()
      this.#socket.write(`${head}\r\n`, 'latin1')
      this.#socket.write(body)
      this.#socket.uncork()
      return
    }
    if (length === null) head += 'transfer-encoding: chunked\r\n'
    this.#socket.write(`${head}\r\n`, 'latin1')
    void this.#stream(exchange, body, length === null ? null : Number(length))
  }

  async #stream(
    exchange: Exchange,
    body: AsyncIterable<Buffer>,
    length: number | null,
  ): Promise<void> {
    const socket = this.#socket
    let left = length ?? 0
    try {
      for await (const chunk of body) {
        if (this.#exchange !== exchange) return
        if (chunk.length === 0) continue
        left -= chunk.length
        if (length !== null && left < 0) return this.#fail('unsendable')
        if (length === null) socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1')
        const hasRoom = socket.write(chunk)
        if (length === null) socket.write('\r\n', 'latin1')
        if (!hasRoom) await drained(socket)
      }
    } catch (cause) {
      // The caller broke off: what has gone out must not look whole.
      if (this.#exchange === exchange) this.#fail('unreachable', cause)
      return
    }
    if (this.#exchange !== exchange) return
    if (length !== null && left > 0) return this.#fail('unsendable')
    if (length === null) socket.write('0\r\n\r\n', 'latin1')
    exchange.isWhole = true
  }

  #read(chunk: Buffer): void {
    this.#heardAt = performance.now()
    if (!this.#parser.read(chunk)) this.#fail('unreachable', NO_HTTP)
    else this.#exchange?.receiver.onCaughtUp()
  }

  onMessageBegin(): boolean {
    // What nobody asked for would be taken for the answer to the next call, or to one that waits to be sent.
    const exchange = this.#exchange
    return exchange?.isSent === true
  }

  onHead({ status, headers, isUpgrade }: Head): 'body' | 'no body' | 'refused' {
    const exchange = this.#exchange
    const isOdd = isUpgrade || status === 101 || status < 100
    if (exchange === null || isOdd) return 'refused'
    this.#status = status
    if (status < 200) {
      // RFC 9110 §15.2.1: of no use to anybody further on.
      if (status !== 100) exchange.receiver.onInformation(status, headers)
      return this.#exchange === exchange ? 'no body' : 'refused'
    }
    exchange.isAnswered = true
    this.#keptMs = hasStrayBody(status, headers) ? 0 : keptMs(headers)
    exchange.receiver.onHeaders(status, headers)
    if (this.#exchange !== exchange) return 'refused'
    return exchange.request.method === 'HEAD' ? 'no body' : 'body'
  }

  onBody(part: Buffer): boolean {
    this.#exchange?.receiver.onData(part)
    return this.#exchange !== null
  }

  onMessageComplete(trailers: HeaderList, isReusable: boolean): boolean {
    const exchange = this.#exchange
    if (exchange === null) return false
    if (this.#status < 200) return true
    this.#exchange = null
    if (exchange.isPaused) this.#socket.resume()
    exchange.receiver.onEnd(trailers)
    if (!isReusable || !exchange.isWhole || this.#keptMs <= 0) return false
    this.#events.onFinished()
    return true
  }

  // An answer without a length ends with its connection.
  #ended(): void {
    this.#parser.finish()
    this.#fail('unreachable')
  }

  #fail(kind: FailureKind, cause?: unknown): void {
    const exchange = this.#exchange
    this.#exchange = null
    this.#socket.destroy()
    exchange?.receiver.onFailure(new HttpFailure(kind, { cause }))
  }

  /** Looks at the time (ms of the monotonic clock): nothing lasts for ever. */
  age(at: number, idleTimeoutMs: number): void {
    const exchange = this.#exchange
    const silentMs = at - this.#heardAt
    if (exchange === null) {
      if (silentMs >= this.#keptMs) this.#socket.destroy()
    } else if (exchange.isAnswered && !exchange.isPaused && silentMs >= idleTimeoutMs)
      this.#fail('timeout')
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#socket.closed) return resolve()
      this.#socket.once('close', () => resolve())
      this.#fail('unreachable')
    })
  }
}

function keptMs(headers: HeaderList): number {
  const hint = headerValue(headers, 'keep-alive')
  const seconds = hint === null ? null : /(?:^|[\s,])timeout=(\d{1,6})/i.exec(hint)?.[1]
  if (seconds === undefined || seconds === null) return KEPT_MS
  return Math.min(KEPT_MS, Number(seconds) * 1_000 - KEEP_ALIVE_MARGIN_MS)
}

/** Says that a body follows where none can: what follows would be read as the next answer. */
const hasStrayBody = (status: number, headers: HeaderList): boolean =>
  (status === 204 || status === 304) &&
  (headerValue(headers, 'transfer-encoding') !== null ||
    Number(headerValue(headers, 'content-length') ?? 0) > 0)

/** Also what a receiver refused: more than it takes, or another protocol. */
const NO_HTTP = Object.assign(new Error('what came is no answer'), { code: 'NO_HTTP' })

const isTimeout = (error: Error): boolean => 'code' in error && error.code === 'ETIMEDOUT'

/** Until there is room for more, or nobody to take it. */
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
