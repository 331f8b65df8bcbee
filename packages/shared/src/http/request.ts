/** What a service reads of a request: its caller, its query, its headers and its body. */
import type { Context, MiddlewareHandler } from 'hono'
import { uniqueSymbol } from 'hono-openapi'
import { type AccessKeys, unauthorized } from '../access/access-keys.ts'
import type { Caller } from '../access/caller.ts'
import type { Scope } from '../access/scope.ts'
import { realmOf } from '../contracts/realm.ts'
import { IntegrationError } from '../errors.ts'
import { PROBLEM_CONTENT } from './openapi.ts'
import { keepArrivedBody } from './without-web-streams.ts'

declare module 'hono' {
  interface ContextVariableMap {
    /** The caller. It is set for each request with a valid service key. */
    caller: Caller
  }
}

/**
 * Returns middleware that rejects a request unless its service key has `scope`. The key must also cover the realm or
 * process in the path: the realm of the credential `:name`, the realm `:realm`, or the process `:process`. The scope
 * is added to the OpenAPI description of the route.
 *
 * This middleware must be the first of a route, so that a rejected request is neither validated nor executed.
 */
export function needs(scope: Scope): MiddlewareHandler {
  // This function runs for every request. For speed, it is not async and looks up each parameter only once.
  const check: MiddlewareHandler = (c, next) => {
    const caller = callerOf(c)
    caller.requireScope(scope)
    const { req } = c
    const name = req.param('name')
    if (name?.startsWith('ACC-')) caller.requireRealm(realmOf(name))
    const realm = req.param('realm')
    if (realm !== undefined) caller.requireRealm(realm)
    const process = req.param('process')
    if (process !== undefined) caller.requireProcess(process)
    return next()
  }
  const described = {
    spec: {
      'x-scope': scope,
      responses: {
        403: {
          description: `the service key lacks ${scope}, or may not use this realm or process`,
          content: PROBLEM_CONTENT,
        },
      },
    },
  }
  return Object.assign(check, { [uniqueSymbol]: described })
}

/**
 * Returns the sender of a request.
 *
 * @throws {IntegrationError} `unauthorized` if the request has no valid service key.
 */
export function callerOf(c: Context): Caller {
  const caller = c.get('caller') as Caller | undefined
  if (caller === undefined) throw unauthorized()
  return caller
}

/**
 * Identifies the caller of a request again, because its key may have been revoked, or have expired or changed, while
 * the request was processed.
 *
 * @throws {IntegrationError} `unauthorized` if the request no longer has a valid service key.
 */
export function identified(c: Context, keys: Pick<AccessKeys, 'identify'>): Caller {
  const caller = keys.identify(c.req.header('Authorization'))
  if (caller === null) throw unauthorized()
  return caller
}

/** Throws `forbidden` if the key of the request may not use the realm. */
export const requireRealm = (c: Context, realm: string): void => callerOf(c).requireRealm(realm)

/**
 * Identifies the caller of a request by the headers `Authorization` and `Acting-For`; `null` without a valid key.
 *
 * @throws {IntegrationError} if the request names a person, but the name is not acceptable or the key lacks the scope
 * `act-for`
 */
export function identify(c: Context, keys: AccessKeys): Caller | null {
  const caller = keys.identify(c.req.header('Authorization'))
  const person = c.req.header('Acting-For')
  if (caller === null || person === undefined) return caller
  caller.requireScope('act-for')
  if (!/^[\x21-\x7e]{1,100}$/.test(person))
    throw new IntegrationError(
      'invalid_request',
      'Acting-For must be 1 to 100 visible ASCII characters without spaces',
    )
  return caller.actingFor(person)
}

/**
 * The maximum length of a parameter's name in an error text. Longer names are truncated, because a client can send a
 * name of any length.
 */
const MAX_SHOWN = 64

/**
 * Rejects a request that has a query parameter other than `names`. The response is 400 `invalid_request` with the
 * parameter's name, never its value. Without this check, a caller with the misspelled parameter `?limt=10` would get
 * the default limit without noticing.
 *
 * Do not use this check for paths whose query a third party writes: an OAuth client must ignore unrecognized parameters
 * of an authorization response (RFC 6749 §4.1.2).
 */
export function onlyKnownQuery(...names: readonly string[]): MiddlewareHandler {
  const known = new Set(names)
  const allowed = names.length === 0 ? 'none is allowed here' : `allowed: ${names.join(', ')}`
  return async (c, next) => {
    // Most requests have no query and skip the check. Parsing the URL of every request made token issuance 7 to 10 %
    // slower.
    if (!c.req.url.includes('?')) return next()
    const unknown = Object.keys(c.req.queries()).filter((name) => !known.has(name))
    if (unknown.length > 0) {
      const problems = unknown
        .slice(0, 10)
        .map((name) => `${name.slice(0, MAX_SHOWN)}: is not a query parameter of this path`)
      throw new IntegrationError('invalid_request', `${problems.join('; ')} (${allowed})`, {
        members: { errors: problems },
      })
    }
    await next()
  }
}

/**
 * Returns the version that the header `If-Match: "<Version>"` names; `null` if the header is absent. The caller
 * executes its action only if the stored version is the same. A weak validator, a list and `*` are rejected, because
 * they name no single version.
 *
 * @throws {IntegrationError} `invalid_request` if the header has another form.
 */
export function ifMatch(c: Context): number | null {
  const header = c.req.header('If-Match')
  if (header === undefined) return null
  const version = /^"(\d{1,15})"$/.exec(header.trim())?.[1]
  if (version === undefined)
    throw new IntegrationError('invalid_request', 'If-Match must be one Version in double quotes')
  return Number(version)
}

/** Matches each preference of a list. A comma within a quoted string does not end a preference. */
const PREFERENCE = /(?:"(?:\\(?:.|$)|[^"\\])*(?:"|$)|[^,"])+/g
/** Matches the preference `wait` with its value. Parameters of the preference follow a semicolon. */
const WAIT = /^\s*wait\s*(?:=([^;]*))?(?:;|$)/i

/**
 * Returns the number of seconds for which the client is prepared to wait for the result of its request, from the
 * preference `wait` of the header `Prefer` (RFC 7240 §4.3). Returns `null` if the header is absent, has no such
 * preference, or if its value is not a whole number of at most nine digits, because a server ignores a preference that
 * it cannot process (RFC 7240 §2).
 */
export function preferredWaitSeconds(c: Context): number | null {
  const preferences = c.req.header('Prefer')?.match(PREFERENCE) ?? []
  // Only the first of several preferences with the same name counts.
  const value = preferences.map((one) => WAIT.exec(one)).find((wait) => wait !== null)?.[1]
  const seconds = /^(\d{1,9}|"\d{1,9}")$/.exec(value?.trim() ?? '')?.[1]
  return seconds === undefined ? null : Number(seconds.replaceAll('"', ''))
}

/** The OpenAPI description of the response header `Preference-Applied` (RFC 7240 §3). */
export const PREFERENCE_APPLIED = {
  'Preference-Applied': {
    description: 'the wait that the service has applied, such as `wait=30`',
    schema: { type: 'string' as const },
  },
}

/** Whether requests with this method may have a body. */
export const hasBody = (method: string): boolean => method !== 'GET' && method !== 'HEAD'

/**
 * Responds with 413 to a body larger than the limit of its path; `null` stands for no limit. Hono's own middleware is
 * not used, because it makes a Web stream of every body (without-web-streams.ts). It also copies a Request with a chunked
 * body, and the Request class of @hono/node-server can be copied only if it replaces the global Request, which
 * `honoListener` does not do.
 */
export function limitBody(maxBytesAt: (path: string) => number | null): MiddlewareHandler {
  return async (c, next) => {
    const { headers, method } = c.req.raw
    const maxBytes = hasBody(method) ? maxBytesAt(c.req.path) : null
    if (maxBytes === null) return next()
    const length = headers.get('Content-Length')
    if (length !== null && !headers.has('Transfer-Encoding')) {
      if (Number(length) > maxBytes) throw tooLarge(maxBytes)
      await keepArrivedBody(c, Number(length))
      return next()
    }
    // The property `raw.body` is read last, because reading it makes a Web stream. As long as this property is not read,
    // @hono/node-server reads the body directly.
    const { body } = c.req.raw
    if (body === null) return next()
    c.req.raw = new Request(c.req.url, {
      method,
      headers: [...headers],
      body: await readBody(body as AsyncIterable<Uint8Array>, maxBytes),
      signal: c.req.raw.signal,
    })
    return next()
  }
}

/**
 * Reads a request body completely.
 *
 * @throws {IntegrationError} `payload_too_large` if the body exceeds `maxBytes`; `invalid_request` if the client ends
 * the body early.
 */
async function readBody(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let size = 0
  try {
    for await (const chunk of body) {
      size += chunk.length
      if (size > maxBytes) throw tooLarge(maxBytes)
      chunks.push(chunk)
    }
  } catch (cause) {
    if (cause instanceof IntegrationError) throw cause
    // The client has closed its connection. This is not a failure of the service.
    throw new IntegrationError('invalid_request', 'the body is not complete', { cause })
  }
  return Buffer.concat(chunks)
}

const tooLarge = (maxBytes: number): IntegrationError =>
  new IntegrationError('payload_too_large', `the body may have at most ${maxBytes} bytes`)
