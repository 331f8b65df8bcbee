import { type ErrorCode, errorCodes, IntegrationError } from '@integration-host/shared/errors'
import { parseJson, SERVICE_LIMITS } from '@integration-host/shared/json'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { z } from 'zod'

/**
 * The error for a missing or unexpected response of a service. The message does not contain the body of the response.
 */
export class PeerFailed extends Error {
  override readonly name = 'PeerFailed'
  /** The HTTP status; `null` if there was no response. */
  readonly status: number | null

  constructor(message: string, status: number | null, options?: ErrorOptions) {
    super(message, options)
    this.status = status
  }
}

type Method = 'GET' | 'POST' | 'PATCH' | 'DELETE'

/** A request that the console sends for an action of a person. */
export interface PersonalRequest {
  readonly method?: Method
  /** The name of the person, for the action log and the audit log. */
  readonly person: string
  readonly body?: object
  /** A body that is sent unchanged, in place of `body`. */
  readonly text?: { readonly type: string; readonly content: string }
  /** The version that the person has seen. The service rejects the request if a newer version exists. */
  readonly ifVersion?: number | undefined
  /** Called with the headers and the status of a successful response. */
  readonly onHeaders?: (headers: Headers, status: number) => void
}

export interface ServiceClient {
  /**
   * Reads a resource of the service. Members that `schema` does not know are dropped.
   *
   * @throws {PeerFailed} the service does not respond within the deadline, or not with 200 and the expected body.
   */
  read<Schema extends z.ZodType>(path: string, schema: Schema): Promise<z.output<Schema>>
  /**
   * Sends a request for a person, and returns the body of the response; `null` if the response has no body.
   *
   * @throws {IntegrationError} with the code and the message of the service; `service_unavailable` with the member
   * `since` if the service does not respond, and `console_key_rejected` if the service does not accept the key of the console.
   * `outcome_unknown` if an action may have been executed, and the service has sent no usable response.
   */
  send<Schema extends z.ZodType>(
    path: string,
    request: PersonalRequest,
    schema: Schema,
  ): Promise<z.output<Schema>>
  /** Opens an endless response, such as the event stream. `signal` closes it. */
  open(
    path: string,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Response>
}

/** The reasons for which a request was not sent, because there is no connection. */
const NOT_SENT: ReadonlySet<string> = new Set([
  'EAI_AGAIN',
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'UND_ERR_CONNECT_TIMEOUT',
])
const READ_DEADLINE_MS = 5_000
/** The timeout is long, because a refresh waits for the provider. */
const ACTION_DEADLINE_MS = 60_000

export interface ServiceClientDeps {
  /** The name of the service in messages. */
  readonly name: string
  /** The address of the service, without a trailing slash. */
  readonly url: string
  readonly key: Secret
  /**
   * Whether the key has the scope `act-for`, so that requests may name the acting person in the header `Acting-For`. A
   * service key does not have this scope.
   */
  readonly canActFor: boolean
  /** The time in epoch milliseconds. */
  readonly now?: () => number
}

/** Returns a client that presents the console's key. */
export function createServiceClient({
  name,
  url,
  key,
  canActFor,
  now = Date.now,
}: ServiceClientDeps): ServiceClient {
  const authorization = () => ({ Authorization: `Bearer ${key.reveal()}` })
  /** The time of the first of the latest requests that got no response; `null` while the service responds. */
  let silentSince: number | null = null

  /** Sends a request, and records whether the service responds. */
  async function exchange(
    path: string,
    options: RequestInit,
  ): Promise<{ readonly response: Response; readonly text: string }> {
    try {
      const response = await fetchOf(url + path, options)
      const received = await textOf(response)
      silentSince = null
      return { response, text: received }
    } catch (error) {
      silentSince ??= now()
      throw error
    }
  }

  /** Sends a request, and returns the response with any status. @throws {PeerFailed} there is no response. */
  async function respond(
    path: string,
    { method = 'GET', person, body, text, ifVersion, onHeaders }: PersonalRequest,
  ): Promise<{ readonly status: number; readonly body: unknown }> {
    const sent =
      body === undefined ? text : { type: 'application/json', content: JSON.stringify(body) }
    const { response, text: received } = await exchange(path, {
      method,
      headers: {
        ...authorization(),
        ...(canActFor && { 'Acting-For': person }),
        ...(sent !== undefined && { 'Content-Type': sent.type }),
        ...(ifVersion !== undefined && { 'If-Match': `"${ifVersion}"` }),
      },
      ...(sent !== undefined && { body: sent.content }),
      redirect: 'manual',
      signal: AbortSignal.timeout(method === 'GET' ? READ_DEADLINE_MS : ACTION_DEADLINE_MS),
    })
    if (response.ok) onHeaders?.(response.headers, response.status)
    return {
      status: response.status,
      body: received === '' ? null : parseJson(received, SERVICE_LIMITS),
    }
  }

  return {
    async send(path, request, schema) {
      const { method = 'GET' } = request
      const { status, body } = await respond(path, request).catch((error: unknown) => {
        if (!(error instanceof PeerFailed)) throw error
        const since = silentSince === null ? {} : { since: new Date(silentSince).toISOString() }
        throw noResponse(name, method, error.message, error, since)
      })
      if (status >= 400) throw problemOf(name, method, status, body)
      const parsed = schema.safeParse(body)
      if (parsed.success) return parsed.data
      throw unusable(method, `${name} responded in another form`, parsed.error)
    },
    async read(path, schema) {
      const { response, text } = await exchange(path, {
        headers: authorization(),
        redirect: 'manual',
        signal: AbortSignal.timeout(READ_DEADLINE_MS),
      })
      if (response.status !== 200)
        throw new PeerFailed(`status ${response.status}`, response.status)
      const parsed = schema.safeParse(parseJson(text, SERVICE_LIMITS))
      if (!parsed.success) throw new PeerFailed('the response has another form', 200)
      return parsed.data
    },
    async open(path, headers, signal) {
      const response = await fetchOf(url + path, {
        headers: { ...authorization(), ...headers },
        redirect: 'manual',
        signal,
      })
      if (response.status === 200) return response
      await response.body?.cancel()
      throw new PeerFailed(`status ${response.status}`, response.status)
    },
  }
}

const unavailable = (
  message: string,
  cause: unknown,
  members: Readonly<Record<string, unknown>> = {},
): IntegrationError =>
  new IntegrationError('service_unavailable', message, { cause, retryAfterSeconds: 5, members })

/** Returns the error for a response that says nothing about the request. If the request is an action, it may have been executed. */
const unusable = (
  method: Method,
  message: string,
  cause: unknown,
  members: Readonly<Record<string, unknown>> = {},
): IntegrationError =>
  method === 'GET'
    ? unavailable(message, cause, members)
    : new IntegrationError(
        'outcome_unknown',
        `${message}. Look whether the action has taken effect`,
        { cause, members },
      )

/** Returns the error for a missing response. `reason` is the result of {@link reasonOfFetch}. */
export function noResponse(
  name: string,
  method: Method,
  reason: string,
  cause: unknown,
  members: Readonly<Record<string, unknown>> = {},
): IntegrationError {
  const message = `${name} does not respond (${reason})`
  return NOT_SENT.has(reason)
    ? unavailable(message, cause, members)
    : unusable(method, message, cause, members)
}

/** Returns the error for a problem document of a service. Its message is meant for callers. */
function problemOf(name: string, method: Method, status: number, body: unknown): IntegrationError {
  const { code, detail, errors } = (body ?? {}) as Readonly<Record<string, unknown>>
  const message = typeof detail === 'string' ? detail : `${name} responded with ${status}`
  // A 401 or 403 from a service concerns the key of the console. The browser must not get this status, because it would
  // interpret the status as an error of the person's session or role.
  if (status === 401 || status === 403)
    return new IntegrationError('console_key_rejected', `${name}: ${message}`)
  return typeof code === 'string' && Object.hasOwn(errorCodes, code)
    ? new IntegrationError(code as ErrorCode, message, {
        ...(isTexts(errors) && { members: { errors } }),
      })
    : // Without a problem document, the response comes from a proxy.
      unusable(method, message, null)
}

const isTexts = (value: unknown): boolean =>
  Array.isArray(value) && value.every((one) => typeof one === 'string')

const fetchOf = (url: string, options: RequestInit): Promise<Response> =>
  fetch(url, options).catch(failed)

const textOf = (response: Response): Promise<string> => response.text().catch(failed)

function failed(error: unknown): never {
  throw new PeerFailed(reasonOfFetch(error), null, { cause: error })
}

/** Returns a short reason why a request got no response, such as `ECONNREFUSED`. */
export function reasonOfFetch(error: unknown): string {
  const { name, cause } = error as { readonly name?: string; readonly cause?: { code?: string } }
  if (name === 'TimeoutError') return 'no response in time'
  return cause?.code ?? 'no response'
}
