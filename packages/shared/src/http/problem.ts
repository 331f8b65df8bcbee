import type { Context, Hono, NotFoundHandler } from 'hono'
import { HTTPException } from 'hono/http-exception'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { type Problem, type ErrorCode, errorCodes, IntegrationError } from '../errors.ts'

/**
 * Returns the problem document (RFC 9457) of an error. For an unexpected error, the document has the code
 * `internal_error` and no details of the error.
 */
export function problemOf(error: unknown): Problem & { readonly status: number } {
  const known = error instanceof IntegrationError ? error : fromHono(error)
  if (known === null) return document('internal_error')
  return document(known.code, known.message, known.members)
}

function document(
  code: ErrorCode,
  detail?: string,
  members: Readonly<Record<string, unknown>> = {},
) {
  const { status, title } = errorCodes[code]
  return {
    type: `urn:integration-host:error:${code}`,
    title,
    status,
    code,
    ...(detail && { detail }),
    ...members,
  }
}

// Middleware of Hono, such as its validators, throws HTTPException.
function fromHono(error: unknown): IntegrationError | null {
  if (!(error instanceof HTTPException)) return null
  const code = (Object.keys(errorCodes) as ErrorCode[]).find(
    (key) => errorCodes[key].status === error.status,
  )
  return code === undefined
    ? null
    : new IntegrationError(code, error.message || errorCodes[code].title)
}

/**
 * Returns the response for `error`: the problem document, with `Retry-After` and `WWW-Authenticate` where they apply.
 */
export function problemResponse(c: Context, error: unknown): Response {
  const problem = problemOf(error)
  c.header('Cache-Control', 'no-store')
  if (error instanceof IntegrationError && error.retryAfterSeconds !== null) {
    c.header('Retry-After', String(Math.max(1, Math.ceil(error.retryAfterSeconds))))
  }
  if (problem.status === 401) c.header('WWW-Authenticate', 'Bearer realm="integration-host"') // RFC 6750 §3
  return c.body(JSON.stringify(problem), problem.status as ContentfulStatusCode, {
    'Content-Type': 'application/problem+json',
  })
}

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const

/** Returns the methods that have a handler at `path`; a GET route serves HEAD as well (RFC 9110 §9.3.2). */
function allowedMethods(app: Hono, path: string): readonly string[] {
  const allowed: string[] = METHODS.filter((method) =>
    app.router.match(method, path)[0].some(([[, route]]) => route.method === method),
  )
  return allowed.includes('GET') ? ['GET', 'HEAD', ...allowed.slice(1)] : allowed
}

/** Responds with 405 and `Allow` if the path has other methods, otherwise with 404. */
export function notFoundHandler(
  app: Hono,
  respond: (c: Context, error: IntegrationError) => Response,
): NotFoundHandler {
  return (c) => {
    const allowed = allowedMethods(app, c.req.path)
    if (allowed.length === 0) return respond(c, new IntegrationError('not_found', 'no such path'))
    c.header('Allow', allowed.join(', ')) // RFC 9110 §15.5.6
    return respond(c, new IntegrationError('method_not_allowed', `use ${allowed.join(' or ')}`))
  }
}
