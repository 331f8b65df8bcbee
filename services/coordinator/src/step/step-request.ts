import { realmOf } from '@integration-host/shared/contracts/realm'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import type { JsonInput } from '../run/json-normalization.ts'
import { CONNECTION_HEADERS } from './http-call.ts'
import type { BoundTarget } from './targets.ts'
import { requireMembers } from './definition.ts'
import type {
  CallOptions,
  CreateOnceOptions,
  EntryOptions,
  ExecuteOptions,
  LinkOptions,
  Progress,
} from './step.ts'

/** A request to a URL. If the request has a credential, it goes to a path of the accounting API. */
export interface StepRequest extends RequestContent {
  /** An absolute URL. With a `credential`, `url` is only a path, which is appended to the gateway's address. */
  readonly url: string
  readonly target?: never
}

/** A request to a target of the process. */
export interface TargetRequest<Name extends string = string> extends RequestContent {
  /** The name of the target. */
  readonly target: Name
  /** The path of the request. The path begins with a slash, and is appended to the URL of the target. */
  readonly path: string
  readonly url?: never
}

/** The parts of a request that do not depend on where it is sent. */
export interface RequestContent {
  /** The HTTP method. Default: GET. */
  readonly method?: string
  /** The parameters that are appended to the URL. */
  readonly query?: Readonly<Record<string, string | number | boolean>>
  /**
   * The headers of the call. Headers of the connection, such as `Host`, are rejected, and so is the header that
   * authenticates calls to the target.
   */
  readonly headers?: Readonly<Record<string, string>>
  /** The request body. Text is sent unchanged, any other value as JSON. */
  readonly body?: JsonInput | undefined
}

export interface Gateway {
  readonly url: string
  readonly key: string
  /** Returns the error that the response body of a provider describes; `null` if the body describes none. */
  readonly faultOf: ProviderProfile['accounting']['faultOf']
  /** How long queries may not find a new object after the call that creates it was sent, in ms. */
  readonly newObjectVisibleMs: number
}

/** How a call reaches its service. If both members are undefined, the call is sent to the URL of the request. */
export interface CallRoute {
  /** If this member is set, the call is sent to the gateway, which adds the access token of the credential. */
  readonly credential: string | undefined
  readonly target: BoundTarget | undefined
}

/**
 * Builds the HTTP call of a request.
 *
 * @throws {TypeError} if the request cannot be sent, which is a bug of the step.
 */
export function outgoingCall(
  request: StepRequest | TargetRequest,
  { credential, target }: CallRoute,
  gateway: Gateway,
) {
  const isGateway = credential !== undefined
  const url = urlOf(request, { credential, target }, gateway)
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw new TypeError('a step can only call http(s) addresses')
  const method = (request.method ?? 'GET').toUpperCase()
  if (!/^[A-Z]{1,20}$/.test(method))
    throw new TypeError('the method of a call must be an HTTP method')
  if (request.query !== undefined)
    for (const [name, value] of Object.entries(request.query))
      url.searchParams.append(name, String(value))
  const isText = typeof request.body === 'string'
  const body =
    request.body === undefined ? null : isText ? request.body : JSON.stringify(request.body)
  const headers: Record<string, string> = {
    accept: 'application/json',
    'accept-encoding': 'gzip, br, deflate, zstd',
    ...(body !== null && !isText && { 'content-type': 'application/json' }),
    ...(request.headers !== undefined && headersOf(request.headers, target)),
  }
  if (isGateway) headers['authorization'] = `Bearer ${gateway.key}`
  if (target?.auth) headers[target.auth.name] = target.auth.value.reveal()
  return { method, url, headers, body }
}

/**
 * @throws {TypeError} for invalid header names and values, and for the header that authenticates calls to the target.
 */
function headersOf(
  given: Readonly<Record<string, string>>,
  target: BoundTarget | undefined,
): Record<string, string> {
  // `new Headers` drops the member `__proto__` of an object.
  const pairs = Object.hasOwn(given, '__proto__') ? Object.entries(given) : given
  const headers = Object.fromEntries(new Headers(pairs))
  const foreign = Object.keys(headers).find(
    (name) => CONNECTION_HEADERS.has(name) || name === target?.auth?.name,
  )
  if (foreign !== undefined) throw new TypeError(`a step must not set the header ${foreign}`)
  return headers
}

function urlOf(
  request: StepRequest | TargetRequest,
  { credential, target }: CallRoute,
  gateway: Gateway,
): URL {
  if (target === undefined) {
    const address = request.url
    if (typeof address !== 'string')
      throw new TypeError('a request needs a url, or target and path')
    if (credential !== undefined) return gatewayUrl(address, credential, gateway.url)
    if (address.startsWith('/'))
      throw new TypeError(
        "a call to a path such as /v3/company/… needs a credential: execute(request, { credential: 'ACC-<realm>' })",
      )
    return new URL(address)
  }
  if (credential !== undefined)
    throw new TypeError('a call has a target or a credential: the gateway has one address')
  if (request.url !== undefined || typeof request.path !== 'string')
    throw new TypeError('a request to a target has a path instead of a url')
  return targetUrl(request.path, target)
}

function targetUrl(path: string, target: BoundTarget): URL {
  const base = new URL(target.url)
  const url = new URL(target.url + path)
  // A path must not lead to another host, because the call contains the key of the target.
  const isBelow = url.pathname.startsWith(`${base.pathname.replace(/\/$/, '')}/`)
  if (!path.startsWith('/') || url.origin !== base.origin || !isBelow)
    throw new TypeError('the path of a call must begin with a slash and stay below its target')
  return url
}

function gatewayUrl(path: string, credential: string, gateway: string): URL {
  const realm = realmOf(credential)
  const url = new URL(gateway + path)
  // The call contains the coordinator's service key, so it must be sent only to the gateway and only for the named
  // realm.
  if (!path.startsWith('/') || url.origin !== new URL(gateway).origin)
    throw new TypeError('the url of a call with a credential must be a path, not an address')
  if (!credential.startsWith('ACC-') || !url.pathname.startsWith(`/v3/company/${realm}/`))
    throw new TypeError(`the path must be below /v3/company/<realm>/ of ${credential}`)
  return url
}

/** The methods that make a call. */
export type CallName = 'execute' | 'createOnce' | 'fetch' | 'find' | 'update'

// The members that the arguments of step methods may have. A member with another name would be ignored, and a step that
// misspells `timeoutMs` or `body` would do something else than it says.
const CALL_OPTIONS = ['credential', 'timeoutMs'] as const satisfies (keyof CallOptions)[]
const OPTIONS: Readonly<Record<CallName, ReadonlySet<string>>> = {
  execute: new Set([...CALL_OPTIONS, 'parse'] satisfies (keyof ExecuteOptions<null>)[]),
  createOnce: new Set(CALL_OPTIONS),
  fetch: new Set(CALL_OPTIONS),
  update: new Set(['parse', 'timeoutMs', 'credential']),
  find: new Set([...CALL_OPTIONS, 'parse'] satisfies (keyof ExecuteOptions<null>)[]),
}
const REQUEST = new Set<string>([
  'url',
  'target',
  'path',
  'method',
  'query',
  'headers',
  'body',
] satisfies (keyof StepRequest | keyof TargetRequest)[])

export const CREATE_ONCE_OPTIONS = new Set<string>([
  'mark',
  'onExisting',
  'parse',
  'timeoutMs',
] satisfies (keyof CreateOnceOptions<'Invoice', null>)[])
export const MARK_MEMBERS = new Set(['field', 'value'])
export const ENTRY_OPTIONS = new Set<string>([
  'process',
  'transaction',
  'step',
] satisfies (keyof EntryOptions)[])
export const FAIL_OPTIONS = new Set(['undo'])
export const REPEAT_OPTIONS = new Set(['afterMs'])
export const LINK_OPTIONS = new Set<string>([
  'for',
  'expiresInSeconds',
] satisfies (keyof LinkOptions)[])
export const PROGRESS = new Set<string>(['done', 'of', 'note'] satisfies (keyof Progress)[])

/** @throws {TypeError} for an unknown member of the request or of the options */
export function requireCall(request: unknown, options: object, method: CallName): void {
  requireMembers(options, OPTIONS[method], method)
  // What a request must have at least is checked when the call is built.
  if (typeof request !== 'object' || request === null) return
  const misplaced = Object.keys(request).find((member) => OPTIONS[method].has(member))
  if (misplaced !== undefined)
    throw new TypeError(
      `the request of ${method} has no member ${misplaced}: it belongs to the options, ${method}(request, { ${misplaced} })`,
    )
  requireMembers(request, REQUEST, `the request of ${method}`)
}
