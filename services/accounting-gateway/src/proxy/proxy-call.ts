/**
 * Forwards one call from the caller to the accounting API, and relays the response to the caller.
 *
 * The attempt loop obtains a token, the caller's body and a permit, and sends one attempt. Then it relays the response
 * or begins the next attempt. {@link Phase} is the current state of this loop. The phase determines what has to be
 * stopped when the call is interrupted by the deadline, by a caller that closes its connection, or by shutdown.
 *
 * I1  Every attempt is sent with a permit and a token of its own realm. The permit is released when the attempt ends,
 *     and at the deadline at the latest. A download that continues after the deadline has no permit and must keep a
 *     minimum rate, so a response that never ends cannot block its realm.
 * I2  The caller gets exactly one response: either the unchanged response of the accounting API or a problem document
 *     of the gateway, and never parts of both.
 * I3  The call ends when the caller's connection closes. No response begins after the deadline.
 */
import { IntegrationError } from '@integration-host/shared/errors'
import type { HttpFailure, HttpRequest } from '@integration-host/fast-http/exchange'
import { type HeaderList, headerValue } from '@integration-host/shared/http/header-list'
import type { AccessToken, TokenCache } from '../realm/token-cache.ts'
import { acquirePermit, type GatewayLimits, type Permit } from '../realm/throttle.ts'
import { Attempt, type AttemptResult } from './attempt.ts'
import {
  CallerGone,
  reportable,
  upstreamError,
  type CallResult,
  type CompanyCall,
  type Upstream,
} from './call-types.ts'
import { permitWaitMs, requestHeaders } from './headers.ts'
import type { CallersPost, MarkedPost } from './repeatable-post.ts'
import type { RequestBody } from './request-body.ts'
import { afterFailure, afterStatus, coolDownMs, isIdempotent, PASS, type Tries } from './retry.ts'
import { isBatch, type UpstreamBase } from './target.ts'

export interface ProxyCallDeps {
  readonly tokens: TokenCache
  readonly limits: GatewayLimits
  /** Returns the accounting API. @throws {IntegrationError} while the address of the accounting API is unknown. */
  readonly upstream: () => { readonly base: UpstreamBase; readonly api: Upstream }
  readonly deadlineMs: number
  readonly maxBodyBytes: number
  /** Length of a realm's cool-down after a 429 response without `Retry-After`, in ms. */
  readonly defaultCoolDownMs: number
  /** Returns the current time in epoch ms. */
  readonly now: () => number
  /** Returns a random number in [0, 1). */
  readonly random: () => number
  readonly markPost: (post: CallersPost) => MarkedPost
  readonly onRetry?: (reason: 'status' | 'failure' | 'unauthorized') => void
  readonly onCoolDown?: () => void
  /** Called when the accounting API has responded to a call with 2xx, even if the caller has already disconnected. */
  readonly onSuccess?: (call: CompanyCall) => void
}

type Phase =
  /** The call is between two other phases. Only synchronous code runs in this phase. */
  | { readonly kind: 'preparing' }
  /**
   * The call waits for a token, the caller's body, a permit or the end of a back-off. `stop` ends the wait with an
   * error.
   */
  | {
      readonly kind: 'waiting'
      readonly isReadingBody: boolean
      readonly stop: (error: Error) => void
    }
  /** A request is in flight upstream. Its response has not begun, or will be discarded. */
  | { readonly kind: 'attempting'; readonly attempt: Attempt; readonly permit: Permit }
  /** Upstream's response is being relayed to the caller. */
  | { readonly kind: 'relaying'; readonly attempt: Attempt; readonly permit: Permit }
  /** The call was interrupted. The attempt loop ends with `error` as soon as it continues. This phase is final. */
  | { readonly kind: 'interrupted'; readonly error: Error }

const PREPARING: Phase = { kind: 'preparing' }

const isInFlight = (phase: Phase): phase is Extract<Phase, { attempt: Attempt }> =>
  phase.kind === 'attempting' || phase.kind === 'relaying'

export class ProxyCall {
  readonly #deps: ProxyCallDeps
  readonly #call: CompanyCall
  /** Changed only for a batch: it is marked when its body has arrived. */
  #post: MarkedPost
  readonly #startedAt = performance.now()
  /** The deadline of the call; `at` is in epoch ms. Each received part of the caller's body moves the deadline. */
  readonly #deadline: { readonly timer: NodeJS.Timeout; at: number }
  readonly #stats = {
    attempts: 0,
    /**
     * Number of attempts that followed a failure or a transient status. A repetition after a 401 response is not
     * counted.
     */
    retries: 0,
    hasReplayedAfter401: false,
    waitedMs: 0,
    upstreamMs: 0,
    traceId: null as string | null,
  }
  #phase: Phase = PREPARING

  constructor(deps: ProxyCallDeps, call: CompanyCall) {
    this.#deps = deps
    this.#call = call
    const { request, response, target } = call
    const { method = 'GET' } = request
    this.#post =
      method === 'POST'
        ? deps.markPost({ path: target.path, headers: request.headers })
        : { path: target.path, headers: [], addedKey: null, isRepeatable: isIdempotent(method) }
    this.#deadline = {
      timer: setTimeout(() => this.#onDeadline(), deps.deadlineMs),
      at: deps.now() + deps.deadlineMs,
    }
    response.once('close', () => {
      if (!response.writableFinished) this.#interrupt(new CallerGone())
    })
  }

  /**
   * Runs the call. Must be called exactly once. Never rejects: an error that has to be sent to the caller is part of
   * the result.
   */
  async run(): Promise<CallResult> {
    const { request, response, body } = this.#call
    let error: Error | null = null
    let isCut = false
    let errorStart: Buffer | null = null
    try {
      const result = await this.#attemptLoop()
      isCut = result.kind === 'cut'
      if (result.kind === 'relayed') errorStart = result.errorStart
    } catch (thrown) {
      error = thrown instanceof Error ? thrown : new TypeError('not an error')
    }
    clearTimeout(this.#deadline.timer)
    if (body !== null && !request.complete) void body.discard()
    const isAbandoned = error instanceof CallerGone
    if (error !== null && response.headersSent && !response.writableEnded) {
      response.destroy() // The caller must not get parts of two responses (I2).
      isCut = true
    }
    const { attempts, waitedMs, upstreamMs, traceId } = this.#stats
    return {
      error: error === null || isAbandoned || response.headersSent ? null : reportable(error),
      isAbandoned,
      isCut,
      attempts,
      waitedMs,
      upstreamMs,
      traceId,
      errorStart,
    }
  }

  /**
   * Ends the call with the error `shutting_down` if the call waits for a token, a permit or the next attempt. The
   * caller can then send the call to another gateway replica.
   */
  rejectIfWaiting(): void {
    const phase = this.#phase
    if (isInFlight(phase) || (phase.kind === 'waiting' && phase.isReadingBody)) return
    this.#interrupt(
      new IntegrationError('shutting_down', 'the gateway is shutting down', {
        retryAfterSeconds: 1,
      }),
    )
  }

  /** Returns headers for a problem document: timings, and the ids by which the provider can recognize the call. */
  problemHeaders(): string[] {
    const headers = ['Server-Timing', this.#serverTiming()]
    if (this.#stats.traceId !== null) headers.push('intuit_tid', this.#stats.traceId)
    // If the caller repeats the call with this requestid, the provider does not execute the call a second time.
    if (this.#post.addedKey !== null) headers.push('X-RequestId', this.#post.addedKey)
    return headers
  }

  #interrupt(error: Error): void {
    const phase = this.#phase
    if (phase.kind === 'interrupted') return
    this.#phase = { kind: 'interrupted', error }
    if (isInFlight(phase)) phase.attempt.interrupt()
    if (phase.kind === 'waiting') phase.stop(error)
  }

  #onDeadline(): void {
    const phase = this.#phase
    if (phase.kind !== 'relaying') return this.#interrupt(this.#deadlineError())
    phase.permit.release()
    phase.attempt.requireMinimumRate()
  }

  get #interruption(): Error | null {
    return this.#phase.kind === 'interrupted' ? this.#phase.error : null
  }

  async #attemptLoop(): Promise<AttemptResult> {
    const { tokens, upstream, maxBodyBytes } = this.#deps
    const { realm } = this.#call.target
    upstream()
    if ((this.#call.body?.length ?? 0) > maxBodyBytes) throw this.#bodyTooLarge()
    for (;;) {
      // The token is obtained first, so that a call for a realm without a credential fails at once, without waiting for
      // a body or a permit.
      let token = tokens.cached(realm) ?? (await this.#wait(tokens.get(realm)))
      const opened = this.#call.body === null ? null : this.#openBody(this.#call.body)
      const body = opened instanceof Promise ? await opened : opened
      if (Array.isArray(body) && this.#stats.attempts === 0) this.#markBatch(body)
      const reserved = this.#acquirePermit(realm)
      let permit: Permit
      if (reserved instanceof Promise) {
        permit = await reserved
        token = tokens.cached(realm) ?? token
      } else permit = reserved
      const sentAt = performance.now()
      let result: AttemptResult
      try {
        result = await this.#send(token, permit, body, sentAt)
      } finally {
        permit.release()
        if (isInFlight(this.#phase)) this.#phase = PREPARING
      }
      switch (result.kind) {
        case 'relayed':
        case 'cut':
          return result
        case 'interrupted':
          throw this.#interruption ?? new CallerGone()
        case 'withheld':
          await this.#prepareRetry(result, token)
          break
        case 'failed':
          this.#stats.upstreamMs += performance.now() - sentAt
          await this.#retryAfterFailure(result.failure)
          break
      }
    }
  }

  /** Marks a batch by its body, which must have arrived completely and without a content coding. */
  #markBatch(body: readonly Buffer[]): void {
    const { request, target } = this.#call
    const { headers, method } = request
    if (method !== 'POST' || !isBatch(target.path) || headers['content-encoding'] !== undefined)
      return
    this.#post = this.#deps.markPost({ path: target.path, headers, body })
  }

  // This function is not `async`, because an async function would wrap the attempt's promise in a second promise, which
  // costs time in every call.
  #send(
    token: AccessToken,
    permit: Permit,
    body: HttpRequest['body'],
    sentAt: number,
  ): Promise<AttemptResult> | AttemptResult {
    if (this.#phase.kind === 'interrupted') return { kind: 'interrupted' }
    const { request, response } = this.#call
    const { base, api } = this.#deps.upstream()
    const attempt = new Attempt({
      request,
      response,
      bearer: token.value,
      judge: (status, headers) => {
        this.#stats.upstreamMs += performance.now() - sentAt
        return this.#judge(status, headers, token)
      },
    })
    this.#stats.attempts += 1
    this.#phase = { kind: 'attempting', attempt, permit }
    const headers = requestHeaders(request.rawHeaders, token.value)
    if (this.#post.headers.length > 0) headers.push(...this.#post.headers)
    const path = base.pathPrefix + this.#post.path
    api.send({ method: request.method ?? 'GET', path, headers, body }, attempt)
    return attempt.ended
  }

  /**
   * Decides by status and headers what happens to a response. Returns the headers to add if the response is relayed, or
   * the milliseconds until the next attempt if the call is repeated.
   */
  #judge(status: number, headers: HeaderList, token: AccessToken) {
    const { tokens, limits, defaultCoolDownMs, now, onCoolDown } = this.#deps
    const { realm } = this.#call.target
    this.#stats.traceId = headerValue(headers, 'intuit_tid')
    if (
      status === 401 &&
      !this.#stats.hasReplayedAfter401 &&
      tokens.isRefreshable(realm, token.version)
    ) {
      if (this.#canSendBodyAgain()) return { retryInMs: 0 }
      // This call cannot be repeated, because the body cannot be sent again. The token is refreshed nevertheless, for
      // the next call.
      tokens.refreshedAfter401(realm, token.version).catch(() => {})
    }
    let retryAfterMs = coolDownMs(headerValue(headers, 'retry-after'), now())
    const lacksRetryAfter = status === 429 && retryAfterMs === null
    if (status === 429) {
      retryAfterMs ??= defaultCoolDownMs
      limits.calls.coolDown(realm, retryAfterMs)
      onCoolDown?.()
    }
    if (status >= 200 && status < 300) this.#deps.onSuccess?.(this.#call)
    const isHeld = status === 429 && this.#deps.now() + (retryAfterMs ?? 0) > this.#mayWaitUntil()
    const verdict = isHeld ? PASS : afterStatus(status, retryAfterMs, this.#tries())
    if (verdict.kind === 'retry') return { retryInMs: verdict.delayMs }
    if (this.#phase.kind === 'attempting') this.#phase = { ...this.#phase, kind: 'relaying' }
    const add = ['X-Request-Id', this.#call.requestId, 'Server-Timing', this.#serverTiming()]
    if (this.#post.addedKey !== null) add.push('X-RequestId', this.#post.addedKey)
    if (lacksRetryAfter) add.push('Retry-After', String(Math.ceil(defaultCoolDownMs / 1_000)))
    return { add }
  }

  async #prepareRetry(
    { status, delayMs }: Extract<AttemptResult, { kind: 'withheld' }>,
    token: AccessToken,
  ): Promise<void> {
    if (status === 401) {
      this.#stats.hasReplayedAfter401 = true
      this.#deps.onRetry?.('unauthorized')
      const { realm } = this.#call.target
      await this.#wait(this.#deps.tokens.refreshedAfter401(realm, token.version))
      return
    }
    this.#stats.retries += 1
    this.#deps.onRetry?.('status')
    await this.#sleep(delayMs)
  }

  async #retryAfterFailure(failure: HttpFailure): Promise<void> {
    const verdict = failure.kind === 'unsendable' ? PASS : afterFailure(this.#tries())
    if (verdict.kind === 'pass') throw upstreamError(failure)
    this.#stats.retries += 1
    this.#deps.onRetry?.('failure')
    await this.#sleep(verdict.delayMs)
  }

  #tries(): Tries {
    return {
      canRepeat: this.#post.isRepeatable && this.#canSendBodyAgain(),
      attempt: this.#stats.retries + 1,
      remainingMs: this.#deadline.at - this.#deps.now(),
      random: this.#deps.random(),
    }
  }

  #canSendBodyAgain(): boolean {
    return this.#call.body?.isReplayable !== false
  }

  #openBody(body: RequestBody): ReturnType<RequestBody['open']> {
    const opened = body.open((received) => this.#onBodyProgress(received))
    return opened instanceof Promise ? this.#wait(opened, { isReadingBody: true }) : opened
  }

  // The deadline limits only the time that the accounting API may take. Each part of the body that the caller sends
  // therefore restarts the deadline.
  #onBodyProgress(received: number): void {
    if (received > this.#deps.maxBodyBytes) this.#interrupt(this.#bodyTooLarge())
    this.#deadline.timer.refresh()
    this.#deadline.at = this.#deps.now() + this.#deps.deadlineMs
  }

  /**
   * Returns a permit synchronously if a permit is available at once. This saves time, because most calls are far from
   * the limits of their realm.
   */
  #acquirePermit(realm: string): Permit | Promise<Permit> {
    // The AbortController is created only when it is needed, because most calls get a permit at once.
    let controller: AbortController | null = null
    const reserved = acquirePermit(this.#deps.limits, realm, {
      isBatch: isBatch(this.#post.path),
      waitLimit: () => {
        controller ??= new AbortController()
        if (this.#interruption !== null) controller.abort(this.#interruption)
        return { until: this.#mayWaitUntil(), signal: controller.signal }
      },
    })
    if (!(reserved instanceof Promise)) return reserved
    return this.#waitForPermit(reserved, (error) => controller?.abort(error))
  }

  /** Returns the epoch ms until which the call waits for a permit or for the end of a cool-down. */
  #mayWaitUntil(): number {
    const { at } = this.#deadline
    const waitMs = permitWaitMs(this.#call.request.rawHeaders)
    return waitMs === null ? at : Math.min(at, this.#deps.now() + waitMs)
  }

  async #waitForPermit(reserved: Promise<Permit>, onStop: (error: Error) => void): Promise<Permit> {
    try {
      return await this.#wait(reserved, { onStop })
    } catch (error) {
      // A permit may still be granted after the wait was interrupted. Such a permit is released, because the call no
      // longer uses it.
      reserved.then(
        (permit) => permit.release(),
        () => {},
      )
      throw error
    }
  }

  /**
   * Resolves with the value of `promise`; rejects if the call is interrupted first. The time of the wait is added to
   * `waitedMs`.
   */
  async #wait<T>(
    promise: Promise<T>,
    {
      isReadingBody = false,
      onStop,
    }: { readonly isReadingBody?: boolean; readonly onStop?: (error: Error) => void } = {},
  ): Promise<T> {
    const from = performance.now()
    const { promise: interrupted, reject } = Promise.withResolvers<never>()
    const stop = (error: Error): void => {
      onStop?.(error)
      reject(error)
    }
    if (this.#interruption === null) this.#phase = { kind: 'waiting', isReadingBody, stop }
    else stop(this.#interruption)
    try {
      return await Promise.race([promise, interrupted])
    } finally {
      if (this.#phase.kind === 'waiting') this.#phase = PREPARING
      this.#stats.waitedMs += performance.now() - from
    }
  }

  async #sleep(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = setTimeout(resolve, ms)
    await this.#wait(promise).finally(() => clearTimeout(timer))
  }

  #bodyTooLarge(): IntegrationError {
    const limit = this.#deps.maxBodyBytes
    return new IntegrationError('payload_too_large', `the body may have at most ${limit} bytes`)
  }

  #deadlineError(): IntegrationError {
    return this.#phase.kind === 'waiting' && this.#phase.isReadingBody
      ? new IntegrationError('request_timeout', 'the body did not arrive in time')
      : new IntegrationError('upstream_timeout', 'there was no response before the deadline')
  }

  /**
   * Returns the value of the `Server-Timing` header (W3C) in milliseconds: the time of the gateway itself, the waits,
   * and the time of upstream.
   */
  #serverTiming(): string {
    const { waitedMs, upstreamMs } = this.#stats
    const ownMs = Math.max(0, performance.now() - this.#startedAt - waitedMs - upstreamMs)
    return `gateway;dur=${ownMs.toFixed(2)}, wait;dur=${waitedMs.toFixed(2)}, upstream;dur=${upstreamMs.toFixed(2)}`
  }
}
