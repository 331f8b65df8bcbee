/** Parses the requests that the fast path accepts, and detects requests that it does not accept. */
import type { IncomingHttpHeaders } from 'node:http'
import {
  type HeaderList,
  headerPairs,
  headerValue,
} from '@integration-host/shared/http/client/header-list'
import {
  type Head,
  HttpParser,
  type MessageReceiver,
} from '@integration-host/shared/http/client/parser'
import type { CallerRequest } from '../proxy/caller.ts'

/** A complete HTTP/1.1 GET request without a body. */
export class BodilessGet implements CallerRequest {
  readonly method = 'GET'
  readonly httpVersion = '1.1'
  readonly complete = true
  readonly url: string
  readonly rawHeaders: HeaderList
  readonly authorization: string | undefined

  constructor({ target, headers }: Head) {
    this.url = target
    this.rawHeaders = headers
    this.authorization = headerValue(headers, 'authorization') ?? undefined
  }

  get headers(): IncomingHttpHeaders {
    const pairs = headerPairs(this.rawHeaders)
    return Object.fromEntries(pairs.map(([name, value]) => [name.toLowerCase(), value]))
  }
}

/**
 * Maximum length of a request head in bytes. The HTTP server's `maxHeaderSize` has the same value, and longer heads get
 * the status 431.
 */
const MAX_HEAD_BYTES = 16_384

/**
 * Maximum number of header names and values. Node's HTTP server has the same limit and responds 431 to a request beyond
 * it. Node does not document this number: it follows from the default of `maxHeadersCount`.
 */
const MAX_HEADERS = 1_000

/**
 * Requests with one of these headers are not accepted. `Content-Length` and `Transfer-Encoding` announce a body (RFC
 * 9112 §6.3); `Expect` and `Upgrade` can require a response before the final one.
 */
const UNSUPPORTED_HEADERS = ['content-length', 'transfer-encoding', 'expect', 'upgrade']

export class RequestReader implements MessageReceiver {
  readonly #parser = new HttpParser('request', this, MAX_HEAD_BYTES)
  #head: Head | null = null
  #isComplete = false

  /**
   * Parses the bytes of one read of the socket. Returns `null` unless the bytes are exactly one complete HTTP/1.1 GET
   * request that has no body and lets the connection stay open.
   */
  read(bytes: Buffer): BodilessGet | null {
    if (bytes.length > MAX_HEAD_BYTES || !startsWithGet(bytes)) return null
    this.#head = null
    this.#isComplete = false
    if (!this.#parser.read(bytes) || !this.#isComplete || this.#head === null) {
      this.#parser.reset()
      return null
    }
    return new BodilessGet(this.#head)
  }

  /**
   * Returns false at the start of a second request, so that the parser rejects bytes that contain more than one
   * request.
   */
  onMessageBegin(): boolean {
    return this.#head === null
  }

  onHead(head: Head): 'body' | 'rejected' {
    this.#head = head
    const has = (name: string): boolean => headerValue(head.headers, name) !== null
    const isSupported =
      !head.isUpgrade &&
      head.headers.length <= 2 * MAX_HEADERS &&
      this.#parser.isHttp11 &&
      has('host')
    return isSupported && !UNSUPPORTED_HEADERS.some(has) ? 'body' : 'rejected'
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
 * Checks whether the bytes begin with `GET `. This check is cheaper than running the parser on a request that it would
 * reject.
 */
const startsWithGet = (bytes: Buffer): boolean =>
  bytes[0] === 71 && bytes[1] === 69 && bytes[2] === 84 && bytes[3] === 32
