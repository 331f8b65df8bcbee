/**
 * Requests to one service of an installation. The published client and the programs of the Integration Host are built
 * on these requests, so that all of them present their key, limit their time, read a body and report a problem in the
 * same way.
 */
import { boundedText } from '@integration-host/shared/http/response-body'
import { type JsonLimits, parseJson, SERVICE_LIMITS } from '@integration-host/shared/json'
import { sendWithAttempts, withTimeout } from './attempts.ts'
import { type ProblemError, serviceProblem, unexpectedResponse } from './problem.ts'

/** A function such as the global `fetch`. */
export type Fetch = (
  url: string,
  init: RequestInit & { readonly headers: Readonly<Record<string, string>> },
) => Promise<Response>

export interface ServiceOptions {
  /** The address of the service, without a trailing slash. */
  readonly url: string
  /** The service key; `null` for routes that need none. */
  readonly key: { reveal(): string } | null
  /** Sends the requests; by default the global `fetch`. */
  readonly fetch?: Fetch
  /** Sends the requests whose response is read as a whole; by default with `fetch`. */
  readonly exchange?: Exchange
  /** How long an attempt waits for its whole response, in milliseconds; 60,000 by default. */
  readonly timeoutMs?: number
  /**
   * What becomes of a redirect, which could send the service key to another server. With `manual`, the default, it is a
   * response; with `error` it counts as no response.
   */
  readonly redirect?: 'manual' | 'error'
  /** The largest body that is read as a whole, in bytes; unlimited by default. */
  readonly maxBytes?: number
  /** The maximum number of attempts for a request that may be repeated; 1 by default. */
  readonly attempts?: number
  /** The pause before the second attempt, in milliseconds; 500 by default. */
  readonly pauseMs?: number
}

export interface ServiceRequest {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** The body, which is sent as JSON. */
  readonly body?: unknown
  /** A body that is sent unchanged, in place of `body`. */
  readonly text?: { readonly type: string; readonly content: string } | undefined
  /** The version that a resource must still have, so that the service changes it. */
  readonly ifVersion?: number | undefined
  readonly headers?: Readonly<Record<string, string>>
  /** Replaces {@link ServiceOptions.timeoutMs}. */
  readonly timeoutMs?: number
  readonly signal?: AbortSignal | undefined
  /** Whether the request may be sent again after a temporary failure. */
  readonly isRepeatable?: boolean
}

/** A response that was read as a whole. */
export interface Reply {
  readonly status: number
  readonly headers: Pick<Headers, 'get'>
  readonly text: string
}

/** Sends one request, and resolves with its whole response. Rejects if no whole response arrives in time. */
export type Exchange = (request: {
  readonly method: string
  /** The path below the address of the service, with the query. */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | null
  readonly timeoutMs: number
  readonly signal: AbortSignal | undefined
}) => Promise<Reply>

/** Checks and types a value, as the schemas of zod do. */
export interface Schema<T> {
  safeParse(
    value: unknown,
  ): { readonly success: true; readonly data: T } | { readonly success: false; error?: unknown }
}

/**
 * Each method throws a {@link ProblemError} `connection_failed` if no response arrives. If the signal of the request is
 * aborted, the methods throw its reason.
 */
export interface Service {
  /** Sends a request, and returns its response with any status. */
  readonly send: (path: string, request?: ServiceRequest) => Promise<Reply>
  /** Sends a request, and returns the body of the response. @throws {ProblemError} as {@link dataOf} does. */
  readonly request: <T>(path: string, schema: Schema<T>, request?: ServiceRequest) => Promise<T>
  /**
   * Sends a request, and returns its response as soon as the body begins. Only the signal of the request limits the
   * time.
   *
   * @throws {ProblemError} if the status is not that of a success.
   */
  readonly open: (path: string, request?: ServiceRequest) => Promise<Response>
}

/** Returns the client of a service, without sending a request. */
export function createService(options: ServiceOptions): Service {
  const { url, key, redirect = 'manual', timeoutMs: usualMs = 60_000 } = options
  // The `fetch` of a browser must be called as a function of the global object.
  const send: Fetch = options.fetch ?? ((input, init) => fetch(input, init))
  const exchange = options.exchange ?? exchangeOver(send)
  const connection = { attempts: options.attempts ?? 1, pauseMs: options.pauseMs ?? 500 }

  function exchangeOver(fetching: Fetch): Exchange {
    return ({ path, timeoutMs, signal, ...init }) =>
      withTimeout(timeoutMs, signal, async (limited) => {
        const response = await fetching(url + path, { ...init, redirect, signal: limited })
        const text = await boundedText(response, options.maxBytes ?? Number.POSITIVE_INFINITY)
        return { status: response.status, headers: response.headers, text }
      })
  }
  const partsOf = ({ method = 'GET', body, text, ifVersion, headers }: ServiceRequest) => ({
    method,
    headers: {
      ...(key !== null && { Authorization: `Bearer ${key.reveal()}` }),
      Accept: 'application/json',
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
      ...(text !== undefined && { 'Content-Type': text.type }),
      ...(ifVersion !== undefined && { 'If-Match': `"${ifVersion}"` }),
      ...headers,
    },
    body: text?.content ?? (body === undefined ? null : JSON.stringify(body)),
  })
  async function replyTo(path: string, request: ServiceRequest = {}): Promise<Reply> {
    const { timeoutMs = usualMs, signal, isRepeatable = false } = request
    const one = { ...partsOf(request), path, timeoutMs, signal }
    return sendWithAttempts(connection, {
      send: () => exchange(one),
      isRepeatable: () => isRepeatable,
      signal,
    })
  }

  return {
    send: replyTo,
    request: async (path, schema, request) => dataOf(await replyTo(path, request), schema),
    async open(path, request = {}) {
      const init = { ...partsOf(request), redirect, cache: 'no-store' } as const
      const response = await sendWithAttempts(connection, {
        send: () => send(url + path, { ...init, signal: request.signal ?? null }),
        isRepeatable: () => false,
        signal: request.signal,
      })
      if (response.ok) return response
      throw rejectionOf(response, await boundedText(response).catch(() => ''))
    },
  }
}

/**
 * Returns the body of a response; `null` if its status is 204.
 *
 * @throws {ProblemError} the problem that the service reports. `response_unexpected` if the response is not one of the
 *   service; the `cause` is the error of the schema.
 */
export function dataOf<T>(reply: Reply, schema: Schema<T>, limits: JsonLimits = SERVICE_LIMITS): T {
  const { status, text } = reply
  if (status < 200 || status >= 300) throw rejectionOf(reply, text)
  const result = schema.safeParse(status === 204 ? null : parseJson(text, limits))
  if (result.success) return result.data
  throw unexpectedResponse(reply, result.error)
}

/** Returns the error for a response whose status is not that of a success. */
const rejectionOf = (response: Omit<Reply, 'text'>, text: string): ProblemError =>
  serviceProblem(response, text) ?? unexpectedResponse(response)
