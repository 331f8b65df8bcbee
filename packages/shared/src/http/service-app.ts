import { STATUS_CODES } from 'node:http'
import { type Context, Hono, type MiddlewareHandler } from 'hono'
import { matchedRoutes, routePath } from 'hono/route'
import { secureHeaders } from 'hono/secure-headers'
import { type describeRoute, resolver, validator } from 'hono-openapi'
import { z } from 'zod'
import { type AccessKeys, unauthorized } from '../access/access-keys.ts'
import { MetricsSummary } from '../contracts/metrics-summary.ts'
import { type ErrorCode, errorCodes, IntegrationError } from '../errors.ts'
import { jsonExcess } from '../json.ts'
import { type Health, HealthReport } from '../observability/health.ts'
import type { Logger } from '../observability/logger.ts'
import type { Metrics } from '../observability/metrics.ts'
import type { Caller } from '../access/caller.ts'
import { identify, onlyKnownQuery, hasBody, limitBody } from './request.ts'
import { type ConnectionState, connectionState, UNAUTHENTICATED_IDLE_MS } from './connections.ts'
import {
  pathsWith,
  publicPath,
  type Content,
  DOCUMENTATION_PATHS,
  documentRoutes,
  describeOperation,
  PROBLEM_CONTENT,
} from './openapi.ts'
import { notFoundHandler, problemResponse } from './problem.ts'
import type { HttpBindings } from '@hono/node-server'
import { serveTraced, tracing } from '../observability/telemetry.ts'

export interface ServiceAppDeps {
  readonly name: string
  /** A description of the service in one line, for the service's documentation page. */
  readonly purpose: string
  readonly logger: Logger
  readonly health: Health
  readonly metrics: Metrics
  /** The keys that callers may present; `null` if no path requires a key. */
  readonly keys: AccessKeys | null
  /**
   * Paths that require no key, in addition to the documentation, health and metrics. A path that ends in `*` stands for
   * all paths with this prefix.
   */
  readonly openPaths?: readonly string[]
  /**
   * Returns whether this path requires no key and is called only by other services. A request to such a path continues
   * the caller's trace. Any other request continues a trace only if it has a valid key. Otherwise an unauthenticated
   * client could choose which requests are sampled and what traces contain.
   */
  readonly continuesTraces?: (path: string) => boolean
  /** The largest accepted request body, in bytes. */
  readonly maxBodyBytes?: number
  /**
   * Other body limits, in bytes, for exact paths. A path that begins with `*` stands for all paths with this suffix, and
   * one that ends with `*` for all paths with this prefix.
   */
  readonly maxBodyBytesAt?: Readonly<Record<string, number>>
  /** Exact paths whose routes read the body themselves. Such a route must limit the size of the body itself. */
  readonly pathsReadingOwnBody?: readonly string[]
  /** Fixed paths that match the pattern of another route, too. `routedFixedPath` registers their routes. */
  readonly fixedPaths?: readonly string[]
  /** Sets headers of every response, even if no route matches the request. */
  readonly responseHeaders?: MiddlewareHandler
  /** Converts errors to responses; by default to problem documents (RFC 9457). */
  readonly errorResponses?: ErrorResponses
}

export interface ErrorResponses {
  readonly respond: (c: Context, error: unknown) => Response
  /** The `content` of error responses in a route's OpenAPI description. */
  readonly content: Content
}

const PROBLEMS: ErrorResponses = { respond: problemResponse, content: PROBLEM_CONTENT }

/** The paths of every service that require no key, because they expose neither a secret nor a realm. */
const OPEN_PATHS = [
  '/health/live',
  '/health/ready',
  '/metrics',
  '/metrics/summary',
  ...DOCUMENTATION_PATHS,
]

/**
 * Creates the HTTP app that every service has: service keys, limits, problem documents, 405 with `Allow`, health,
 * metrics, documentation and one log line per request. `addRoutes` mounts the service's own resources.
 */
export function createServiceApp(deps: ServiceAppDeps, addRoutes: (app: Hono) => void): Hono {
  const { logger, health, metrics, errorResponses = PROBLEMS } = deps
  const app = new Hono({ getPath: pathsWith(deps.fixedPaths ?? []) })
  const latency = metrics.histogram(
    'http_request_duration_seconds',
    'Time to respond to a request',
    ['method', 'route', 'status'],
  )
  const dependencyUp = metrics.gauge(
    'dependency_up',
    '1 while a backend or peer that the service uses is available',
    ['dependency'],
  )
  metrics.beforeEach(() => {
    for (const [dependency, { status }] of Object.entries(health.report().dependencies))
      dependencyUp.set({ dependency }, status === 'up' ? 1 : 0)
  })

  const { keys, continuesTraces = () => false } = deps
  const callersTrace = (c: Context): Record<string, string> => {
    const hasKey = keys?.identify(c.req.header('Authorization'))
    return hasKey || continuesTraces(c.req.path) ? c.req.header() : {}
  }

  app.use(async (c, next) => {
    const startedAt = performance.now()
    const requestId = crypto.randomUUID()
    const { method } = c.req
    const isQuiet = OPEN_PATHS.includes(c.req.path)
    if (tracing === undefined || isQuiet) await next()
    else
      await serveTraced(tracing, { method, headers: callersTrace(c) }, async () => {
        await next()
        return { status: c.res.status, route: routeOf(c) }
      })
    // `c.header` would build the whole Response a second time if the Response already exists, so it is not used here.
    const { headers } = c.res
    headers.set('X-Request-Id', requestId)
    // The bytes of a request body that was not read would be parsed as the next request, so the connection is closed.
    const isUnread = hasBody(method) && !c.req.raw.bodyUsed && c.req.raw.body !== null
    if (isUnread || c.res.status === 413) headers.set('Connection', 'close')
    else if (connectionOf(c)?.isAuthenticated === false) limitKeepAlive(c, deps.keys !== null)
    const durationMs = performance.now() - startedAt
    const route = routeOf(c)
    latency.observe({ method, route, status: String(c.res.status) }, durationMs / 1_000)
    const caller = c.get('caller') as Caller | undefined
    logger[isQuiet || isOwnRead(c, caller) ? 'debug' : 'info'](
      {
        requestId,
        method,
        route,
        status: c.res.status,
        ...(caller && { key: caller.keyId }),
        durationMs: Math.round(durationMs * 10) / 10,
      },
      'request completed',
    )
  })
  app.use(secureHeaders({ referrerPolicy: 'no-referrer', xFrameOptions: 'DENY' }))
  app.use(async (c, next) => {
    await next()
    if (!c.res.headers.has('Cache-Control')) c.res.headers.set('Cache-Control', 'no-store')
  })
  if (deps.responseHeaders !== undefined) app.use(deps.responseHeaders)
  const openPaths = [...OPEN_PATHS, ...(deps.openPaths ?? [])]
  const isOpen = (path: string): boolean => openPaths.some((open) => isAt(path, open))
  if (keys !== null) app.use(requireServiceKey(keys, isOpen))
  const { maxBodyBytes = 65_536, maxBodyBytesAt = {}, pathsReadingOwnBody = [] } = deps
  const limitsAt = Object.entries(maxBodyBytesAt)
  app.use(
    limitBody((path) => {
      if (pathsReadingOwnBody.includes(path)) return null
      return limitsAt.find(([at]) => isAt(path, at))?.[1] ?? maxBodyBytes
    }),
  )

  addRoutes(app)
  app.get(
    '/health/live',
    describeOperation('getLiveness', 'The process runs', {
      200: jsonResponse('alive', z.object({ status: z.literal('live') })),
    }),
    (c) => c.json({ status: 'live' }),
  )
  app.get(
    '/health/ready',
    describeOperation(
      'getReadiness',
      'Whether every required dependency is available; each dependency by name',
      {
        200: jsonResponse('ready', HealthReport),
        503: jsonResponse('waiting for a dependency', HealthReport),
      },
    ),
    (c) => {
      const report = health.report()
      return c.json(report, report.status === 'ready' ? 200 : 503)
    },
  )
  app.get(
    '/metrics',
    describeOperation('getMetrics', 'Prometheus metrics', {
      200: textResponse('metrics', 'text/plain'),
    }),
    async (c) =>
      c.body(await metrics.readForScrape(), 200, { 'Content-Type': metrics.registry.contentType }),
  )
  app.get(
    '/metrics/summary',
    describeOperation('getMetricsSummary', 'What the metrics say now, as JSON', {
      200: jsonResponse('the summary', MetricsSummary),
    }),
    async (c) => c.json(await metrics.summary()),
  )
  documentRoutes(app, {
    title: deps.name,
    description: deps.purpose,
    errorContent: errorResponses.content,
    needsKey: (path) => deps.keys !== null && !isOpen(path),
  })

  app.notFound(notFoundHandler(app, errorResponses.respond))
  app.onError((error, c) => {
    const response = errorResponses.respond(c, error)
    // Anyone can make a service busy. The line of the request has the status.
    const isBusy = error instanceof IntegrationError && error.code === 'busy'
    if (response.status >= 500 && !isBusy) {
      const level = isCausedByCallers(error) ? 'info' : 'error'
      logger[level]({ err: error, method: c.req.method, route: routeOf(c) }, 'request failed')
    }
    return response
  })
  return app
}

/** Returns whether a path is `at`. A `*` at the begin or end of `at` stands for any text. */
const isAt = (path: string, at: string): boolean =>
  at.startsWith('*')
    ? path.endsWith(at.slice(1))
    : at.endsWith('*')
      ? path.startsWith(at.slice(0, -1))
      : path === at

/** The codes of 5xx responses that callers can cause at will: a wrong code, a strange framing, too many clients. */
const CAUSED_BY_CALLERS: ReadonlySet<ErrorCode> = new Set([
  'code_exchange_failed',
  'transfer_coding_unsupported',
  'too_many_deliveries',
  'too_many_watchers',
  'too_many_exports',
])

/** Returns whether callers can cause an error at will. Such an error must not fill the log at level error. */
const isCausedByCallers = (error: unknown): boolean =>
  error instanceof IntegrationError && CAUSED_BY_CALLERS.has(error.code)

/**
 * Returns whether the request is a successful read by a program, such as the console, that does not act for a person.
 * The console makes such reads every few seconds.
 */
const isOwnRead = (c: Context, caller: Caller | undefined): boolean =>
  !hasBody(c.req.method) && c.res.ok && caller?.person === null && caller.has('act-for')

/**
 * Returns the route pattern of a request instead of its path. A path may contain a realm, and a metric must have few
 * label values.
 */
const routeOf = (c: Context): string =>
  matchedRoutes(c).length > 0 ? publicPath(routePath(c, -1)) : 'none'

/**
 * Returns middleware that accepts a request if its bearer token (RFC 6750 §2.1) is a valid key, or if its path requires
 * no key. Each route itself decides which scope the key needs (see `needs`).
 */
function requireServiceKey(keys: AccessKeys, isOpen: (path: string) => boolean): MiddlewareHandler {
  return (c, next) => {
    const caller = identify(c, keys)
    if (caller !== null) {
      c.set('caller', caller)
      const connection = connectionOf(c)
      if (connection !== null) connection.isAuthenticated = true
    } else if (!isOpen(c.req.path)) {
      throw unauthorized()
    }
    return next()
  }
}

const bindingsOf = (c: Context): Partial<HttpBindings> => (c.env ?? {}) as Partial<HttpBindings>

/** Returns the state of the request's connection; `null` if the app is called without a server. */
function connectionOf(c: Context): ConnectionState | null {
  const { incoming } = bindingsOf(c)
  return incoming === undefined ? null : connectionState(incoming.socket)
}

/**
 * Limits how long an unauthenticated connection is kept open. If the service has keys, the connection is closed after
 * the response. If the service has no keys, no client can authenticate, so the response announces a short idle timeout
 * instead.
 */
function limitKeepAlive(c: Context, hasKeys: boolean): void {
  if (hasKeys) c.res.headers.set('Connection', 'close')
  else if (bindingsOf(c).outgoing?.shouldKeepAlive === true)
    c.res.headers.set('Keep-Alive', `timeout=${UNAUTHENTICATED_IDLE_MS / 1_000}`)
}

/**
 * Validates a part of the request. An error names the path of the invalid member and the violated rule, never the
 * value, because the value may be a secret.
 */
export const validate = <
  Target extends 'json' | 'query' | 'param' | 'form',
  Schema extends z.ZodType,
>(
  target: Target,
  schema: Schema,
) => {
  const check = validator(target, schema, (result) => {
    if (result.success) return
    const problems = result.error.map(
      (issue) =>
        `${(issue.path ?? []).map((part) => String(typeof part === 'object' ? part.key : part)).join('.') || target}: ${issue.message}`,
    )
    throw new IntegrationError('invalid_request', problems.slice(0, 10).join('; '), {
      members: { errors: problems.slice(0, 10) },
    })
  })
  if (target !== 'json') return check
  const checkBounded: typeof check = async (c, next) => {
    // The validator reads the same text, and responds if the body cannot be read.
    if (c.req.header('Content-Type')?.includes('json') === true)
      requireJsonLimits(await c.req.text().catch(() => ''))
    return check(c, next)
  }
  // The validator carries its part of the OpenAPI document as members of the function.
  return Object.assign(checkBounded, check)
}

/** Validates the query of a request, and rejects parameters that the schema does not have (see `onlyKnownQuery`). */
export function knownQuery<Schema extends z.ZodObject>(schema: Schema) {
  const check = validate('query', schema)
  const onlyKnown = onlyKnownQuery(...Object.keys(schema.shape))
  const both: typeof check = (c, next) => onlyKnown(c, async () => void (await check(c, next)))
  return Object.assign(both, check)
}

/** @throws {IntegrationError} `invalid_request` if JSON text exceeds the limits of a request, so that it must not be parsed. */
export function requireJsonLimits(text: string): void {
  const excess = jsonExcess(text)
  if (excess !== null) throw new IntegrationError('invalid_request', excess)
}

/** The `responses` entry of a JSON response in a route's description. */
export const jsonResponse = (description: string, schema: z.ZodType) => ({
  description,
  content: { 'application/json': { schema: resolver(schema) } },
})

/** The `requestBody` of a route that reads a list as a JSON array or as NDJSON. */
export const linesBody = (line: z.ZodType) => ({
  required: true,
  content: {
    'application/json': { schema: resolver(z.array(line)) },
    'application/x-ndjson': { schema: resolver(line) },
  },
})

/** The `responses` entry of a text response. */
export const textResponse = (description: string, mediaType: `text/${string}`) => ({
  description,
  content: { [mediaType]: { schema: { type: 'string' as const } } },
})

/** The OpenAPI descriptions of problem documents, one per status. */
export const problemResponses = (statuses: Readonly<Record<number, string>>) =>
  Object.fromEntries(
    Object.entries(statuses).map(([status, description]) => [
      status,
      { description, content: PROBLEM_CONTENT },
    ]),
  )

/** The OpenAPI descriptions of the problem documents with these codes. */
export const problems = (...codes: readonly ErrorCode[]) =>
  problemResponses(
    Object.fromEntries(
      Array.from(
        Map.groupBy(codes, (code) => errorCodes[code].status),
        ([status, same]) => [
          status,
          same.map((code) => `\`${code}\`: ${errorCodes[code].title}`).join('; '),
        ],
      ),
    ),
  )

/** The schema of a JSON response, the OpenAPI description of another response, or `null` for one without a body. */
type Success = z.ZodType | Responses[string] | null
type Responses = NonNullable<Parameters<typeof describeRoute>[0]['responses']>

/**
 * The OpenAPI descriptions of the responses of a route.
 *
 * @param success the schema of the JSON response with status 200, or the successful responses by status
 * @param codes the problems of this route, besides those that every route may have
 */
export function responses(
  success: z.ZodType | Readonly<Record<number, Success>>,
  ...codes: readonly ErrorCode[]
): Responses {
  const byStatus = success instanceof z.ZodType ? { 200: success } : success
  const described = Object.entries(byStatus).map(([status, response]: [string, Success]) => {
    const name = STATUS_CODES[status] ?? ''
    if (response === null) return [status, { description: name }]
    return [status, response instanceof z.ZodType ? jsonResponse(name, response) : response]
  })
  return { ...(Object.fromEntries(described) as Responses), ...problems(...codes) }
}
