import {
  type Flow,
  HttpFailure,
  type Receiver,
} from '@integration-host/shared/http/client/exchange'
import {
  type HeaderList,
  headerPairs,
  headerValue,
} from '@integration-host/shared/http/client/header-list'
import type { CallerRequest, CallerResponse } from './caller.ts'
import { responseHeaders } from './headers.ts'

/** How one attempt ended. */
export type AttemptResult =
  /** The complete response was sent to the caller. */
  | { readonly kind: 'relayed'; readonly status: number }
  /** Upstream failed or was too slow after the head had been sent to the caller, who gets a truncated response. */
  | { readonly kind: 'cut'; readonly status: number }
  /** The response was discarded, because another attempt follows after `delayMs`. */
  | { readonly kind: 'withheld'; readonly status: number; readonly delayMs: number }
  /** There was no response, or none that is valid HTTP; the caller has not been sent anything. */
  | { readonly kind: 'failed'; readonly failure: HttpFailure }
  /** {@link Attempt.interrupt} was called first. */
  | { readonly kind: 'interrupted' }

export interface AttemptDeps {
  readonly request: CallerRequest
  readonly response: CallerResponse
  readonly bearer: string
  /**
   * Decides by status and headers what becomes of the response. Returns the headers to add if it is relayed, or
   * the milliseconds after which another attempt follows.
   */
  readonly judge: (
    status: number,
    headers: HeaderList,
  ) => { readonly add: HeaderList } | { readonly retryInMs: number }
}

/** Limit of informational responses per request. If the caller does not read, they are buffered without backpressure. */
const MAX_INFORMATIONAL = 100
/** A discarded body up to this size is read so that its connection can be reused; for a longer one it is closed. */
const MAX_DISCARDED_BYTES = 65_536
/** A caller that reads nothing of its response for so long is disconnected. */
const STALL_TIMEOUT_MS = 60_000
/**
 * After the call's deadline a response must deliver this many bytes of its body in each interval, that is, 1 KiB per
 * second. Legitimate large downloads are far faster, while a body of one byte per minute would never end.
 */
const RATE_CHECK_MS = 60_000
const MIN_BYTES_PER_CHECK = 61_440

/** Sends one request upstream and relays its response as it arrives, at the speed at which the caller reads. */
export class Attempt implements Receiver {
  readonly ended: Promise<AttemptResult>
  readonly #deps: AttemptDeps
  readonly #resolve: (result: AttemptResult) => void
  /** `null` while the attempt is in flight. */
  #result: AttemptResult | null = null
  #flow: Flow | null = null
  #status = 0
  #head: string[] | null = null
  /** The response's `Content-Length`; -1 if it has none. */
  #contentLength = -1
  #withheld: { readonly status: number; readonly delayMs: number } | null = null
  #discardedBytes = 0
  #informationalCount = 0
  #isWaitingForDrain = false
  /** Bytes of the body since the last rate check. */
  #receivedBytes = 0
  /** The caller did not read fast enough at some moment since the last rate check. */
  #wasPaused = false
  #rateCheck: NodeJS.Timeout | null = null

  constructor(deps: AttemptDeps) {
    this.#deps = deps
    const { promise, resolve } = Promise.withResolvers<AttemptResult>()
    this.ended = promise
    this.#resolve = resolve
  }

  /** Aborts the attempt: nothing more is sent to the caller, and the connection to upstream is closed. */
  interrupt(): void {
    this.#end({ kind: 'interrupted' })
    this.#flow?.abort()
  }

  /**
   * From now on cuts the response if it arrives at less than 1 KiB per second. A caller that reads slowly is not the
   * fault of upstream, so intervals with backpressure are not checked.
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
    // response on the connection is incomplete; Node would then write the 1xx response into that one's body.
    if (response.headersSent || request.httpVersion === '1.0' || response.socket === null) return
    try {
      response.writeInformation(status, responseHeaders(headers, bearer))
    } catch {
      // Node throws for a header that HTTP does not allow. Relaying a 1xx response is optional, so it is dropped.
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
    this.#head = responseHeaders(headers, this.#deps.bearer)
    this.#head.push(...judgement.add)
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

  // Called after each read of upstream's socket. `onHeaders` does not send the head, so that a response that arrives
  // in one read is sent in one write. If no part of the body has arrived by now, the head is sent without it.
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
    this.#end({ kind: 'relayed', status: this.#status })
  }

  onFailure(failure: HttpFailure): void {
    if (this.#result !== null) return
    if (this.#withheld !== null) return this.#end({ kind: 'withheld', ...this.#withheld })
    if (!this.#deps.response.headersSent) return this.#end({ kind: 'failed', failure })
    this.#cut()
  }

  // RFC 9112 §8: closing the connection is the only way to mark a response as incomplete after its head.
  #cut(): void {
    this.#deps.response.destroy()
    this.#end({ kind: 'cut', status: this.#status })
  }

  #sendHead(): boolean {
    try {
      this.#deps.response.writeHead(this.#status, this.#head ?? [])
      return true
    } catch (cause) {
      this.#failAsInvalid(cause) // a status or header that HTTP does not allow
      return false
    }
  }

  /** Treats a response that is not valid HTTP as no response. */
  #failAsInvalid(cause?: unknown): void {
    this.#end({ kind: 'failed', failure: new HttpFailure('unreachable', { cause }) })
    this.#flow?.abort()
  }

  /** Backpressure: reads nothing more from upstream until the caller has read what was written. */
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
