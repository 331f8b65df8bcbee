/**
 * HTTP/1.1 messages out of bytes by llhttp, the parser of Node itself, in the WebAssembly build that undici
 * ships and reads every answer with. Nothing of its leniency is switched on.
 */
import wasm from 'undici/lib/llhttp/llhttp_simd-wasm.js'

/**
 * Told what was found, in the order in which it came. A false, or `refused`, ends the parsing. Within these calls
 * no parser may be given bytes: all read through one window.
 */
export interface MessageReceiver {
  onMessageBegin(): boolean
  onHead(head: Head): 'body' | 'no body' | 'refused'
  onBody(part: Buffer): boolean
  /** `isReusable`: another message may follow on the connection. */
  onMessageComplete(trailers: readonly string[], isReusable: boolean): boolean
}

export interface Head {
  /** 0 for a request. */
  readonly status: number
  /** Empty for an answer. */
  readonly target: string
  /** Names and values in turn, as they came; Latin-1, which keeps every byte. */
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
/** What a socket hands over at a time, at most. */
const WINDOW_BYTES = 65_536

/** Whose bytes are read just now: llhttp calls back while it reads, and only then. */
const reading = {} as { parser: HttpParser }

const llhttp = new WebAssembly.Instance(new WebAssembly.Module(wasm), {
  env: {
    wasm_on_message_begin: () => reading.parser.began(),
    wasm_on_url: (_: number, at: number, length: number) =>
      reading.parser.found(TARGET, at, length),
    wasm_on_status: () => OK,
    wasm_on_header_field: (_: number, at: number, length: number) =>
      reading.parser.found(NAME, at, length),
    wasm_on_header_value: (_: number, at: number, length: number) =>
      reading.parser.found(VALUE, at, length),
    wasm_on_headers_complete: (_: number, status: number, upgrade: number) =>
      reading.parser.headEnded(status, upgrade === 1),
    wasm_on_body: (_: number, at: number, length: number) => reading.parser.bodyCame(at, length),
    wasm_on_message_complete: () => reading.parser.completed(),
  },
}).exports as Llhttp

// All parsers read through one window, as each reads what it is given at once.
const windowAt = llhttp.malloc(WINDOW_BYTES)
let window = new Uint8Array(llhttp.memory.buffer, windowAt, WINDOW_BYTES)

/** Reads the messages of one connection; must be {@link free}d. */
export class HttpParser {
  readonly #receiver: MessageReceiver
  readonly #longestHead: number
  #parser: number
  #chunk: Buffer = Buffer.alloc(0)
  /** Parts of the head within the chunk that are no strings yet: what, from, to. */
  #parts: number[] = []
  #headBytes = 0
  #target = ''
  #headers: string[] = []

  constructor(type: keyof typeof TYPES, receiver: MessageReceiver, longestHead: number) {
    this.#parser = llhttp.llhttp_alloc(TYPES[type])
    this.#receiver = receiver
    this.#longestHead = longestHead
  }

  /** Reads on. False when it is no HTTP, or the receiver wants no more; nothing can be read after that. */
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
    // Memory that has grown is another buffer.
    if (window.length === 0) window = new Uint8Array(llhttp.memory.buffer, windowAt, WINDOW_BYTES)
    window.set(bytes)
    reading.parser = this
    this.#chunk = bytes
    if (llhttp.llhttp_execute(this.#parser, windowAt, bytes.length) !== OK) return false
    this.#keepParts()
    return true
  }

  /** The connection has ended. False when that was within a message. */
  finish(): boolean {
    reading.parser = this
    return llhttp.llhttp_finish(this.#parser) === OK
  }

  /** Forgets what was begun: the next bytes are those of a new message. */
  reset(): void {
    llhttp.llhttp_reset(this.#parser)
    this.#parts = []
  }

  free(): void {
    llhttp.llhttp_free(this.#parser)
    this.#parser = 0
  }

  /** Of the message that {@link MessageReceiver.onHead} tells of. */
  get isHttp11(): boolean {
    return (
      llhttp.llhttp_get_http_major(this.#parser) === 1 &&
      llhttp.llhttp_get_http_minor(this.#parser) === 1
    )
  }

  /** @internal llhttp's own calls follow. */
  began(): number {
    this.#headBytes = 0
    this.#target = ''
    this.#headers = []
    return this.#receiver.onMessageBegin() ? OK : FAILED
  }

  found(what: number, at: number, length: number): number {
    this.#headBytes += length
    if (this.#headBytes > this.#longestHead) return FAILED
    this.#parts.push(what, at - windowAt, at - windowAt + length)
    return OK
  }

  headEnded(status: number, isUpgrade: boolean): number {
    this.#keepParts()
    trimValues(this.#headers)
    const head = { status, target: this.#target, headers: this.#headers, isUpgrade }
    this.#headers = []
    const wanted = this.#receiver.onHead(head)
    return wanted === 'refused' ? FAILED : wanted === 'no body' ? SKIP_BODY : OK
  }

  bodyCame(at: number, length: number): number {
    const from = at - windowAt
    return this.#receiver.onBody(this.#chunk.subarray(from, from + length)) ? OK : FAILED
  }

  completed(): number {
    this.#keepParts()
    trimValues(this.#headers)
    const isReusable = llhttp.llhttp_should_keep_alive(this.#parser) === 1
    return this.#receiver.onMessageComplete(this.#headers, isReusable) ? OK : FAILED
  }

  // One decoding for the whole head, and slices of it: a decoding of each part costs more than reading it.
  #keepParts(): void {
    const parts = this.#parts
    if (parts.length === 0) return
    const from = parts[1] ?? 0
    const text = this.#chunk.toString('latin1', from, parts.at(-1))
    const headers = this.#headers
    for (let i = 0; i < parts.length; i += 3) {
      const what = parts[i]
      const part = text.slice((parts[i + 1] ?? 0) - from, (parts[i + 2] ?? 0) - from)
      // What is cut by the end of a chunk goes on in the next one.
      if (what === TARGET) this.#target += part
      else if ((headers.length % 2 === 0) === (what === NAME)) headers.push(part)
      else headers[headers.length - 1] += part
    }
    parts.length = 0
  }
}

/** RFC 9112 §5.1: white space around a value is none of it; llhttp skips what stands before. */
function trimValues(headers: string[]): void {
  for (let i = 1; i < headers.length; i += 2) {
    const value = headers[i] ?? ''
    const last = value.charCodeAt(value.length - 1)
    if (last === 32 || last === 9) headers[i] = value.replace(/[ \t]+$/, '')
  }
}
