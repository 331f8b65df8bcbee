import { type Flow, HttpFailure, type Receiver } from '@integration-host/fast-http/exchange'
import {
  type HeaderList,
  headerPairs,
  headerValue,
} from '@integration-host/shared/http/header-list'
import type { CallerRequest, CallerResponse } from './call-types.ts'
import { responseHeaders } from './headers.ts'

/** The result of one attempt to send a call upstream. */
export type AttemptResult =
  /** The complete response was sent to the caller. `errorStart` is the beginning of the body of an error. */
  | { readonly kind: 'relayed'; readonly status: number; readonly errorStart: Buffer | null }
  /** Upstream failed or was too slow after the response head had been sent. The caller gets a truncated response. */
  | { readonly kind: 'cut'; readonly status: number }
  /** Upstream's response was discarded, because the call is to be repeated after `delayMs`. */
  | { readonly kind: 'withheld'; readonly status: number; readonly delayMs: number }
  /** Upstream sent no response, or a response that is not valid HTTP. Nothing has been sent to the caller. */
  | { readonly kind: 'failed'; readonly failure: HttpFailure }
  /** {@link Attempt.interrupt} was called before the attempt ended. */
  | { readonly kind: 'interrupted' }

export interface AttemptDeps {
  readonly request: CallerRequest
  readonly response: CallerResponse
  readonly bearer: string
  /**
   * Decides by status and headers whether the response is relayed or discarded. Returns the headers to add to a relayed
   * response, or the milliseconds until the next attempt if the response is discarded.
   */
  readonly judge: (
    status: number,
    headers: HeaderList,
  ) => { readonly add: HeaderList } | { readonly retryInMs: number }
}

/**
 * Maximum number of informational responses per request. They are written without backpressure, so an unlimited number
 * could fill the memory if the caller does not read.
 */
const MAX_INFORMATIONAL = 100
/**
 * The body of a discarded response is read up to this size, so that the connection to upstream can be reused. If the
 * body is longer, the connection is closed.
 */
const MAX_DISCARDED_BYTES = 65_536
/** How much of the body of an error is kept until the call has ended. */
const MAX_ERROR_BYTES = 8_192
/** A caller that does not read its response for this time is disconnected. */
const STALL_TIMEOUT_MS = 60_000
/**
 * After the call's deadline, a response must deliver `MIN_BYTES_PER_CHECK` body bytes in each interval of
 * `RATE_CHECK_MS`. This is 1 KiB per second; legitimate large downloads are far faster. Without this limit, a body of
 * one byte per minute would never end.
 */
const RATE_CHECK_MS = 60_000
const MIN_BYTES_PER_CHECK = 61_440

/**
 * Sends one request upstream and relays the response while it arrives. Reads from upstream only as fast as the caller
 * reads.
 */
export class Attempt implements Receiver {
  readonly ended: Promise<AttemptResult>
  readonly #deps: AttemptDeps
  readonly #resolve: (result: AttemptResult) => void
  /** The attempt's result; `null` while the attempt is in flight. */
  #result: AttemptResult | null = null
  #flow: Flow | null = null
  #status = 0
  #head: string[] | null = null
  /** The `Content-Length` of upstream's response; -1 if the response has no such header. */
  #contentLength = -1
  /** The first part of the body, if the status is 400 or above. It is kept for the list of failed calls. */
  #errorStart: Buffer | null = null
  #withheld: { readonly status: number; readonly delayMs: number } | null = null
  #discardedBytes = 0
  #informationalCount = 0
  #isWaitingForDrain = false
  /** Number of body bytes received from upstream since the last rate check. */
  #receivedBytes = 0
  /**
   * True if reading from upstream was paused since the last rate check, because the caller did not read fast enough.
   */
  #wasPaused = false
  #rateCheck: NodeJS.Timeout | null = null

  constructor(deps: AttemptDeps) {
    this.#deps = deps
    const { promise, resolve } = Promise.withResolvers<AttemptResult>()
    this.ended = promise
    this.#resolve = resolve
  }

  /** Aborts the attempt. Sends nothing more to the caller and closes the connection to upstream. */
  interrupt(): void {
    this.#end({ kind: 'interrupted' })
    this.#flow?.abort()
  }

  /**
   * From now on, truncates the response if upstream sends less than 1 KiB per second. Intervals in which the caller
   * read too slowly are not checked, because a slow caller is not upstream's fault.
   */
  requireMinimumRate(): void {
    if (this.#result !== null || this.#rateCheck !== null) return
    this.#receivedBytes = 0
    this.#wasPaused = this.#isWaitingForDrain
    this.#rateCheck = setInterval(() => {
      if (this.#receivedBytes < MIN_BYTES_PER_CHECK && !this.#wasPaused) {
        this.#cut()
        this.#flow?.abort()
      }
      this.#receivedBytes = 0
      this.#wasPaused = this.#isWaitingForDrain
    }, RATE_CHECK_MS)
  }

  onStart(flow: Flow): void {
    this.#flow = flow
    if (this.#result !== null) flow.abort()
  }

  onInformation(status: number, headers: HeaderList): void {
    if (this.#result !== null) return
    this.#informationalCount += 1
    if (this.#informationalCount > MAX_INFORMATIONAL) return this.#failAsInvalid()
    const { request, response, bearer } = this.#deps
    // RFC 9110 §15.2: a proxy forwards 1xx responses, but not to an HTTP/1.0 client. `socket` is null while an earlier
    // response on the connection is incomplete. In that state Node would write the 1xx response into the body of the
    // earlier response.
    if (response.headersSent || request.httpVersion === '1.0' || response.socket === null) return
    try {
      response.writeInformation(status, responseHeaders(headers, bearer, status))
    } catch {
      // Node throws if a header is not allowed in HTTP. The gateway then drops the 1xx response, because forwarding it
      // is optional.
    }
  }

  onHeaders(status: number, headers: HeaderList): void {
    if (this.#result !== null) return
    this.#status = status
    const judgement = this.#deps.judge(status, headers)
    if ('retryInMs' in judgement) {
      this.#withheld = { status, delayMs: judgement.retryInMs }
      return
    }
    this.#head = responseHeaders(headers, this.#deps.bearer, status, judgement.add)
    this.#contentLength = Number(headerValue(headers, 'content-length') ?? -1)
  }

  onData(chunk: Buffer): void {
    if (this.#result !== null) return
    if (this.#withheld !== null) {
      this.#discardedBytes += chunk.length
      if (this.#discardedBytes <= MAX_DISCARDED_BYTES) return
      this.#end({ kind: 'withheld', ...this.#withheld })
      this.#flow?.abort()
      return
    }
    this.#receivedBytes += chunk.length
    if (this.#status >= 400)
      // A copy, because the chunk may be a part of a large buffer.
      this.#errorStart ??= Buffer.from(chunk.subarray(0, MAX_ERROR_BYTES))
    const { response } = this.#deps
    if (!response.headersSent) {
      if (!this.#sendHead()) return
      if (chunk.length === this.#contentLength) {
        response.end(chunk)
        return
      }
    }
    if (!response.write(chunk)) this.#waitForDrain()
  }

  // Called after each read of upstream's socket. `onHeaders` keeps the response head back, so that a response that
  // arrives in one read is sent in one write. If the read contained no part of the body, the head is sent here.
  onCaughtUp(): void {
    if (this.#result !== null || this.#head === null) return
    const { response } = this.#deps
    if (!response.headersSent && this.#sendHead()) response.flushHeaders()
  }

  onEnd(trailers: HeaderList): void {
    if (this.#result !== null) return
    if (this.#withheld !== null) return this.#end({ kind: 'withheld', ...this.#withheld })
    const { response, bearer } = this.#deps
    if (!response.headersSent && !this.#sendHead()) return
    if (trailers.length > 0 && !response.writableEnded)
      response.addTrailers(headerPairs(responseHeaders(trailers, bearer)))
    if (!response.writableEnded) response.end()
    this.#end({ kind: 'relayed', status: this.#status, errorStart: this.#errorStart })
  }

  onFailure(failure: HttpFailure): void {
    if (this.#result !== null) return
    if (this.#withheld !== null) return this.#end({ kind: 'withheld', ...this.#withheld })
    if (!this.#deps.response.headersSent) return this.#end({ kind: 'failed', failure })
    this.#cut()
  }

  // Once the response head was sent, closing the connection is the only way to mark the response as incomplete (RFC
  // 9112 §8).
  #cut(): void {
    this.#deps.response.destroy()
    this.#end({ kind: 'cut', status: this.#status })
  }

  #sendHead(): boolean {
    try {
      this.#deps.response.writeHead(this.#status, this.#head ?? [])
      return true
    } catch (cause) {
      this.#failAsInvalid(cause) // thrown for a status or header that HTTP does not allow
      return false
    }
  }

  /**
   * Ends the attempt because upstream's response is not valid HTTP. The result is the same as if there were no
   * response.
   */
  #failAsInvalid(cause?: unknown): void {
    this.#end({ kind: 'failed', failure: new HttpFailure('unreachable', { cause }) })
    this.#flow?.abort()
  }

  /** Backpressure: stops reading from upstream until the caller has read the bytes written so far. */
  #waitForDrain(): void {
    if (this.#isWaitingForDrain) return
    this.#isWaitingForDrain = true
    this.#wasPaused = true
    const { response } = this.#deps
    this.#flow?.pause()
    const stallTimer = setTimeout(() => response.destroy(), STALL_TIMEOUT_MS)
    const resume = (): void => {
      clearTimeout(stallTimer)
      response.off('drain', resume)
      response.off('close', resume)
      this.#isWaitingForDrain = false
      this.#flow?.resume()
    }
    response.on('drain', resume)
    response.on('close', resume)
  }

  #end(result: AttemptResult): void {
    if (this.#result !== null) return
    this.#result = result
    if (this.#rateCheck !== null) clearInterval(this.#rateCheck)
    this.#resolve(result)
  }
}
