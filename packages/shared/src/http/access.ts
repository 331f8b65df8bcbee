import type { Context, MiddlewareHandler } from 'hono'
import { uniqueSymbol } from 'hono-openapi'
import { type AccessKeys, unauthorized } from '../access/access-keys.ts'
import type { Caller } from '../access/caller.ts'
import type { Scope } from '../access/scope.ts'
import { realmOf } from '../contracts/realm.ts'
import { IntegrationError } from '../errors.ts'
import { PROBLEM_CONTENT } from './openapi.ts'

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
