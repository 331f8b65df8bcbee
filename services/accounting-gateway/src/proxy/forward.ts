/**
 * One call of a company, from the caller to the accounting API and back.
 *
 * I1  Every attempt has a permit of its realm and the token of its realm; the permit ends with the attempt.
 * I2  The caller gets one answer: upstream's as it came, or a problem of ours; never parts of two.
 * I3  Nothing outlives the caller, and no answer begins after the deadline.
 */
import { IntegrationError } from '@integration-host/shared/errors'
import type { HttpFailure } from '@integration-host/shared/http/client/exchange'
import { type HeaderList, headerValue } from '@integration-host/shared/http/client/header-list'
import type { AccessToken, AccessTokens } from '../realm/access-token.ts'
import type { GatewayLimits, Permit } from '../realm/throttle.ts'
import { Attempt, type Ending } from './attempt.ts'
import type { CallerRequest, CallerResponse } from './caller.ts'
import { requestHeaders } from './headers.ts'
import type { RequestBody } from './request-body.ts'
import type { CallersPost, MarkedPost } from './repeatable-post.ts'
import { afterFailure, afterStatus, coolDownMs, isIdempotent, type Tries } from './retry.ts'
import { type CompanyTarget, isBatch, type UpstreamBase } from './target.ts'
import type { Upstream } from './upstream.ts'

export interface Call {
  readonly request: CallerRequest
  readonly response: CallerResponse
  readonly body: RequestBody | null
  readonly target: CompanyTarget
  /** Returned to the caller and written to the log, to find one by the other. */
  readonly requestId: string
}

/** What became of a call, for the log and the figures. */
export interface Outcome {
  /** What upstream answered last; null when it has not. */
  readonly status: number | null
  /** To be told to the caller; null when the caller has its answer, or has gone. */
  readonly error: IntegrationError | null
  readonly isAbandoned: boolean
  /** The answer broke off half-way. */
  readonly isCut: boolean
  readonly attempts: number
  /** Milliseconds spent waiting for a permit, a token or the next try. */
  readonly waitedMs: number
  /** Milliseconds upstream took until its answers began. */
  readonly upstreamMs: number
  /** `intuit_tid` of the last answer: what the provider's support asks for. */
  readonly traceId: string | null
}

export interface ForwardDeps {
  readonly tokens: AccessTokens
  readonly limits: GatewayLimits
  /** The accounting API. @throws {IntegrationError} while it is not known where it is. */
  readonly upstream: () => { readonly base: UpstreamBase; readonly api: Upstream }
  readonly deadlineMs: number
  readonly longestBody: number
  /** How long a realm rests after a 429 that does not say. */
  readonly holdMs: number
  /** Epoch ms. */
  readonly now: () => number
  /** In [0, 1). */
  readonly random: () => number
  readonly markPost: (post: CallersPost) => MarkedPost
  readonly onRetry?: (reason: 'status' | 'failure' | 'unauthorized') => void
  readonly onHold?: () => void
}

export type Forward = (call: Call) => Passage

export const createForward =
  (deps: ForwardDeps): Forward =>
  (call) =>
    new Passage(deps, call)

/** A call on its way. */
export class Passage {
  readonly outcome: Promise<Outcome>
  /** The idempotency key that a POST without one was given; `null` for any other call. */
  readonly addedKey: string | null
  readonly #deps: ForwardDeps
  readonly #call: Call
  readonly #body: RequestBody | null
  readonly #path: string
  readonly #addedHeaders: readonly string[]
  readonly #isRepeatable: boolean
  readonly #startedAt = performance.now()
  readonly #deadline: NodeJS.Timeout
  #until: number
  #interruption: Error | null = null
  /** Ends the wait that the call is in. */
  #stopWaiting: ((error: Error) => void) | null = null
  #controller: AbortController | null = null
  #attempt: Attempt | null = null
  #isReadingBody = false
  #attempts = 0
  #sentAt = 0
  #retries = 0
  #hasReplayed = false
  #status: number | null = null
  #traceId: string | null = null
  #waitedMs = 0
  #upstreamMs = 0

  constructor(deps: ForwardDeps, call: Call) {
    this.#deps = deps
    this.#call = call
    const { request, response, body, target } = call
    const method = request.method ?? 'GET'
    const post =
      method === 'POST' ? deps.markPost({ path: target.path, headers: request.headers }) : null
    this.addedKey = post?.addedKey ?? null
    this.#path = post?.path ?? target.path
    this.#addedHeaders = post?.headers ?? []
    this.#isRepeatable = post?.isRepeatable ?? isIdempotent(method)
    this.#body = body
    this.#until = deps.now() + deps.deadlineMs
    this.#deadline = setTimeout(() => this.interrupt(this.#lateness()), deps.deadlineMs)
    response.once('close', () => {
      if (!response.writableFinished) this.interrupt(new CallerGone())
    })
    this.outcome = this.#run()
  }

  /** Ends the call: with `error` for the caller unless its answer has begun. */
  interrupt(error: Error): void {
    if (this.#interruption !== null) return
    this.#interruption = error
    this.#attempt?.interrupt()
    this.#controller?.abort(error)
    this.#stopWaiting?.(error)
  }

  /** Lets go of a call that only waits: the service is leaving, another replica can have it. */
  leave(): void {
    if (this.#attempt !== null || this.#isReadingBody) return
    this.interrupt(
      new IntegrationError('shutting_down', 'the gateway is leaving', { retryAfterSeconds: 1 }),
    )
  }

  async #run(): Promise<Outcome> {
    let error: Error | null = null
    let isCut = false
    try {
      const ending = await this.#travel()
      isCut = ending.kind === 'cut'
    } catch (thrown) {
      error = thrown instanceof Error ? thrown : new TypeError('not an error')
    }
    clearTimeout(this.#deadline)
    if (this.#body !== null && !this.#call.request.complete) void this.#body.discard()
    const isAbandoned = error instanceof CallerGone
    const { response } = this.#call
    if (error !== null && response.headersSent && !response.writableEnded) {
      response.destroy() // I2
      isCut = true
    }
    return {
      status: this.#status,
      error:
        error === null || isAbandoned || response.headersSent
          ? null
          : error instanceof IntegrationError
            ? error
            : new IntegrationError('internal_error', 'the call could not be forwarded', {
                cause: error,
              }),
      isAbandoned,
      isCut,
      attempts: this.#attempts,
      waitedMs: this.#waitedMs,
      upstreamMs: this.#upstreamMs,
      traceId: this.#traceId,
    }
  }

  async #travel(): Promise<Ending> {
    const { tokens } = this.#deps
    const { realm } = this.#call.target
    this.#deps.upstream()
    if ((this.#body?.length ?? 0) > this.#deps.longestBody) throw this.#tooLong()
    for (;;) {
      // First of all: who has no credential waits for nothing.
      let token = tokens.cached(realm) ?? (await this.#wait(tokens.get(realm)))
      const body = this.#body === null ? null : await this.#openBody(this.#body)
      const claimed = this.#acquire(realm)
      let permit: Permit
      if (claimed instanceof Promise) {
        permit = await this.#waitForPermit(claimed)
        token = tokens.cached(realm) ?? token
      } else permit = claimed
      let ending: Ending
      try {
        ending = await this.#try(token, body)
      } finally {
        permit.release()
        this.#attempt = null
      }
      switch (ending.kind) {
        case 'relayed':
        case 'cut':
          return ending
        case 'interrupted':
          throw this.#interruption ?? new CallerGone()
        case 'withheld':
          await this.#prepareNext(ending, token)
          break
        case 'failed':
          this.#upstreamMs += performance.now() - this.#sentAt
          await this.#afterFailure(ending.failure)
          break
      }
    }
  }

  // Hands on the attempt's own promise: every link more is time that each call pays.
  #try(token: AccessToken, body: Buffer | AsyncIterable<Buffer> | null): Promise<Ending> | Ending {
    if (this.#interruption !== null) return { kind: 'interrupted' }
    const { request, response } = this.#call
    const { base, api } = this.#deps.upstream()
    const path = base.pathPrefix + this.#path
    this.#sentAt = performance.now()
    const attempt = new Attempt({
      request,
      response,
      bearer: token.value,
      judge: (status, headers) => {
        this.#upstreamMs += performance.now() - this.#sentAt
        return this.#judge(status, headers, token)
      },
    })
    this.#attempts += 1
    this.#attempt = attempt
    const headers = requestHeaders(request.rawHeaders, token.value)
    if (this.#addedHeaders.length > 0) headers.push(...this.#addedHeaders)
    api.send({ method: request.method ?? 'GET', path, headers, body }, attempt)
    return attempt.ended
  }

  #judge(status: number, headers: HeaderList, token: AccessToken) {
    const { realm } = this.#call.target
    this.#status = status
    this.#traceId = headerValue(headers, 'intuit_tid')
    if (
      status === 401 &&
      !this.#hasReplayed &&
      this.#deps.tokens.isRenewable(realm, token.version)
    ) {
      if (this.#canSendAgain()) return { retryInMs: 0 }
      // Too late for this call; the next one finds a token that works.
      this.#deps.tokens.renewed(realm, token.version).catch(() => {})
    }
    let retryAfter = coolDownMs(headerValue(headers, 'retry-after'), this.#deps.now())
    const namesNoTime = status === 429 && retryAfter === null
    if (status === 429) {
      retryAfter ??= this.#deps.holdMs
      this.#deps.limits.calls.hold(realm, retryAfter)
      this.#deps.onHold?.()
    }
    const verdict = afterStatus(status, retryAfter, this.#tries())
    if (verdict.kind === 'retry') return { retryInMs: verdict.delayMs }
    clearTimeout(this.#deadline)
    const add = this.#ownHeaders()
    if (namesNoTime) add.push('Retry-After', String(Math.ceil(this.#deps.holdMs / 1_000)))
    return { add }
  }

  async #prepareNext(
    { status, delayMs }: Extract<Ending, { kind: 'withheld' }>,
    token: AccessToken,
  ): Promise<void> {
    if (status === 401) {
      this.#hasReplayed = true
      this.#deps.onRetry?.('unauthorized')
      await this.#wait(this.#deps.tokens.renewed(this.#call.target.realm, token.version))
      return
    }
    this.#retries += 1
    this.#deps.onRetry?.('status')
    await this.#sleep(delayMs)
  }

  async #afterFailure(failure: HttpFailure): Promise<void> {
    if (failure.kind === 'unsendable')
      throw new IntegrationError('invalid_request', 'the request cannot be sent as it is', {
        cause: failure,
      })
    const verdict = afterFailure(this.#tries())
    if (verdict.kind === 'pass') {
      throw failure.kind === 'timeout'
        ? new IntegrationError('upstream_timeout', 'no answer came in time', { cause: failure })
        : new IntegrationError('upstream_unreachable', 'no answer could be had', { cause: failure })
    }
    this.#retries += 1
    this.#deps.onRetry?.('failure')
    await this.#sleep(verdict.delayMs)
  }

  #tries(): Tries {
    return {
      canRepeat: this.#isRepeatable && this.#canSendAgain(),
      attempt: this.#retries + 1,
      remainingMs: this.#until - this.#deps.now(),
      random: this.#deps.random(),
    }
  }

  #canSendAgain(): boolean {
    return this.#body === null || this.#body.isReplayable
  }

  async #openBody(body: RequestBody): Promise<Buffer | AsyncIterable<Buffer>> {
    const opened = body.open((received) => this.#progress(received))
    if (!(opened instanceof Promise)) return opened
    this.#isReadingBody = true
    const whole = await this.#wait(opened)
    this.#isReadingBody = false
    return whole
  }

  // While the caller is still sending, the time does not run against upstream.
  #progress(received: number): void {
    if (received > this.#deps.longestBody) this.interrupt(this.#tooLong())
    this.#deadline.refresh()
    this.#until = this.#deps.now() + this.#deps.deadlineMs
  }

  #acquire(realm: string): Permit | Promise<Permit> {
    const { calls } = this.#deps.limits
    if (isBatch(this.#path)) return this.#acquireBatch(realm)
    return calls.acquire(realm, () => this.#patience())
  }

  // A batch waits for its own, rarer turn first: meanwhile it is in nobody's way.
  async #acquireBatch(realm: string): Promise<Permit> {
    const { calls, batches } = this.#deps.limits
    const batch = await batches.acquire(realm, () => this.#patience())
    try {
      const call = await calls.acquire(realm, () => this.#patience())
      return {
        release() {
          call.release()
          batch.release()
        },
      }
    } catch (error) {
      batch.release()
      throw error
    }
  }

  async #waitForPermit(claimed: Promise<Permit>): Promise<Permit> {
    try {
      return await this.#wait(claimed)
    } catch (error) {
      // A permit that comes after all belongs to nobody.
      claimed.then(
        (permit) => permit.release(),
        () => {},
      )
      throw error
    }
  }

  /** Waits unless the call is interrupted first; the time is not upstream's. */
  async #wait<T>(promise: Promise<T>): Promise<T> {
    const from = performance.now()
    try {
      const { promise: interrupted, reject } = Promise.withResolvers<never>()
      if (this.#interruption !== null) reject(this.#interruption)
      this.#stopWaiting = reject
      return await Promise.race([promise, interrupted])
    } finally {
      this.#stopWaiting = null
      this.#waitedMs += performance.now() - from
    }
  }

  async #sleep(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = setTimeout(resolve, ms)
    await this.#wait(promise).finally(() => clearTimeout(timer))
  }

  #patience() {
    this.#controller ??= new AbortController()
    if (this.#interruption !== null) this.#controller.abort(this.#interruption)
    return { until: this.#until, signal: this.#controller.signal }
  }

  #tooLong(): IntegrationError {
    const limit = this.#deps.longestBody
    return new IntegrationError('payload_too_large', `the body may have at most ${limit} bytes`)
  }

  #lateness(): IntegrationError {
    return this.#isReadingBody
      ? new IntegrationError('request_timeout', 'the body did not arrive in time')
      : new IntegrationError('upstream_timeout', 'no answer came before the deadline')
  }

  #ownHeaders(): string[] {
    const added = ['X-Request-Id', this.#call.requestId, 'Server-Timing', this.serverTiming()]
    if (this.addedKey !== null) added.push('X-RequestId', this.addedKey)
    return added
  }

  /** What of the time was the gateway's, what waiting, what upstream's (milliseconds; W3C Server Timing). */
  serverTiming(): string {
    const ownMs = Math.max(
      0,
      performance.now() - this.#startedAt - this.#waitedMs - this.#upstreamMs,
    )
    return `gateway;dur=${ownMs.toFixed(2)}, wait;dur=${this.#waitedMs.toFixed(2)}, upstream;dur=${this.#upstreamMs.toFixed(2)}`
  }
}

class CallerGone extends Error {
  override readonly name = 'CallerGone'
}
