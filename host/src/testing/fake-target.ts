/** Fake services that the steps of a test call. They respond, or fail, as an HTTP server does. */
import type { JsonInput } from '@integration-host/coordinator/api'
import type { CallOutcome, CallRequest, HttpCall } from '@integration-host/coordinator/http-call'
import { OWN_TEXT, parseJson } from '@integration-host/shared/json'
import { type CallExpectation, requireCalls } from './expected-calls.ts'
import { type Duration, milliseconds } from './duration.ts'
import { requireKnownMembers, requireOneOf } from './known-members.ts'
import type { WorkInFlight } from './work-in-flight.ts'

/** A call that a target has received. */
export interface TargetCall {
  readonly method: string
  readonly path: string
  readonly query: Readonly<Record<string, string>>
  /** The headers of the call. Their names are in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** The body: parsed JSON, or the text if it is not JSON; `null` if there is no body. */
  readonly body: unknown
  /** The `Idempotency-Key` of the call. */
  readonly key: string | null
  /** The time on the clock of the test host, in epoch ms. */
  readonly at: number
}

/** A response of a fake target. */
export interface TargetResponse {
  /** The status of the response. Default: 200. */
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  /** The body. Text is sent unchanged, any other value as JSON. Text that is not JSON has the type `text/plain`, unless `headers` name another one. */
  readonly body?: JsonInput | undefined
  /** The time until the response, on the clock of the test host. By default, the response is immediate. */
  readonly after?: Duration
}

/**
 * How a target replies. `refuse` rejects the connection. `hang up` closes the connection after the request was
 * received. `no response` keeps the connection open until the time limit of the call.
 */
export type TargetReply = TargetResponse | 'refuse' | 'hang up' | 'no response'

/** The replies to the calls of a route: one reply for all calls, a list whose last reply is repeated, or a function. */
export type TargetReplies =
  | TargetReply
  | readonly [TargetReply, ...TargetReply[]]
  | ((call: TargetCall) => TargetReply | Promise<TargetReply>)

/**
 * A fake service that takes the place of a real service. The fake targets of a test host are not servers. They receive
 * the calls of `execute`, `fetch` and `find`, but not the calls that a step makes in another way.
 */
export interface FakeTarget {
  /** The address of the target, without a trailing slash. */
  readonly url: string
  /** The received calls, oldest first. */
  readonly calls: readonly TargetCall[]
  /**
   * Sets the replies to a route: a method and a path, such as `POST /orders` or `GET /orders/:id`, in which `:id`
   * matches one segment. The route that was set last takes precedence. Without a route, a call gets a 404.
   */
  on(route: string, replies: TargetReplies): FakeTarget
  /**
   * Checks the calls of a route.
   *
   * @throws {AssertionError} if no call matches the expectation, or if the number of matching calls is not `times`. The
   * message lists the received calls.
   */
  toHaveCalled(route: string, expected?: CallExpectation): void
}

/**
 * What a target does with a call: the outcome for the caller after `afterMs` milliseconds. `null` means that the caller
 * gets no outcome.
 */
export interface Replied {
  readonly outcome: CallOutcome
  readonly afterMs: number | null
}

export interface ServedTarget extends FakeTarget {
  /** Whether the target serves this URL. */
  serves(url: URL): boolean
  serve(request: CallRequest): Promise<Replied>
}

/** @throws {TypeError} if the address is not an HTTP URL. */
export function createFakeTarget(address: string, now: () => number): ServedTarget {
  const base = URL.canParse(address) ? new URL(address) : null
  if (base === null || !/^https?:$/.test(base.protocol))
    throw new TypeError(
      `host.target('${address}'): must be the URL of the target, such as https://erp.test, and not its name`,
    )
  const basePath = base.pathname.replace(/(?<!\/)\/+$/, '')
  const routes: { readonly matches: RouteMatcher; readonly next: NextReply }[] = []
  const calls: TargetCall[] = []

  const target: ServedTarget = {
    url: base.origin + basePath,
    calls,
    on(route, replies) {
      if (typeof replies !== 'function')
        for (const reply of isList(replies) ? replies : [replies]) requireReply(route, reply)
      routes.unshift({ matches: routeMatcher(route), next: nextReply(replies) })
      return target
    },
    toHaveCalled: (route, expected = {}) =>
      requireCalls({ url: target.url, calls, route, matches: routeMatcher(route) }, expected),
    serves: ({ origin, pathname }) =>
      origin === base.origin && (pathname === basePath || pathname.startsWith(`${basePath}/`)),
    async serve(request) {
      const call = receivedCall(request, basePath, now())
      const route = routes.find(({ matches }) => matches(call))
      const reply = route === undefined ? noRoute(call) : await route.next(call)
      requireReply(`${call.method} ${call.path}`, reply)
      if (reply !== 'refuse') calls.push(call)
      return repliedOf(reply)
    },
  }
  return target
}

/** Returns a call as the target sees it, with its path below `basePath`. */
export const receivedCall = (
  { method, url, headers, body }: CallRequest,
  basePath: string,
  at: number,
): TargetCall => ({
  method,
  path: url.pathname.slice(basePath.length) || '/',
  query: Object.fromEntries(url.searchParams),
  headers,
  body: isJson(headers) ? parseJson(body ?? '') : body,
  key: headers['idempotency-key'] ?? null,
  at,
})

const isJson = ({ 'content-type': type = '' }: CallRequest['headers']): boolean =>
  /^application\/(?:[^;]+\+)?json\b/i.test(type)

export type RouteMatcher = (call: Pick<TargetCall, 'method' | 'path'>) => boolean

/** @throws {TypeError} if the route is not a method and a path. */
export function routeMatcher(route: string): RouteMatcher {
  const [, method, pathname] = /^([A-Z]+) (\/\S*)$/.exec(route) ?? []
  if (method === undefined || pathname === undefined)
    throw new TypeError(`${JSON.stringify(route)} is not a route, such as 'POST /orders'`)
  const pattern = new URLPattern({ pathname })
  return (call) => call.method === method && pattern.test({ pathname: call.path })
}

const FAILURES = ['refuse', 'hang up', 'no response']
const RESPONSE_MEMBERS = ['status', 'headers', 'body', 'after'] satisfies (keyof TargetResponse)[]

/** @throws {TypeError} if a test has set a reply that a target cannot send. */
function requireReply(route: string, reply: TargetReply): void {
  const what = `the reply to ${route}`
  if (typeof reply === 'string') return requireOneOf(what, reply, FAILURES)
  requireKnownMembers(what, reply, RESPONSE_MEMBERS)
  const { status = 200 } = reply
  if (!Number.isInteger(status) || status < 200 || status > 599)
    throw new TypeError(`${what} has the status ${status}; it must be from 200 to 599`)
}

type NextReply = (call: TargetCall) => TargetReply | Promise<TargetReply>

function nextReply(replies: TargetReplies): NextReply {
  if (typeof replies === 'function') return replies
  const [...left] = isList(replies) ? replies : [replies]
  return () => (left.length > 1 ? left.shift() : left[0]) as TargetReply
}

const isList = (replies: TargetReplies): replies is readonly [TargetReply, ...TargetReply[]] =>
  Array.isArray(replies)

const noRoute = ({ method, path }: TargetCall): TargetResponse => ({
  status: 404,
  body: { error: `the fake target has no reply to ${method} ${path}` },
})

/** Returns the media type of a body. A step that asks for JSON retries a response of text. */
const typeOf = (body: JsonInput): string =>
  typeof body !== 'string' || parseJson(body, OWN_TEXT) !== undefined
    ? 'application/json'
    : 'text/plain'

function repliedOf(reply: TargetReply): Replied {
  switch (reply) {
    case 'refuse':
      return { outcome: { kind: 'failed', reason: 'ECONNREFUSED', isSent: false }, afterMs: 0 }
    case 'hang up':
      return { outcome: { kind: 'failed', reason: 'ECONNRESET', isSent: true }, afterMs: 0 }
    case 'no response':
      return { outcome: { kind: 'failed', reason: 'ETIMEDOUT', isSent: true }, afterMs: null }
    default: {
      const { status = 200, headers = {}, body, after = 0 } = reply
      const isText = typeof body === 'string' || body === undefined
      const sent = new Headers({
        ...(body !== undefined && { 'content-type': typeOf(body) }),
        ...headers,
      })
      return {
        outcome: {
          kind: 'answered',
          status,
          headers: [...sent].flat(),
          body: isText ? (body ?? '') : JSON.stringify(body),
          retryAfter: sent.get('retry-after'),
          responseId: sent.get('intuit_tid') ?? sent.get('x-request-id'),
        },
        afterMs: milliseconds(after),
      }
    }
  }
}

export interface CallTargetsDeps {
  /** Returns the target that serves a URL. */
  readonly targetOf: (url: URL) => ServedTarget | undefined
  readonly work: WorkInFlight
  /** Called for a call to an address that no target serves. */
  readonly onUnknownAddress: (method: string, url: URL) => void
}

/**
 * Returns the function with which steps call the fake targets. Time limits and late responses follow the virtual clock.
 */
export const createTargetCaller =
  ({ targetOf, work, onUnknownAddress }: CallTargetsDeps): HttpCall =>
  async (request, { abort, timeoutMs }) => {
    if (abort.areNewCallsBlocked) return { kind: 'aborted', isSent: false }
    const target = targetOf(request.url)
    if (target === undefined) {
      onUnknownAddress(request.method, request.url)
      return { kind: 'failed', reason: 'ENOTFOUND', isSent: false }
    }
    const { outcome, afterMs } = await target.serve(request)
    if (afterMs === 0) return outcome
    const isInTime = afterMs !== null && afterMs < timeoutMs
    const isPassed = await work.pause(
      isInTime ? afterMs : timeoutMs,
      abort,
      () => abort.reason !== null,
    )
    if (!isPassed) return { kind: 'aborted', isSent: true }
    return isInTime ? outcome : { kind: 'failed', reason: 'ETIMEDOUT', isSent: true }
  }
