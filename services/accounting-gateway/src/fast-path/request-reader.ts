/** Reads the requests that the fast path accepts, and only those. */
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

/** A complete HTTP/1.1 GET without a body. */
export class BodilessGet implements CallerRequest {
  readonly method = 'GET'
  readonly httpVersion = '1.1'
  readonly complete = true
  readonly url: string
  readonly rawHeaders: HeaderList
  readonly authorization: string | undefined
  /** The previous request of the same connection was accepted with the same `Authorization`. */
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

/** The same limit as `maxHeaderSize` of the HTTP server, which responds 431 beyond it. */
const MAX_HEAD_BYTES = 16_384

/**
 * The same limit as that of Node's HTTP server, which responds 431 beyond it. It is not a documented constant: Node
 * derives it from the default of `maxHeadersCount`, 2,000 names and values.
 */
const MAX_HEADERS = 1_000

/** A request has a body only with one of the first two (RFC 9112 §6.3). The others need more than one response. */
const UNSUPPORTED_HEADERS = ['content-length', 'transfer-encoding', 'expect', 'upgrade']

export class RequestReader implements MessageReceiver {
  readonly #parser = new HttpParser('request', this, MAX_HEAD_BYTES)
  #head: Head | null = null
  #isComplete = false

  /**
   * Parses the bytes of one read of the socket. Returns `null` unless they are exactly one complete HTTP/1.1 GET
   * without a body after which the connection stays open. `accepted` is the `Authorization` value that was last
   * found valid on the connection.
   */
  read(bytes: Buffer, accepted: string | undefined): BodilessGet | null {
    if (bytes.length > MAX_HEAD_BYTES || !startsWithGet(bytes)) return null
    this.#head = null
    this.#isComplete = false
    if (!this.#parser.read(bytes) || !this.#isComplete || this.#head === null) {
      this.#parser.reset()
      return null
    }
    return new BodilessGet(this.#head, accepted)
  }

  /** Rejects a second request within the same bytes. */
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

/** Compares with the bytes of `GET `. This is cheaper than starting the parser for requests that it would reject. */
const startsWithGet = (bytes: Buffer): boolean =>
  bytes[0] === 71 && bytes[1] === 69 && bytes[2] === 84 && bytes[3] === 32
