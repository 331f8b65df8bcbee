/**
 * Parses HTTP/1.1 messages with llhttp, Node's own parser, in the WebAssembly build that undici ships and uses for its
 * responses. The lenient modes of llhttp are off, so a message that violates RFC 9112 is an error.
 *
 * llhttp itself has no size limits, so this file enforces two. The caller sets the maximum size of the head and the
 * trailers of a message together. `MAX_UNREPORTED_BYTES` limits the bytes between two parts that llhttp reports: chunk
 * extensions, leading zeros of a chunk size, white space before a value, and empty lines before a message.
 */
import wasm from 'undici/lib/llhttp/llhttp_simd-wasm.js'

/**
 * Receives the parts of a message in the order in which they were parsed. A callback that returns `false` or `rejected`
 * ends the parsing with an error. A callback must not pass bytes to any parser, because all parsers share one window of
 * memory.
 */
export interface MessageReceiver {
  onMessageBegin(): boolean
  onHead(head: Head): 'body' | 'no body' | 'rejected'
  onBody(part: Buffer): boolean
  /** `isReusable` says whether another message may follow on the connection (RFC 9112 §9.3). */
  onMessageComplete(trailers: readonly string[], isReusable: boolean): boolean
}

export interface Head {
  /** The status code of a response; 0 for a request. */
  readonly status: number
  /** The request target; empty for a response. */
  readonly target: string
  /**
   * Header names and values alternately, in the order on the wire. They are decoded as Latin-1, which preserves every
   * byte.
   */
  readonly headers: string[]
  readonly isUpgrade: boolean
}

interface Llhttp {
  readonly memory: { readonly buffer: ArrayBuffer }
  malloc(bytes: number): number
  llhttp_alloc(type: number): number
  llhttp_free(parser: number): void
  llhttp_reset(parser: number): void
  llhttp_execute(parser: number, data: number, length: number): number
  llhttp_finish(parser: number): number
  llhttp_should_keep_alive(parser: number): number
  llhttp_get_http_major(parser: number): number
  llhttp_get_http_minor(parser: number): number
}

const TYPES = { request: 1, response: 2 } as const
const OK = 0
const FAILED = -1
const SKIP_BODY = 1
const TARGET = 0
const NAME = 1
const VALUE = 2
/** The reason phrase of a response. It counts towards the size of the head, and is then discarded. */
const REASON = 3
/** The maximum number of bytes between two parts of a message that llhttp reports. */
const MAX_UNREPORTED_BYTES = 16_384
/** The maximum number of bytes that one read of a socket returns. */
const WINDOW_BYTES = 65_536

/**
 * The parser that is passing bytes to llhttp. llhttp's callbacks belong to the WebAssembly instance and do not say for
 * which parser they are called. They are called only during `llhttp_execute` and `llhttp_finish`, which are
 * synchronous, so one variable is enough.
 *
 * The instance, its window and this variable are module state on purpose. An instance with a window takes 192 KiB of
 * memory (measured), which is too much for each connection, while a parser within an instance takes 80 bytes.
 */
const reading = {} as { parser: HttpParser }

const llhttp = new WebAssembly.Instance(new WebAssembly.Module(wasm), {
  env: {
    wasm_on_message_begin: () => reading.parser.onBegin(),
    wasm_on_url: (_: number, at: number, length: number) =>
      reading.parser.onPart(TARGET, at, length),
    wasm_on_status: (_: number, at: number, length: number) =>
      reading.parser.onPart(REASON, at, length),
    wasm_on_header_field: (_: number, at: number, length: number) =>
      reading.parser.onPart(NAME, at, length),
    wasm_on_header_value: (_: number, at: number, length: number) =>
      reading.parser.onPart(VALUE, at, length),
    wasm_on_headers_complete: (_: number, status: number, upgrade: number) =>
      reading.parser.onHeadEnd(status, upgrade === 1),
    wasm_on_body: (_: number, at: number, length: number) => reading.parser.onBodyPart(at, length),
    wasm_on_message_complete: () => reading.parser.onComplete(),
  },
}).exports as Llhttp

// The part of the WebAssembly memory into which bytes are copied for llhttp. A parser needs the bytes only until its
// method `read` returns, so all parsers can share this window.
const windowAt = llhttp.malloc(WINDOW_BYTES)
let window = new Uint8Array(llhttp.memory.buffer, windowAt, WINDOW_BYTES)

/**
 * Parses the messages of one connection. The parser's memory is not garbage collected, so its owner must call {@link
 * free}.
 */
export class HttpParser {
  readonly #receiver: MessageReceiver
  readonly #maxHeadBytes: number
  #parser: number
  #chunk: Buffer = Buffer.alloc(0)
  /**
   * The parts of the head in the current chunk that were not decoded yet. Each part is stored as three numbers: its
   * kind (TARGET, NAME or VALUE), its start and its end.
   */
  #parts: number[] = []
  #headBytes = 0
  /**
   * The position in the current chunk where the last reported part ends; negative if that part ended in an earlier
   * chunk.
   */
  #reportedTo = 0
  #target = ''
  #headers: string[] = []

  constructor(type: keyof typeof TYPES, receiver: MessageReceiver, maxHeadBytes: number) {
    this.#parser = llhttp.llhttp_alloc(TYPES[type])
    this.#receiver = receiver
    this.#maxHeadBytes = maxHeadBytes
  }

  /**
   * Parses further bytes. Returns false if the bytes are not valid HTTP or the receiver ended the parsing. In both
   * cases the parser accepts no more bytes until {@link reset}.
   */
  read(bytes: Buffer): boolean {
    for (let at = 0; at < bytes.length; at += WINDOW_BYTES) {
      if (
        !this.#readPart(bytes.length > WINDOW_BYTES ? bytes.subarray(at, at + WINDOW_BYTES) : bytes)
      )
        return false
    }
    return true
  }

  #readPart(bytes: Buffer): boolean {
    // The length of the window is 0 after the WebAssembly memory has grown, because the growth detaches the previous
    // buffer.
    if (window.length === 0) window = new Uint8Array(llhttp.memory.buffer, windowAt, WINDOW_BYTES)
    window.set(bytes)
    reading.parser = this
    this.#chunk = bytes
    if (llhttp.llhttp_execute(this.#parser, windowAt, bytes.length) !== OK) return false
    this.#decodeParts()
    this.#reportedTo -= bytes.length
    return this.#reportedTo >= -MAX_UNREPORTED_BYTES
  }

  /** Reports the end of the connection to llhttp. Returns false if the message was not complete at that time. */
  finish(): boolean {
    reading.parser = this
    return llhttp.llhttp_finish(this.#parser) === OK
  }

  /** Discards an incomplete message, so that the next bytes begin a new message. */
  reset(): void {
    llhttp.llhttp_reset(this.#parser)
    this.#parts = []
    this.#reportedTo = 0
  }

  free(): void {
    llhttp.llhttp_free(this.#parser)
    this.#parser = 0
  }

  /** Whether the current message is HTTP/1.1; valid from {@link MessageReceiver.onHead} on. */
  get isHttp11(): boolean {
    return this.#isVersion(1, 1)
  }

  /** Whether the current message is HTTP/1.0; valid from {@link MessageReceiver.onHead} on. */
  get isHttp10(): boolean {
    return this.#isVersion(1, 0)
  }

  #isVersion(major: number, minor: number): boolean {
    return (
      llhttp.llhttp_get_http_major(this.#parser) === major &&
      llhttp.llhttp_get_http_minor(this.#parser) === minor
    )
  }

  /** @internal The following methods are the callbacks of llhttp. */
  onBegin(): number {
    this.#headBytes = 0
    this.#target = ''
    this.#headers = []
    return this.#receiver.onMessageBegin() ? OK : FAILED
  }

  onPart(what: number, at: number, length: number): number {
    const from = at - windowAt
    this.#headBytes += length
    if (this.#headBytes > this.#maxHeadBytes || !this.#report(from, length)) return FAILED
    if (what !== REASON) this.#parts.push(what, from, from + length)
    return OK
  }

  onHeadEnd(status: number, isUpgrade: boolean): number {
    this.#decodeParts()
    trimValues(this.#headers)
    const head = { status, target: this.#target, headers: this.#headers, isUpgrade }
    this.#headers = []
    const verdict = this.#receiver.onHead(head)
    return verdict === 'rejected' ? FAILED : verdict === 'no body' ? SKIP_BODY : OK
  }

  onBodyPart(at: number, length: number): number {
    const from = at - windowAt
    if (!this.#report(from, length)) return FAILED
    return this.#receiver.onBody(this.#chunk.subarray(from, from + length)) ? OK : FAILED
  }

  /**
   * Records a part of the head in the current chunk. Returns false if too many bytes lie between this part and the
   * previous one.
   */
  #report(from: number, length: number): boolean {
    const unreported = from - this.#reportedTo
    this.#reportedTo = from + length
    return unreported <= MAX_UNREPORTED_BYTES
  }

  onComplete(): number {
    this.#decodeParts()
    trimValues(this.#headers)
    const isReusable = llhttp.llhttp_should_keep_alive(this.#parser) === 1
    return this.#receiver.onMessageComplete(this.#headers, isReusable) ? OK : FAILED
  }

  // The head is decoded as a whole and then cut into strings. Decoding each part separately would cost more than
  // parsing the head.
  #decodeParts(): void {
    const parts = this.#parts
    if (parts.length === 0) return
    const from = parts[1] ?? 0
    const text = this.#chunk.toString('latin1', from, parts.at(-1))
    const headers = this.#headers
    for (let i = 0; i < parts.length; i += 3) {
      const what = parts[i]
      const part = text.slice((parts[i + 1] ?? 0) - from, (parts[i + 2] ?? 0) - from)
      // A name or value may continue in the next chunk. llhttp then reports it in several parts, which are joined here.
      if (what === TARGET) this.#target += part
      else if ((headers.length % 2 === 0) === (what === NAME)) headers.push(part)
      else headers[headers.length - 1] += part
    }
    parts.length = 0
  }
}

/**
 * White space around a value is not part of the value (RFC 9112 §5.1). llhttp removes only the white space before the
 * value. The white space after it is counted from the end of the value. An expression such as `[ \t]+$` would start at
 * every blank within the value, which takes quadratic time.
 */
function trimValues(headers: string[]): void {
  for (let i = 1; i < headers.length; i += 2) {
    const value = headers[i] ?? ''
    let end = value.length
    while (isBlank(value.charCodeAt(end - 1))) end -= 1
    if (end < value.length) headers[i] = value.slice(0, end)
  }
}

const isBlank = (character: number): boolean => character === 32 || character === 9
