/**
 * Decides for each HTTP request whether the gateway forwards the request to the accounting API, serves it with its own
 * app, or rejects it.
 */
import { codeAndMessage } from '@integration-host/shared/provider-profile/provider-fault'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import { randomUUID } from 'node:crypto'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { IntegrationError } from '@integration-host/shared/errors'
import { connectionState, trackRequest } from '@integration-host/shared/http/connections'
import type { NodeListener } from '@integration-host/shared/http/http-server'
import type { Logger } from '@integration-host/shared/observability/logger'
import { problemOf } from '@integration-host/shared/http/problem'
import { type AccessKeys, unauthorized } from '@integration-host/shared/access/access-keys'
import type { Caller } from '@integration-host/shared/access/caller'
import type { Scope } from '@integration-host/shared/access/scope'
import { serveTraced, tracing } from '@integration-host/shared/observability/telemetry'
import type { BufferedRequest } from '@integration-host/fast-http/buffered-request'
import type { GatewayMetrics } from './gateway-metrics.ts'
import type { CallerRequest, CallerResponse, CallResult, CompanyCall } from './proxy/call-types.ts'
import { headerFault, transferCodingFault } from './proxy/headers.ts'
import { ProxyCall, type ProxyCallDeps } from './proxy/proxy-call.ts'
import { bufferedBody, requestBody } from './proxy/request-body.ts'
import type { FailedCallRecord, RealmActivityLog } from './realm/realm-activity.ts'
import { readTarget, scopeOf } from './proxy/target.ts'

export interface ListenerDeps {
  /** Serves every request that is not forwarded to the accounting API. */
  readonly app: NodeListener
  readonly proxy: ProxyCallDeps
  readonly keys: AccessKeys
  readonly logger: Logger
  readonly metrics: GatewayMetrics
  readonly activity: RealmActivityLog
  /** Returns the error in the body of a response of the accounting API; `null` if there is none. */
  readonly faultOf: ProviderProfile['accounting']['faultOf']
}

export interface Listener {
  /** Handles a request that `node:http` has read. */
  readonly onRequest: NodeListener
  /**
   * Handles a request that the fast path has read. Returns false, without any effect, if `node:http` has to handle the
   * request.
   */
  readonly onFastPathRequest: (request: BufferedRequest, response: CallerResponse) => boolean
  /** Returns whether `onFastPathRequest` will accept this request when the body of the request is complete. */
  readonly isFastPathRequest: (request: BufferedRequest) => boolean
  /**
   * Subscribes to the server events for requests that `node:http` does not pass to an ordinary request listener:
   * CONNECT and `Expect: 100-continue`.
   */
  attach(server: Server): void
  /**
   * Starts to reject calls to the accounting API: all new calls, and all calls that wait for a token, a permit or the
   * next attempt. Calls with a request in flight upstream continue.
   */
  shutDown(): void
}

/** The route name under which logs and traces record the calls to the accounting API. */
const ROUTE = '/v3/company/:realm/*'
/**
 * The gateway rejects these methods because they address the proxy itself. All other methods are forwarded, and the
 * accounting API decides whether it supports them.
 */
const REJECTED_METHODS = new Set(['CONNECT', 'TRACE', 'TRACK'])

export function createListener(deps: ListenerDeps): Listener {
  const { app, proxy, keys, logger, metrics, activity } = deps
  const calls = new Set<ProxyCall>()
  /**
   * Connections that close after the response to a rejected request. Later requests on these connections are ignored.
   */
  const closing = new WeakSet<Socket>()
  let isShuttingDown = false

  /**
   * Forwards one call to the accounting API and records its result in the log and the metrics. If the call fails, the
   * caller gets a problem document. Returns the status of the response.
   */
  async function handle(companyCall: CompanyCall): Promise<number> {
    const { request, response, target, requestId } = companyCall
    const startedAt = performance.now()
    const call = new ProxyCall(proxy, companyCall)
    calls.add(call)
    try {
      const result = await call.run()
      if (result.error !== null && !response.headersSent)
        respondProblem(request, response, result.error, {
          requestId,
          extraHeaders: call.problemHeaders(),
        })
      // nginx uses the status 499 for a caller that closed its connection before the response.
      const status = result.isAbandoned ? 499 : response.statusCode
      const durationMs = performance.now() - startedAt
      metrics.callCompleted(target.realm, status, durationMs, result.waitedMs)
      activity.callEnded(
        target.realm,
        status < 400 ? null : failedCall(companyCall, result, status, durationMs, deps.faultOf),
      )
      logCall(companyCall, result, status, durationMs)
      return status
    } finally {
      calls.delete(call)
    }
  }

  function start(call: CompanyCall): void {
    if (tracing === undefined) return void handle(call)
    const { method = '', headers } = call.request
    void serveTraced(tracing, { method, headers }, async () => ({
      status: await handle(call),
      route: ROUTE,
    }))
  }

  function onNodeRequest(
    request: IncomingMessage,
    response: ServerResponse,
    expectsContinue: boolean,
  ): void {
    // Until the connection is closed, Node parses the pipelined requests that follow a rejected request. These requests
    // must not be served.
    if (closing.has(request.socket)) return
    const fault = requestFault(request)
    if (fault !== null) return reject(request, response, fault)
    const target = readTarget(request.url ?? '')
    if (target.kind === 'rejected')
      return reject(request, response, new IntegrationError('target_invalid', target.reason))
    if (target.kind === 'own') {
      if (expectsContinue) response.writeContinue()
      return app(request, response)
    }
    const caller = keys.identify(request.headers.authorization)
    if (caller === null) return reject(request, response, unauthorized())
    connectionState(request.socket).isAuthenticated = true
    const scope = scopeOf(request.method ?? '', target)
    if (!caller.has(scope) || !caller.mayUseRealm(target.realm))
      return reject(request, response, forbidden(caller, scope))
    if (isShuttingDown) {
      const error = new IntegrationError('shutting_down', 'the gateway is shutting down', {
        retryAfterSeconds: 1,
      })
      return reject(request, response, error)
    }
    const body = requestBody(request, response, expectsContinue)
    start({ request, response, body, target, keyId: caller.keyId, requestId: randomUUID() })
  }

  function onFastPathRequest(request: BufferedRequest, response: CallerResponse): boolean {
    const accepted = accept(request)
    if (accepted === null) return false
    const { target, keyId } = accepted
    const body = request.body.length === 0 ? null : bufferedBody(request.body)
    start({ request, response, body, target, keyId, requestId: randomUUID() })
    return true
  }

  /** Returns the target and the key of a request of the fast path; `null` if `node:http` has to handle the request. */
  function accept({ method, url, rawHeaders, authorization }: BufferedRequest) {
    const target = readTarget(url)
    if (target.kind !== 'company' || headerFault(rawHeaders) !== null) return null
    if (isShuttingDown) return null
    const caller = keys.identify(authorization)
    if (caller === null || !caller.has(scopeOf(method, target))) return null
    return caller.mayUseRealm(target.realm) ? { target, keyId: caller.keyId } : null
  }

  function logCall(
    { request, target, keyId, requestId }: CompanyCall,
    { error, isCut, attempts, waitedMs, upstreamMs, traceId }: CallResult,
    status: number,
    durationMs: number,
  ): void {
    const isDefect = error?.code === 'internal_error'
    if (!isDefect && !logger.isLevelEnabled('info')) return
    const data = {
      requestId,
      method: request.method,
      route: ROUTE,
      realm: target.realm,
      key: keyId,
      status,
      durationMs: rounded(durationMs),
      upstreamMs: rounded(upstreamMs),
      waitedMs: rounded(waitedMs),
      attempts,
      ...(traceId !== null && { intuitTid: traceId.slice(0, 128) }),
      ...(error !== null && { code: error.code }),
      ...(isCut && { isCut }),
    }
    if (isDefect) logger.error({ ...data, err: error }, 'request failed')
    else logger.info(data, 'request completed')
  }

  // Sends the error and closes the connection, for three reasons:
  // - A caller without a key must not occupy a connection.
  // - After an upgrade request or a faulty body, the next bytes may not be a request.
  // - Node does not serve requests that are pipelined behind an upgrade request. `Connection: close` announces this to
  //   the caller (RFC 9112 §9.6).
  function reject(request: IncomingMessage, response: ServerResponse, error: IntegrationError) {
    const requestId = randomUUID()
    closing.add(request.socket)
    respondProblem(request, response, error, { requestId, isLast: true })
    // Node may detect later that the request body is malformed, and would then send a second response. Ending the
    // socket prevents the second response. If an earlier pipelined response is incomplete, this response has no socket
    // yet.
    response.socket?.end()
    const { statusCode: status } = response
    metrics.callCompleted(null, status, 0, 0)
    logger.info({ requestId, method: request.method, status, code: error.code }, 'request rejected')
  }

  return {
    onRequest: (request, response) => onNodeRequest(request, response, false),
    onFastPathRequest,
    isFastPathRequest: (request) => accept(request) !== null,
    attach(server) {
      server.on('checkContinue', (request, response) => {
        trackRequest(request, response)
        onNodeRequest(request, response, true)
      })
      server.on('connect', (_request: IncomingMessage, socket: Socket) => {
        socket.on('error', () => {})
        socket.end(CONNECT_RESPONSE)
      })
    },
    shutDown() {
      isShuttingDown = true
      for (const call of calls) call.rejectIfWaiting()
    },
  }
}

/**
 * Checks the method, the HTTP version and the headers of a request. Returns the error of an unacceptable request;
 * otherwise `null`.
 */
function requestFault(request: IncomingMessage): IntegrationError | null {
  const { method = '', httpVersion, rawHeaders } = request
  const reason = REJECTED_METHODS.has(method)
    ? `${method} is not served`
    : httpVersion !== '1.1' && httpVersion !== '1.0'
      ? 'the HTTP version is not served'
      : headerFault(rawHeaders)
  if (reason !== null) return new IntegrationError('target_invalid', reason)
  return transferCodingFault(rawHeaders, httpVersion)
}

/** Returns the error for a key that lacks `scope`, or for a key that has `scope` but is not permitted for the realm. */
function forbidden(caller: Caller, scope: Scope): IntegrationError {
  const lacks = caller.has(scope) ? 'may not use this realm' : `lacks the scope ${scope}`
  return new IntegrationError('forbidden', `the service key ${caller.keyId} ${lacks}`)
}

const rounded = (ms: number): number => Math.round(ms * 10) / 10

/** Sends a problem document (RFC 9457) unless a response has begun. */
function respondProblem(
  request: CallerRequest,
  response: CallerResponse,
  error: IntegrationError,
  {
    requestId,
    extraHeaders = [],
    isLast = false,
  }: {
    readonly requestId: string
    readonly extraHeaders?: readonly string[]
    /** True if the connection has to be closed after this response. */
    readonly isLast?: boolean
  },
): void {
  if (response.headersSent || response.destroyed) return
  const problem = problemOf(error)
  const body = JSON.stringify(problem)
  const headers = Object.entries({
    'Content-Type': 'application/problem+json',
    'Content-Length': String(Buffer.byteLength(body)),
    'Cache-Control': 'no-store',
    'X-Request-Id': requestId,
  }).flat()
  headers.push(...extraHeaders)
  if (error.retryAfterSeconds !== null)
    headers.push('Retry-After', String(Math.max(1, Math.ceil(error.retryAfterSeconds))))
  if (problem.status === 401) headers.push('WWW-Authenticate', 'Bearer realm="integration-host"') // RFC 6750 §3
  // The connection is closed after a 408 response (RFC 9110 §15.5.9). It is also closed while the request body is still
  // arriving, because a slow sender could otherwise occupy the connection for long.
  if (isLast || problem.status === 408 || isBodyArriving(request))
    headers.push('Connection', 'close')
  response.writeHead(problem.status, headers)
  response.end(request.method === 'HEAD' ? undefined : body)
}

const isBodyArriving = ({ headers, complete }: CallerRequest): boolean =>
  !complete && (headers['transfer-encoding'] !== undefined || Number(headers['content-length']) > 0)

const CONNECT_BODY = JSON.stringify(
  problemOf(new IntegrationError('target_invalid', 'CONNECT is not served')),
)
const CONNECT_RESPONSE = [
  'HTTP/1.1 400 Bad Request',
  'Content-Type: application/problem+json',
  `Content-Length: ${Buffer.byteLength(CONNECT_BODY)}`,
  'Connection: close',
  '',
  CONNECT_BODY,
].join('\r\n')

function providerErrorIn(body: string, faultOf: ListenerDeps['faultOf']): string | null {
  const fault = faultOf(body)
  return (fault && codeAndMessage(fault)) || null
}

const failedCall = (
  { request, target, requestId }: CompanyCall,
  { error, attempts, waitedMs, traceId, errorStart }: CallResult,
  status: number,
  durationMs: number,
  faultOf: ListenerDeps['faultOf'],
): FailedCallRecord => ({
  at: Date.now(),
  method: request.method ?? '',
  path: target.path.split('?', 1)[0] ?? '',
  status,
  code: error?.code ?? null,
  providerError: errorStart && providerErrorIn(errorStart.toString(), faultOf),
  durationMs,
  waitedMs,
  attempts,
  traceId: traceId?.slice(0, 128) ?? null,
  requestId,
})
