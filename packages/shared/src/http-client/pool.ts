import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { inBurst } from '@integration-host/shared/burst'
import {
  callTraced,
  type CallResult,
  type Tracing,
  tracing,
} from '@integration-host/shared/telemetry'
import { type HeaderList, headerPairs, headerValue } from '../../proxy/headers.ts'
import {
  type FailureKind,
  type Flow,
  type Receiver,
  type Upstream,
  UpstreamFailure,
  type UpstreamRequest,
} from '../../proxy/upstream.ts'
import { type Head, HttpParser, type MessageReceiver } from './parser.ts'

export interface UpstreamOptions {
  readonly connectTimeoutMs?: number
  /** The longest silence within an answer. */
  readonly idleTimeoutMs?: number
}

export interface UpstreamConnection extends AsyncDisposable {
  readonly upstream: Upstream
}

const LONGEST_HEAD = 65_536
/** How long a connection is kept for the next call, unless the server says less (`Keep-Alive: timeout=…`). */
const KEPT_MS = 10_000
/** A server closes at its own time; a call that is sent just then is lost. */
const KEEP_ALIVE_MARGIN_MS = 1_000
const SWEEP_EVERY_MS = 1_000

/**
 * HTTP/1.1 connections to one origin, kept open between calls; one call at a time on each, so that one that
 * breaks takes no other with it. Redirects are not followed, nothing is decoded.
 */
export function connectUpstream(origin: string, options: UpstreamOptions = {}): UpstreamConnection {
  const pool = new Pool(new URL(origin), options)
  const upstream: Upstream = { send: (request, receiver) => pool.send(request, receiver) }
  return {
    upstream: tracing === undefined ? upstream : tracedUpstream(tracing, upstream, origin),
    async [Symbol.asyncDispose]() {
      await pool.close()
    },
  }
}

class Pool {
  readonly #origin: URL
  readonly #connectTimeoutMs: number
  readonly #idleTimeoutMs: number
  readonly #connections = new Set<Connection>()
  /** Fit for the next call; the one used last is taken first, so that the others can grow old. */
  readonly #resting: Connection[] = []
  #finished: Connection[] = []
  readonly #sweeping: NodeJS.Timeout

  constructor(origin: URL, { connectTimeoutMs = 5_000, idleTimeoutMs = 60_000 }: UpstreamOptions) {
    this.#origin = origin
    this.#connectTimeoutMs = connectTimeoutMs
    this.#idleTimeoutMs = idleTimeoutMs
    this.#sweeping = setInterval(() => this.#sweep(), Math.min(SWEEP_EVERY_MS, idleTimeoutMs / 2))
    this.#sweeping.unref()
  }

  send(request: UpstreamRequest, receiver: Receiver): void {
    let connection = this.#resting.pop()
    // Closed, or grown too old, and not told yet.
    while (connection?.isFit === false) connection = this.#resting.pop()
    connection ??= this.#connect()
    connection.send(request, receiver)
  }

  #connect(): Connection {
    const connection = new Connection(this.#origin, this.#connectTimeoutMs, {
      onFinished: () => this.#rest(connection),
      onClosed: () => this.#forget(connection),
    })
    this.#connections.add(connection)
    return connection
  }

  // Not before what came with the answer's end has been looked at: bytes too many, or the end of the connection.
  #rest(connection: Connection): void {
    if (this.#finished.length === 0)
      setImmediate(() => {
        const finished = this.#finished
        this.#finished = []
        for (const one of finished) if (one.isFit) this.#resting.push(one)
      })
    this.#finished.push(connection)
  }

  #forget(connection: Connection): void {
    this.#connections.delete(connection)
    const index = this.#resting.indexOf(connection)
    if (index !== -1) this.#resting.splice(index, 1)
  }

  #sweep(): void {
    const at = performance.now()
    for (const connection of this.#connections) connection.age(at, this.#idleTimeoutMs)
  }

  async close(): Promise<void> {
    clearInterval(this.#sweeping)
    await Promise.all([...this.#connections].map((connection) => connection.close()))
  }
}

interface ConnectionEvents {
  onFinished(): void
  onClosed(): void
}

/** One call on its connection. */
class Exchange implements Flow {
  readonly request: UpstreamRequest
  readonly receiver: Receiver
  readonly #connection: Connection
  /** The request is out, whole. */
  isSent = false
  isAnswered = false
  isPaused = false

  constructor(request: UpstreamRequest, receiver: Receiver, connection: Connection) {
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

class Connection implements MessageReceiver {
  readonly #socket: Socket
  readonly #parser = new HttpParser('response', this, LONGEST_HEAD)
  readonly #events: ConnectionEvents
  readonly #host: string
  readonly #connecting: NodeJS.Timeout
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
    this.#connecting = setTimeout(() => this.#fail('timeout'), connectTimeoutMs)
    socket.once(isTls ? 'secureConnect' : 'connect', () => clearTimeout(this.#connecting))
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

  send(request: UpstreamRequest, receiver: Receiver): void {
    const exchange = new Exchange(request, receiver, this)
    this.#exchange = exchange
    this.#heardAt = performance.now()
    receiver.onStart(exchange)
    if (this.#exchange === exchange) this.#write(exchange)
  }

  /** A call of before has no say any more. */
  steered(exchange: Exchange): void {
    if (this.#exchange !== exchange) return
    this.#heardAt = performance.now()
    if (exchange.isPaused) this.#socket.pause()
    else this.#socket.resume()
  }

  abort(exchange: Exchange): void {
    if (this.#exchange === exchange) this.#fail('unreachable')
  }

  #write(exchange: Exchange): void {
    const { method, path, headers, body } = exchange.request
    let head = `${method} ${path} HTTP/1.1\r\nhost: ${this.#host}\r\nconnection: keep-alive\r\n`
    for (let i = 0; i < headers.length; i += 2) head += `${headers[i]}: ${headers[i + 1]}\r\n`
    if (body === null) {
      inBurst(() => {
        exchange.isSent = true
        this.#socket.write(`${head}\r\n`, 'latin1')
      })
      return
    }
    const length = headerValue(headers, 'content-length')
    if (Buffer.isBuffer(body)) {
      if (length === null) head += `content-length: ${body.length}\r\n`
      exchange.isSent = true
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
    exchange.isSent = true
  }

  #read(chunk: Buffer): void {
    this.#heardAt = performance.now()
    if (!this.#parser.read(chunk)) this.#fail('unreachable')
    else this.#exchange?.receiver.onCaughtUp()
  }

  onMessageBegin(): boolean {
    // What nobody asked for would be taken for the answer to the next call, or to one that waits to be sent.
    const exchange = this.#exchange
    return exchange !== null && (exchange.isSent || exchange.request.body !== null)
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
    if (!isReusable || !exchange.isSent || this.#keptMs <= 0) return false
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
    exchange?.receiver.onFailure(new UpstreamFailure(kind, { cause }))
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

/** The same upstream, each request in a span. The trace goes on there from ours, in place of the caller's. */
const tracedUpstream = (traces: Tracing, upstream: Upstream, origin: string): Upstream => ({
  send(request, receiver) {
    const { method, path, headers } = request
    const send = (added: Readonly<Record<string, string>>): Promise<CallResult> =>
      new Promise((resolve) => {
        let result: CallResult = 0
        const kept = headerPairs(headers).filter(([name]) => !(name.toLowerCase() in added))
        const sent = { ...request, headers: [...kept, ...Object.entries(added)].flat() }
        upstream.send(sent, {
          onStart: (flow) => receiver.onStart(flow),
          onInformation: (status, given) => receiver.onInformation(status, given),
          onHeaders(status, given) {
            result = status
            receiver.onHeaders(status, given)
          },
          onData: (chunk) => receiver.onData(chunk),
          onCaughtUp: () => receiver.onCaughtUp(),
          onEnd(trailers) {
            receiver.onEnd(trailers)
            resolve(result)
          },
          onFailure(failure) {
            receiver.onFailure(failure)
            resolve(failure.kind)
          },
        })
      })
    void callTraced(traces, { method, url: new URL(path, origin) }, send, (result) => result)
  },
})
