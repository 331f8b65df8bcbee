import { randomUUID } from 'node:crypto'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { IntegrationError } from '@integration-host/shared/errors'
import type { NodeListener } from '@integration-host/shared/http/http-server'
import type { Logger } from '@integration-host/shared/observability/logger'
import { problemOf } from '@integration-host/shared/http/problem'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { isAuthorized } from '@integration-host/shared/http/service-app'
import { serveTraced, tracing } from '@integration-host/shared/observability/telemetry'
import type { GatewayMetrics } from './gateway-metrics.ts'
import { createLane, type WholeRequest } from './lane.ts'
import type { CallerRequest, CallerResponse } from './proxy/caller.ts'
import type { Forward, Outcome, Passage } from './proxy/forward.ts'
import { headerFault } from './proxy/headers.ts'
import { type RequestBody, requestBody } from './proxy/request-body.ts'
import { type CompanyTarget, readTarget } from './proxy/target.ts'

export interface ListenerDeps {
  /** Answers everything that is no company's call. */
  readonly app: NodeListener
  readonly forward: Forward
  readonly keys: readonly Secret[]
  readonly logger: Logger
  readonly metrics: GatewayMetrics
}

export interface Listener {
  readonly listener: NodeListener
  /** Takes what Node does not hand to a request listener. */
  attach(server: Server): void
  /** Lets go of the calls that only wait, at shutdown. */
  leave(): void
}

/** The calls of a company in logs and traces. */
const ROUTE = '/v3/company/:realm/*'
/** Every method is the accounting API's to judge, but for the two that talk to proxies. */
const REFUSED_METHODS = new Set(['CONNECT', 'TRACE', 'TRACK'])

/**
 * The data path: Node's own request and response, no framework between. A company's call is forwarded;
 * everything else is the app's, once its target and headers can be trusted.
 */
export function createListener(deps: ListenerDeps): Listener {
  const { app, forward, keys, logger, metrics } = deps
  // No Set: one that members come to and go from all the time leaves its outgrown tables linked to each
  // other, and through them the young collections keep every call until the next full one.
  const passages: Passage[] = []
  let isLeaving = false

  function take(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean) {
    const fault = requestFault(request)
    const target = readTarget(request.url ?? '')
    if (fault !== null || target.kind === 'refused') {
      const why = fault ?? (target.kind === 'refused' ? target.why : '')
      return refuse(request, response, new IntegrationError('target_invalid', why))
    }
    if (target.kind === 'own') {
      if (expectsContinue) response.writeContinue()
      return app(request, response)
    }
    if (!isAuthorized(request.headers.authorization, keys)) {
      const why = 'present a service key as Authorization: Bearer …'
      return refuse(request, response, new IntegrationError('unauthorized', why))
    }
    if (isLeaving) {
      const error = new IntegrationError('shutting_down', 'the gateway is leaving', {
        retryAfterSeconds: 1,
      })
      return refuse(request, response, error)
    }
    start(request, response, requestBody(request, response, expectsContinue), target)
  }

  /** A call that came the short way, if it is one that is to be forwarded; all others are {@link take}'s. */
  function takeWhole(request: WholeRequest, response: CallerResponse): boolean {
    const target = readTarget(request.url)
    if (target.kind !== 'company' || headerFault(request.rawHeaders) !== null) return false
    if (isLeaving || !(request.isAuthorized || isAuthorized(request.authorization, keys)))
      return false
    start(request, response, null, target)
    return true
  }

  function start(
    request: CallerRequest,
    response: CallerResponse,
    body: RequestBody | null,
    target: CompanyTarget,
  ): void {
    if (tracing === undefined) return void carry(request, response, body, target)
    const { method = '', headers } = request
    void serveTraced(tracing, { method, headers }, async () => {
      const status = await carry(request, response, body, target)
      return { status, route: ROUTE }
    })
  }

  /** Resolves with the status that the call ended with, for the figures. */
  function carry(
    request: CallerRequest,
    response: CallerResponse,
    body: RequestBody | null,
    target: CompanyTarget,
  ): Promise<number> {
    const startedAt = performance.now()
    const requestId = randomUUID()
    const passage = forward({ request, response, body, target, requestId })
    passages.push(passage)
    return follow(passage, request, response, target.realm, requestId, startedAt)
  }

  async function follow(
    passage: Passage,
    request: CallerRequest,
    response: CallerResponse,
    realm: string,
    requestId: string,
    startedAt: number,
  ): Promise<number> {
    const outcome = await passage.outcome
    const last = passages.pop()
    if (last !== undefined && last !== passage) passages[passages.indexOf(passage)] = last
    if (outcome.error !== null && !response.headersSent) {
      const more = ['Server-Timing', passage.serverTiming()]
      if (outcome.traceId !== null) more.push('intuit_tid', outcome.traceId)
      // With it the caller can send the same call again and have it done once.
      if (passage.addedKey !== null) more.push('X-RequestId', passage.addedKey)
      answerProblem(request, response, outcome.error, requestId, more)
    }
    return tell(request, response, realm, requestId, outcome, performance.now() - startedAt)
  }

  function tell(
    { method }: CallerRequest,
    { statusCode }: CallerResponse,
    realm: string,
    requestId: string,
    outcome: Outcome,
    durationMs: number,
  ): number {
    const { error, isAbandoned, isCut, attempts, waitedMs, upstreamMs, traceId } = outcome
    // 499: the caller closed the connection; nginx's number for it.
    const status = isAbandoned ? 499 : statusCode
    metrics.call(realm, status, durationMs, waitedMs)
    const isDefect = error?.code === 'internal_error'
    if (!isDefect && !logger.isLevelEnabled('info')) return status
    const data = {
      requestId,
      method,
      route: ROUTE,
      realm,
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
    else logger.info(data, 'request')
    return status
  }

  function refuse(request: IncomingMessage, response: ServerResponse, error: IntegrationError) {
    const requestId = randomUUID()
    answerProblem(request, response, error, requestId)
    const { statusCode: status } = response
    metrics.call(null, status, 0, 0)
    logger.info({ requestId, method: request.method, status, code: error.code }, 'request refused')
  }

  const lane = createLane(takeWhole)
  return {
    listener: (request, response) => take(request, response, false),
    attach(server) {
      const [admit] = server.listeners('connection') as ((socket: Socket) => void)[]
      if (admit === undefined) throw new TypeError('not an HTTP server')
      server.off('connection', admit)
      server.on('connection', (socket: Socket) =>
        lane.take(socket, () => admit.call(server, socket)),
      )
      server.on('checkContinue', (request, response) => take(request, response, true))
      server.on('connect', (_request: IncomingMessage, socket: Socket) => {
        socket.on('error', () => {})
        socket.end(CONNECT_REFUSED)
      })
    },
    leave() {
      isLeaving = true
      lane.leave()
      for (const passage of passages) passage.leave()
    },
  }
}

function requestFault({ method = '', httpVersion, rawHeaders }: IncomingMessage): string | null {
  if (REFUSED_METHODS.has(method)) return `${method} is not served`
  if (httpVersion !== '1.1' && httpVersion !== '1.0') return 'the HTTP version is not served'
  return headerFault(rawHeaders)
}

const rounded = (ms: number): number => Math.round(ms * 10) / 10

/** A problem document (RFC 9457) written straight to the response. */
function answerProblem(
  request: CallerRequest,
  response: CallerResponse,
  error: IntegrationError,
  requestId: string,
  more: readonly string[] = [],
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
  headers.push(...more)
  if (error.retryAfterSeconds !== null)
    headers.push('Retry-After', String(Math.max(1, Math.ceil(error.retryAfterSeconds))))
  if (problem.status === 401) headers.push('WWW-Authenticate', 'Bearer realm="integration-host"') // RFC 6750 §3
  // RFC 9110 §15.5.9; and a body that still trickles in must not hold a connection that got its answer.
  if (problem.status === 408 || isArriving(request)) headers.push('Connection', 'close')
  response.writeHead(problem.status, headers)
  response.end(request.method === 'HEAD' ? undefined : body)
}

const isArriving = ({ headers, complete }: CallerRequest): boolean =>
  !complete && (headers['transfer-encoding'] !== undefined || Number(headers['content-length']) > 0)

const CONNECT_BODY = JSON.stringify(
  problemOf(new IntegrationError('target_invalid', 'CONNECT is not served')),
)
const CONNECT_REFUSED = [
  'HTTP/1.1 400 Bad Request',
  'Content-Type: application/problem+json',
  `Content-Length: ${Buffer.byteLength(CONNECT_BODY)}`,
  'Connection: close',
  '',
  CONNECT_BODY,
].join('\r\n')
