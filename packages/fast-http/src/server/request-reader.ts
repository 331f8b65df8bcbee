/** Parses the requests that the fast path accepts, and detects requests that it does not accept. */
import type { IncomingHttpHeaders } from 'node:http'
import {
  type HeaderList,
  headerPairs,
  headerValue,
} from '@integration-host/shared/http/header-list'
import { type Head, HttpParser, type MessageReceiver } from '../parser.ts'

/** A GET or POST request of HTTP/1.1 whose body, if it has one, has a `Content-Length`. */
export class BufferedRequest {
  readonly httpVersion = '1.1'
  readonly method: 'GET' | 'POST'
  readonly url: string
  readonly rawHeaders: HeaderList
  readonly authorization: string | undefined
  /** The parts of the body that have arrived; empty if the request has no body. */
  readonly body: Buffer[] = []
  #missingBytes: number

  constructor(method: 'GET' | 'POST', { target, headers }: Head, bodyBytes: number) {
    this.method = method
    this.url = target
    this.rawHeaders = headers
    this.authorization = headerValue(headers, 'authorization') ?? undefined
    this.#missingBytes = bodyBytes
  }

  /** Adds the next part of the body. Returns false if the part is longer than the rest of the body. */
  append(part: Buffer): boolean {
    if (part.length > this.#missingBytes) return false
    this.#missingBytes -= part.length
    this.body.push(part)
    return true
  }

  get complete(): boolean {
    return this.#missingBytes === 0
  }

  get headers(): IncomingHttpHeaders {
    const pairs = headerPairs(this.rawHeaders)
    return Object.fromEntries(pairs.map(([name, value]) => [name.toLowerCase(), value]))
  }
}

/**
 * Maximum length of a request head in bytes. The HTTP server's `maxHeaderSize` has the same value. Longer heads get the
 * status 431.
 */
const MAX_HEAD_BYTES = 16_384

/**
 * Maximum length of a body that the fast path buffers, in bytes. `node:http` streams longer bodies upstream while they
 * arrive.
 */
const MAX_BODY_BYTES = 262_144

/**
 * Maximum number of header names and values. Node's HTTP server has the same limit and responds 431 to a request beyond
 * this limit. Node does not document this number: it follows from the default of `maxHeadersCount`.
 */
const MAX_HEADERS = 1_000

/**
 * Requests with one of these headers are not accepted. A body with `Transfer-Encoding` has no known length (RFC 9112
 * §6.3); `Expect` and `Upgrade` can require a response before the final one.
 */
const UNSUPPORTED_HEADERS = ['transfer-encoding', 'expect', 'upgrade']

export class RequestReader implements MessageReceiver {
  readonly #parser = new HttpParser('request', this, MAX_HEAD_BYTES)
  #head: Head | null = null
  #isComplete = false

  /**
   * Parses the bytes of a connection since the end of the previous request. Returns the request at the beginning of
   * these bytes; its body may be incomplete.
   *
   * Returns `null` if the fast path does not accept the request, if the request head is incomplete, or if more than
   * one request has arrived.
   */
  read(bytes: Buffer): BufferedRequest | null {
    const method = methodOf(bytes)
    if (method === null) return null
    // Only the head is parsed, so bytes in the body that look like a request are never parsed as a request.
    const headEnd = bytes.indexOf('\r\n\r\n', 0, 'latin1') + 4
    if (headEnd < 4 || headEnd > MAX_HEAD_BYTES) return null
    this.#head = null
    this.#isComplete = false
    const isHead = this.#parser.read(headEnd === bytes.length ? bytes : bytes.subarray(0, headEnd))
    const head = this.#head as Head | null
    if (!isHead || !this.#isComplete || head === null) {
      this.#parser.reset()
      return null
    }
    const length = Number(headerValue(head.headers, 'content-length') ?? 0)
    if (length > MAX_BODY_BYTES) return null
    const request = new BufferedRequest(method, head, length)
    return headEnd === bytes.length || request.append(bytes.subarray(headEnd)) ? request : null
  }

  /**
   * Returns false at the start of a second request, so that the parser rejects bytes that contain more than one
   * request.
   */
  onMessageBegin(): boolean {
    return this.#head === null
  }

  // The result `no body` makes the parser end the message after the head. `read` itself takes the body from the bytes
  // that follow the head. llhttp has verified that `Content-Length` occurs at most once and is a number.
  onHead(head: Head): 'no body' | 'rejected' {
    this.#head = head
    const has = (name: string): boolean => headerValue(head.headers, name) !== null
    const isSupported =
      !head.isUpgrade &&
      head.headers.length <= 2 * MAX_HEADERS &&
      this.#parser.isHttp11 &&
      has('host')
    return isSupported && !UNSUPPORTED_HEADERS.some(has) ? 'no body' : 'rejected'
  }

  onBody(): boolean {
    return false
  }

  onMessageComplete(_trailers: readonly string[], isReusable: boolean): boolean {
    this.#isComplete = isReusable
    return isReusable
  }
}

/**
 * Returns the method if the bytes begin with `GET ` or `POST `; otherwise `null`. This check is cheaper than running
 * the parser on a request that will be rejected.
 */
function methodOf(bytes: Buffer): 'GET' | 'POST' | null {
  const start = bytes.length < 5 ? 0 : bytes.readUInt32BE(0)
  if (start === GET_AND_SPACE) return 'GET'
  return start === POST && bytes[4] === SPACE ? 'POST' : null
}

const GET_AND_SPACE = 0x47_45_54_20
const POST = 0x50_4f_53_54
const SPACE = 0x20
