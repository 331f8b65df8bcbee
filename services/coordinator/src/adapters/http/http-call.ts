import { contentCodings, decodeContent } from '@integration-host/shared/http/content-coding'
import {
  type ProxyFor,
  withoutProxy,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { tunnelTo } from '@integration-host/shared/http/forward-proxy/tunnel'
import { reasonOf } from '@integration-host/shared/observability/health'
import type { Flow, HttpFailure } from '@integration-host/fast-http/exchange'
import {
  type HeaderList,
  headerValue,
  headerValues,
} from '@integration-host/shared/http/header-list'
import { Pool } from '@integration-host/fast-http/pool'
import {
  callTraced,
  type CallResult,
  tracing,
} from '@integration-host/shared/observability/telemetry'
import {
  type CallLimits,
  type CallOutcome,
  type CallRequest,
  type HttpCall,
  MAX_RESPONSE_BYTES,
} from '../../step/http-call.ts'
import { textOf } from '../../step/response-content.ts'

export interface HttpCaller extends AsyncDisposable {
  readonly call: HttpCall
}

const CONNECT_MS = 10_000
/** The maximum number of connections to one target. */
const MAX_CONNECTIONS = 128
/** The maximum number of targets with a connection pool. When this number is exceeded, idle pools are closed. */
const MAX_TARGETS = 100

/** Calls targets over persistent connections. Redirects are not followed: a 3xx response is returned like any other. */
export function createHttpCaller(proxyFor: ProxyFor = withoutProxy): HttpCaller {
  const pools = new Map<string, Pool>()
  let isClosed = false

  function poolOf(origin: string): Pool {
    const known = pools.get(origin)
    if (known !== undefined) return known
    if (pools.size >= MAX_TARGETS)
      for (const [other, pool] of pools)
        if (pool.isIdle) {
          pools.delete(other)
          void pool[Symbol.asyncDispose]()
        }
    // The timeouts of the pool are disabled, because the time limit of the step already bounds each call.
    const idleTimeoutMs = Number.POSITIVE_INFINITY
    const pool = new Pool(origin, {
      connectTimeoutMs: CONNECT_MS,
      idleTimeoutMs,
      maxConnections: MAX_CONNECTIONS,
      connect: tunnelTo(proxyFor, new URL(origin)),
    })
    pools.set(origin, pool)
    return pool
  }

  return {
    call(request, limits) {
      if (isClosed) return Promise.resolve({ kind: 'aborted', isSent: false })
      const pool = poolOf(request.url.origin)
      if (tracing === undefined) return exchange(pool, request, limits)
      const send = (added: Readonly<Record<string, string>>): Promise<CallOutcome> =>
        exchange(pool, { ...request, headers: { ...request.headers, ...added } }, limits)
      return callTraced(tracing, request, send, resultOf)
    },
    async [Symbol.asyncDispose]() {
      isClosed = true
      await Promise.all([...pools.values()].map((pool) => pool[Symbol.asyncDispose]()))
    },
  }
}

function resultOf(outcome: CallOutcome): CallResult {
  if (outcome.kind === 'aborted') return 'aborted'
  return outcome.kind === 'failed' ? outcome.reason : outcome.status
}

function exchange(pool: Pool, request: CallRequest, limits: CallLimits): Promise<CallOutcome> {
  const { abort: stepAbort, timeoutMs, maxBytes = MAX_RESPONSE_BYTES } = limits
  if (stepAbort.areNewCallsBlocked) return Promise.resolve({ kind: 'aborted', isSent: false })
  return new Promise((resolve) => {
    let flow: Flow | null = null
    let isSettled = false
    let status = 0
    let retryAfter: string | null = null
    let responseId: string | null = null
    let responseHeaders: HeaderList = []
    let contentType: string | null = null
    let contentCoding: string | null = null
    const chunks: Buffer[] = []
    let length = 0

    const settle = (outcome: CallOutcome): void => {
      if (isSettled) return
      isSettled = true
      clearTimeout(timer)
      stepAbort.unwatch(onAbort)
      resolve(outcome)
    }
    const head = () => ({ status, retryAfter, responseId })
    const outcomeOf = (bytes: Buffer): CallOutcome => {
      const body = textOf(bytes, contentType)
      if (body === null && status >= 200 && status < 300) {
        const why = 'not text: a step can only receive text'
        return { kind: 'unreadable', errorClass: 'response_not_text', why, ...head() }
      }
      return { kind: 'answered', headers: responseHeaders, body: body ?? '', ...head() }
    }
    const end = (outcome: CallOutcome): void => {
      settle(outcome)
      flow?.abort()
    }
    const isSent = (): boolean => flow?.isSent === true
    const onAbort = (): void => {
      if (stepAbort.reason !== null || !isSent()) end({ kind: 'aborted', isSent: isSent() })
    }
    const timer = setTimeout(
      () => end({ kind: 'failed', reason: 'ETIMEDOUT', isSent: isSent() }),
      timeoutMs,
    )
    stepAbort.watch(onAbort)

    pool.send(outgoing(request), {
      onStart(started) {
        flow = started
        // The request must not be sent, because the call was aborted while it waited for a connection.
        if (isSettled) started.abort()
      },
      onInformation() {},
      onHeaders(statusCode, headers) {
        status = statusCode
        responseHeaders = headers
        retryAfter = headerValue(headers, 'retry-after')
        responseId = responseIdOf(headers)
        contentType = headerValue(headers, 'content-type')
        contentCoding = headerValues(headers, 'content-encoding').join()
      },
      onData(chunk) {
        length += chunk.length
        if (length > maxBytes) end({ kind: 'too_large', ...head() })
        else chunks.push(chunk)
      },
      onCaughtUp() {},
      onEnd() {
        const coded = chunks.length === 1 ? (chunks[0] ?? EMPTY) : Buffer.concat(chunks)
        const codings = coded.length === 0 ? [] : contentCodings(contentCoding)
        if (codings.length === 0) return settle(outcomeOf(coded))
        void decodeContent(coded, codings, maxBytes).then(({ bytes, problem }) => {
          if (problem === null) return settle(outcomeOf(bytes))
          if (problem === 'too large') return settle({ kind: 'too_large', ...head() })
          // The body of an error is only information. Its status says what happened.
          if (status < 200 || status >= 300) return settle(outcomeOf(EMPTY))
          // A body that ends early or is damaged is an incomplete response.
          if (problem !== 'unknown')
            return settle({ kind: 'failed', reason: 'damaged body', isSent: true })
          const why = 'in a content coding that cannot be read'
          settle({ kind: 'unreadable', errorClass: 'response_coding_unknown', why, ...head() })
        })
      },
      onFailure: (failure) =>
        settle({ kind: 'failed', reason: reasonFor(failure), isSent: isSent() }),
    })
  })
}

// RFC 9110 §8.6: a POST, PUT or PATCH request without a body sends `Content-Length: 0`.
const NAMES_LENGTH = new Set(['POST', 'PUT', 'PATCH'])

function outgoing({ method, url, headers, body }: CallRequest) {
  const list: string[] = []
  for (const name in headers) list.push(name, headers[name] ?? '')
  return {
    method,
    path: url.pathname + url.search,
    headers: list,
    body: body === null && !NAMES_LENGTH.has(method) ? null : [Buffer.from(body ?? '')],
  }
}

function reasonFor({ kind, cause }: HttpFailure): string {
  if (cause !== undefined) return reasonOf(cause)
  return kind === 'timeout' ? 'ETIMEDOUT' : 'ECONNRESET'
}

const MAX_RESPONSE_ID = 128

function responseIdOf(headers: HeaderList): string | null {
  const id = headerValue(headers, 'intuit_tid') ?? headerValue(headers, 'x-request-id')
  return id?.slice(0, MAX_RESPONSE_ID) ?? null
}

const EMPTY = Buffer.alloc(0)
