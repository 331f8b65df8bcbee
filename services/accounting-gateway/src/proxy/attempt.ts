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
export type Ending =
  /** The answer went to the caller, whole. */
  | { readonly kind: 'relayed'; readonly status: number }
  /** The answer had begun to go to the caller when upstream broke off; the caller sees it cut. */
  | { readonly kind: 'cut'; readonly status: number }
  /** The answer was kept from the caller, for another attempt. */
  | { readonly kind: 'withheld'; readonly status: number; readonly delayMs: number }
  | { readonly kind: 'failed'; readonly failure: HttpFailure }
  /** {@link Attempt.interrupt} came first. */
  | { readonly kind: 'interrupted' }

export interface AttemptDeps {
  readonly request: CallerRequest
  readonly response: CallerResponse
  readonly bearer: string
  /**
   * Judges the answer by its head: headers to add when it may go to the caller, or the milliseconds after
   * which another attempt follows.
   */
  readonly judge: (
    status: number,
    headers: HeaderList,
  ) => { readonly add: HeaderList } | { readonly retryInMs: number }
}

/** More answers before the answer are not meant to inform: a caller that reads none would have them all kept. */
const MOST_INFORMATION = 100
/** More of an answer that nobody will see is not read; the connection is given up instead. */
const DISCARDED_BYTES = 65_536
/** A caller that takes nothing for so long is gone. */
const STALL_MS = 60_000

/** One request upstream and its answer on the way to the caller: bytes as they come, at the caller's pace. */
export class Attempt implements Receiver {
  readonly ended: Promise<Ending>
  readonly #deps: AttemptDeps
  readonly #settle: (ending: Ending) => void
  #ending: Ending | null = null
  #flow: Flow | null = null
  #status = 0
  #head: string[] | null = null
  #length = -1
  #withheld: { readonly status: number; readonly delayMs: number } | null = null
  #discarded = 0
  #informed = 0
  #isWaitingForDrain = false

  constructor(deps: AttemptDeps) {
    this.#deps = deps
    const { promise, resolve } = Promise.withResolvers<Ending>()
    this.ended = promise
    this.#settle = resolve
  }

  /** Gives the attempt up: nothing more reaches the caller, and upstream's connection is closed. */
  interrupt(): void {
    this.#end({ kind: 'interrupted' })
    this.#flow?.abort()
  }

  onStart(flow: Flow): void {
    this.#flow = flow
    if (this.#ending !== null) flow.abort()
  }

  onInformation(status: number, headers: HeaderList): void {
    if (this.#ending !== null) return
    this.#informed += 1
    if (this.#informed > MOST_INFORMATION) return this.#refuse()
    const { request, response, bearer } = this.#deps
    // RFC 9110 §15.2: to be passed on, but a caller of HTTP/1.0 would take it for the answer.
    // Before its turn Node would write it behind the head, as if it were body.
    if (response.headersSent || request.httpVersion === '1.0' || response.socket === null) return
    try {
      response.writeInformation(status, responseHeaders(headers, bearer))
    } catch {
      // A header that HTTP does not allow: what was only a hint need not arrive.
    }
  }

  onHeaders(status: number, headers: HeaderList): void {
    if (this.#ending !== null) return
    this.#status = status
    const judged = this.#deps.judge(status, headers)
    if ('retryInMs' in judged) {
      this.#withheld = { status, delayMs: judged.retryInMs }
      return
    }
    this.#head = responseHeaders(headers, this.#deps.bearer)
    this.#head.push(...judged.add)
    this.#length = Number(headerValue(headers, 'content-length') ?? -1)
  }

  onData(chunk: Buffer): void {
    if (this.#ending !== null) return
    if (this.#withheld !== null) {
      this.#discarded += chunk.length
      if (this.#discarded <= DISCARDED_BYTES) return
      this.#end({ kind: 'withheld', ...this.#withheld })
      this.#flow?.abort()
      return
    }
    const { response } = this.#deps
    if (!response.headersSent) {
      if (!this.#sendHead()) return
      if (chunk.length === this.#length) {
        response.end(chunk)
        return
      }
    }
    if (!response.write(chunk)) this.#waitForDrain()
  }

  // A short answer comes in one piece and leaves in one write; of a slow one the head goes ahead.
  onCaughtUp(): void {
    if (this.#ending !== null || this.#head === null) return
    const { response } = this.#deps
    if (!response.headersSent && this.#sendHead()) response.flushHeaders()
  }

  onEnd(trailers: HeaderList): void {
    if (this.#ending !== null) return
    if (this.#withheld !== null) return this.#end({ kind: 'withheld', ...this.#withheld })
    const { response, bearer } = this.#deps
    if (!response.headersSent && !this.#sendHead()) return
    if (trailers.length > 0 && !response.writableEnded)
      response.addTrailers(headerPairs(responseHeaders(trailers, bearer)))
    if (!response.writableEnded) response.end()
    this.#end({ kind: 'relayed', status: this.#status })
  }

  onFailure(failure: HttpFailure): void {
    if (this.#ending !== null) return
    if (this.#withheld !== null) return this.#end({ kind: 'withheld', ...this.#withheld })
    const { response } = this.#deps
    if (!response.headersSent) return this.#end({ kind: 'failed', failure })
    response.destroy() // the only way left to say that this is not all of it
    this.#end({ kind: 'cut', status: this.#status })
  }

  #sendHead(): boolean {
    try {
      this.#deps.response.writeHead(this.#status, this.#head ?? [])
      return true
    } catch (cause) {
      this.#refuse(cause) // a status or header that HTTP does not allow
      return false
    }
  }

  /** Treats an answer that is not HTTP as none. */
  #refuse(cause?: unknown): void {
    this.#end({ kind: 'failed', failure: new HttpFailure('unreachable', { cause }) })
    this.#flow?.abort()
  }

  #waitForDrain(): void {
    if (this.#isWaitingForDrain) return
    this.#isWaitingForDrain = true
    const { response } = this.#deps
    this.#flow?.pause()
    const stalled = setTimeout(() => response.destroy(), STALL_MS)
    const go = (): void => {
      clearTimeout(stalled)
      response.off('drain', go)
      response.off('close', go)
      this.#isWaitingForDrain = false
      this.#flow?.resume()
    }
    response.on('drain', go)
    response.on('close', go)
  }

  #end(ending: Ending): void {
    if (this.#ending !== null) return
    this.#ending = ending
    this.#settle(ending)
  }
}
