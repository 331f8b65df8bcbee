/**
 * The short way for the most frequent call: a GET that arrives whole on a connection of its own. Its request is
 * read, and its answer written, without Node's HTTP server, which costs more than all else that a call takes.
 *
 * I1  A connection is here while each request on it is one whole GET of HTTP/1.1 in one piece, and `serve` takes
 *     it. With the first that is not, all its bytes and the connection go to Node's server, for good: what is
 *     refused, and how, is decided there alone.
 * I2  One call at a time; what arrives meanwhile is not looked at before the answer is out, nor before there is
 *     room for another one.
 */
import { EventEmitter } from 'node:events'
import { type IncomingHttpHeaders, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { afterThisTurn } from '@integration-host/shared/batching/coalesce-writes'
import {
  type Head,
  HttpParser,
  type MessageReceiver,
} from '@integration-host/shared/http/client/parser'
import type { CallerRequest, CallerResponse } from './proxy/caller.ts'
import {
  type HeaderList,
  headerPairs,
  headerValue,
} from '@integration-host/shared/http/client/header-list'

/** A GET without a body, all of it. */
export class WholeRequest implements CallerRequest {
  readonly method = 'GET'
  readonly httpVersion = '1.1'
  readonly complete = true
  readonly url: string
  readonly rawHeaders: HeaderList
  readonly authorization: string | undefined
  /** The same `Authorization` was found good on this connection before. */
  readonly isAuthorized: boolean

  constructor({ target, headers }: Head, accepted: string | undefined) {
    this.url = target
    this.rawHeaders = headers
    this.authorization = headerValue(headers, 'authorization') ?? undefined
    this.isAuthorized = this.authorization !== undefined && this.authorization === accepted
  }

  get headers(): IncomingHttpHeaders {
    const pairs = headerPairs(this.rawHeaders)
    return Object.fromEntries(pairs.map(([name, value]) => [name.toLowerCase(), value]))
  }
}

export interface Lane {
  /** Takes a new connection; `handOver` gives it to Node's server. */
  take(socket: Socket, handOver: () => void): void
  /** Closes the connections at rest, the others after their answer; new ones go to Node's server. */
  leave(): void
}

/** False when the call is not the lane's; nothing was done with it then. */
export type Serve = (request: WholeRequest, response: CallerResponse) => boolean

/** As Node's server has it here: larger is 431. */
const LONGEST_HEAD = 16_384
const LONGEST_WAIT_MS = { first: 10_000, next: 65_000 }
const SWEEP_EVERY_MS = 1_000
const KEEP_ALIVE = `Connection: keep-alive\r\nKeep-Alive: timeout=${LONGEST_WAIT_MS.next / 1_000}\r\n`
/** Beyond, copying costs more than a second piece in the same write. */
const COPIED_BYTES = 16_384

export function createLane(serve: Serve): Lane {
  const connections = new Set<Connection>()
  let isLeaving = false
  const sweeping = setInterval(() => {
    const at = performance.now()
    for (const connection of connections) connection.age(at)
  }, SWEEP_EVERY_MS)
  sweeping.unref()
  return {
    take(socket, handOver) {
      if (isLeaving) return handOver()
      const connection = new Connection(
        socket,
        serve,
        () => connections.delete(connection),
        handOver,
      )
      connections.add(connection)
    },
    leave() {
      isLeaving = true
      clearInterval(sweeping)
      for (const connection of connections) connection.leave()
    },
  }
}

/** Reads a request that is all there; every one on its own, so that all connections share one parser. */
class RequestReader implements MessageReceiver {
  readonly #parser = new HttpParser('request', this, LONGEST_HEAD)
  #head: Head | null = null
  #isWhole = false

  /** Null for anything but one whole GET of HTTP/1.1, without a body, after which the connection stays. */
  read(bytes: Buffer, accepted: string | undefined): WholeRequest | null {
    if (bytes.length > LONGEST_HEAD || !startsWithGet(bytes)) return null
    this.#head = null
    this.#isWhole = false
    if (!this.#parser.read(bytes) || !this.#isWhole || this.#head === null) {
      this.#parser.reset()
      return null
    }
    return new WholeRequest(this.#head, accepted)
  }

  onMessageBegin(): boolean {
    return this.#head === null
  }

  onHead(head: Head): 'body' | 'refused' {
    this.#head = head
    const has = (name: string): boolean => headerValue(head.headers, name) !== null
    const isPlain = !head.isUpgrade && this.#parser.isHttp11 && has('host') && !NOT_PLAIN.some(has)
    return isPlain ? 'body' : 'refused'
  }

  onBody(): boolean {
    return false
  }

  onMessageComplete(_trailers: readonly string[], isReusable: boolean): boolean {
    this.#isWhole = isReusable
    return isReusable
  }
}

const NOT_PLAIN = ['content-length', 'transfer-encoding', 'expect', 'upgrade']
const startsWithGet = (bytes: Buffer): boolean =>
  bytes[0] === 71 && bytes[1] === 69 && bytes[2] === 84 && bytes[3] === 32

const reader = new RequestReader()

class Connection {
  readonly #socket: Socket
  readonly #serve: Serve
  readonly #handOver: () => void
  readonly #forget: () => void
  #response: LaneResponse | null = null
  /** The `Authorization` that the last call was served with. */
  #accepted: string | undefined
  /** Came while a call was under way, or answers waited to be taken. */
  #early: Buffer[] = []
  #restingSince = performance.now()
  #longestRestMs = LONGEST_WAIT_MS.first
  #isLeaving = false

  constructor(socket: Socket, serve: Serve, forget: () => void, handOver: () => void) {
    this.#socket = socket
    this.#serve = serve
    this.#forget = forget
    this.#handOver = handOver
    socket.on('data', this.#onData)
    socket.on('drain', this.#onDrain)
    socket.on('end', this.#onEnd)
    socket.on('error', ignore)
    socket.on('close', this.#onClose)
  }

  readonly #onData = (bytes: Buffer): void => {
    if (!this.#socket.writable) return
    if (this.#response !== null || this.#socket.writableNeedDrain) {
      this.#early.push(bytes)
      this.#socket.pause()
      return
    }
    const request = reader.read(bytes, this.#accepted)
    if (request === null) return this.#giveUp(bytes)
    this.#response = new LaneResponse(this.#socket, this)
    if (!this.#serve(request, this.#response)) return this.#giveUp(bytes)
    this.#accepted = request.authorization
  }

  readonly #onDrain = (): void => {
    if (this.#response === null) this.#goOn()
    else this.#response.emit('drain')
  }
  // A caller that has nothing more to say has gone; Node's server takes it so as well.
  readonly #onEnd = (): void =>
    void (this.#response === null ? this.#socket.end() : this.#socket.destroy())
  readonly #onClose = (): void => {
    this.#forget()
    this.#response?.emit('close')
  }

  #giveUp(bytes: Buffer): void {
    const socket = this.#socket
    this.#response = null
    socket.off('data', this.#onData)
    socket.off('drain', this.#onDrain)
    socket.off('end', this.#onEnd)
    socket.off('error', ignore)
    socket.off('close', this.#onClose)
    this.#forget()
    this.#handOver()
    socket.unshift(bytes)
    socket.resume()
  }

  get isLast(): boolean {
    return this.#isLeaving
  }

  answered(): void {
    const response = this.#response
    this.#response = null
    // Whatever waits for room in it waits no more.
    response?.emit('close')
    this.#restingSince = performance.now()
    this.#longestRestMs = LONGEST_WAIT_MS.next
    if (this.#isLeaving) return this.#socket.destroySoon()
    // Not here: the end of an answer is told while upstream's bytes are read, and one parser reads at a time.
    if (this.#early.length > 0) process.nextTick(() => this.#goOn())
  }

  #goOn(): void {
    if (this.#early.length === 0) return
    const bytes = Buffer.concat(this.#early.splice(0))
    this.#socket.resume()
    this.#onData(bytes)
  }

  /** Looks at the time (ms of the monotonic clock): nobody waits for a caller for ever. */
  age(at: number): void {
    if (this.#response === null && at - this.#restingSince >= this.#longestRestMs)
      this.#socket.destroy()
  }

  leave(): void {
    this.#isLeaving = true
    // Not before its last answer is out.
    if (this.#response === null) this.#socket.destroySoon()
  }
}

const ignore = (): void => {}
const NOTHING = Buffer.alloc(0)

class LaneResponse extends EventEmitter implements CallerResponse {
  statusCode = 200
  headersSent = false
  writableEnded = false
  readonly socket: Socket
  readonly #connection: Connection
  /** Composed, and not yet on its way. */
  #head = ''
  #framing: 'length' | 'chunked' | 'none' = 'length'
  #trailers = ''

  constructor(socket: Socket, connection: Connection) {
    super()
    this.socket = socket
    this.#connection = connection
  }

  get writableFinished(): boolean {
    return this.writableEnded
  }

  get destroyed(): boolean {
    return this.socket.destroyed
  }

  // No value needs a check: upstream's were read by llhttp, which takes no character that may not be sent on.
  writeInformation(status: number, headers: readonly string[]): void {
    this.socket.write(`${statusLine(status)}${lines(headers)}\r\n`, 'latin1')
  }

  writeHead(status: number, headers: readonly string[]): void {
    if (status < 200) throw new RangeError('not the status of an answer')
    const hasBody = status !== 204 && status !== 304
    const hasLength = headerValue(headers, 'content-length') !== null
    this.#framing = hasBody ? (hasLength ? 'length' : 'chunked') : 'none'
    this.statusCode = status
    this.headersSent = true
    this.#head =
      statusLine(status) +
      lines(headers) +
      (headerValue(headers, 'date') === null ? `Date: ${new Date().toUTCString()}\r\n` : '') +
      (this.#connection.isLast ? 'Connection: close\r\n' : KEEP_ALIVE) +
      (this.#framing === 'chunked' ? 'Transfer-Encoding: chunked\r\n\r\n' : '\r\n')
  }

  flushHeaders(): void {
    if (this.#head !== '') this.socket.write(this.#head, 'latin1')
    this.#head = ''
  }

  write(chunk: Buffer): boolean {
    if (this.#framing === 'none') return true
    return this.#send(this.#before(chunk), chunk, this.#framing === 'chunked' ? '\r\n' : '')
  }

  addTrailers(trailers: [name: string, value: string][]): void {
    this.#trailers = lines(trailers.flat())
  }

  end(chunk: Buffer | string = NOTHING): void {
    this.writableEnded = true
    const isWhole = this.#head !== ''
    const isChunked = this.#framing === 'chunked'
    const given = typeof chunk === 'string' ? Buffer.from(chunk) : chunk
    const body = this.#framing === 'none' ? NOTHING : given
    const before = this.#before(body)
    const end = isChunked ? `0\r\n${this.#trailers}\r\n` : ''
    const after = isChunked && body.length > 0 ? `\r\n${end}` : end
    const send = (): void => {
      this.#send(before, body, after)
      this.#connection.answered()
    }
    if (isWhole) afterThisTurn(send)
    else send()
  }

  destroy(): void {
    this.socket.destroy()
  }

  /** What has to go out before a part of the body. */
  #before(part: Buffer): string {
    const head = this.#head
    this.#head = ''
    return this.#framing === 'chunked' && part.length > 0
      ? `${head}${part.length.toString(16)}\r\n`
      : head
  }

  #send(before: string, chunk: Buffer, after: string): boolean {
    const socket = this.socket
    if (before.length + chunk.length + after.length === 0) return true
    if (chunk.length <= COPIED_BYTES) {
      const whole = Buffer.allocUnsafe(before.length + chunk.length + after.length)
      whole.write(before, 0, 'latin1')
      chunk.copy(whole, before.length)
      if (after !== '') whole.write(after, before.length + chunk.length, 'latin1')
      return socket.write(whole)
    }
    socket.cork()
    if (before !== '') socket.write(before, 'latin1')
    const hasRoom = socket.write(chunk)
    if (after !== '') socket.write(after, 'latin1')
    socket.uncork()
    return hasRoom
  }
}

const statusLine = (status: number): string =>
  `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'unknown'}\r\n`

function lines(headers: readonly string[]): string {
  let text = ''
  for (let i = 0; i < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`
  return text
}
