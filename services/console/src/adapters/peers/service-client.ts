import { hasProblem, ProblemError, statusOf } from '@integration-host/client/problem'
import {
  createService,
  dataOf,
  type Reply,
  type Service,
  type ServiceRequest,
} from '@integration-host/client/service'
import { errorCodes, IntegrationError } from '@integration-host/shared/errors'
import { reasonOf } from '@integration-host/shared/observability/health'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { z } from 'zod'
import type { MissingService } from '../../contracts/services.ts'

type Method = ServiceRequest['method']

/** A request that the console sends for an action of a person. */
export interface PersonalRequest extends Pick<
  ServiceRequest,
  'method' | 'body' | 'text' | 'ifVersion'
> {
  /** The name of the person, for the action log and the audit log. */
  readonly person: string
  /** Called with the headers and the status of a successful response. */
  readonly onHeaders?: (headers: Reply['headers'], status: number) => void
}

export interface ServiceClient extends Pick<Service, 'open'> {
  /**
   * Reads a resource of the service. Members that `schema` does not know are dropped.
   *
   * @throws {ProblemError} the service does not respond within the deadline, or not with the expected body.
   */
  read<Schema extends z.ZodType>(path: string, schema: Schema): Promise<z.output<Schema>>
  /**
   * Sends a request for a person, and returns the body of the response; `null` if its status is 204.
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
  const service = createService({ url, key })
  /** The time of the first of the latest requests that got no response; `null` while the service responds. */
  let silentSince: number | null = null

  /** Sends a request, and records whether the service responds. */
  async function exchange(path: string, request: ServiceRequest): Promise<Reply> {
    try {
      const reply = await service.send(path, request)
      silentSince = null
      return reply
    } catch (error) {
      silentSince ??= now()
      throw error
    }
  }

  return {
    open: service.open,
    read: async (path, schema) =>
      dataOf(await exchange(path, { timeoutMs: READ_DEADLINE_MS }), schema),
    async send(path, { person, onHeaders, ...request }, schema) {
      const { method = 'GET' } = request
      try {
        const reply = await exchange(path, {
          ...request,
          ...(canActFor && { headers: { 'Acting-For': person } }),
          timeoutMs: method === 'GET' ? READ_DEADLINE_MS : ACTION_DEADLINE_MS,
        })
        if (reply.status < 300) onHeaders?.(reply.headers, reply.status)
        return dataOf(reply, schema)
      } catch (error) {
        if (!(error instanceof ProblemError)) throw error
        if (!hasProblem(error, 'connection_failed')) throw failureOf(name, method, error)
        const since = silentSince === null ? {} : { since: new Date(silentSince).toISOString() }
        throw noResponse(name, method, error, since)
      }
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

/** Returns the error for a missing response. */
export function noResponse(
  name: string,
  method: Method,
  cause: unknown,
  members: Readonly<Record<string, unknown>> = {},
): IntegrationError {
  const reason = reasonOfSilence(cause)
  const message = `${name} does not respond (${reason})`
  return NOT_SENT.has(reason)
    ? unavailable(message, cause, members)
    : unusable(method, message, cause, members)
}

/** Returns the error for a response that is not a success. The message of a problem document is meant for callers. */
function failureOf(name: string, method: Method, error: ProblemError): IntegrationError {
  const { problem, cause } = error
  const status = statusOf(error)
  const isOwn = 'type' in problem // without a problem document, the response comes from a proxy
  const message = (isOwn && problem.detail) || `${name} responded with ${status}`
  // A 401 or 403 from a service concerns the key of the console. The browser must not get this status, because it would
  // interpret the status as an error of the person's session or role.
  if (status === 401 || status === 403)
    return new IntegrationError('console_key_rejected', `${name}: ${message}`)
  if (isOwn && Object.hasOwn(errorCodes, problem.code))
    return new IntegrationError(problem.code, message, {
      ...('errors' in problem &&
        isTexts(problem.errors) && { members: { errors: problem.errors } }),
    })
  return cause === undefined
    ? unusable(method, message, null)
    : unusable(method, `${name} responded in another form`, cause)
}

const isTexts = (value: unknown): boolean =>
  Array.isArray(value) && value.every((one) => typeof one === 'string')

/** Returns a short reason why a request got no response, such as `ECONNREFUSED`. */
export function reasonOfSilence(error: unknown): string {
  const reason = reasonOf(error)
  return reason === 'TimeoutError' ? 'no response in time' : reason
}

export interface PartOfService<Part> {
  readonly part: Part
  /** The service, if its part is missing. */
  readonly unavailable: readonly MissingService[]
}

/**
 * Resolves to the part of a response that is read from `service`. If the service does not respond, resolves to `empty`, so
 * that the parts of the other services can be shown.
 *
 * @throws {IntegrationError} the service rejects the request as invalid.
 */
export async function partOf<Part>(
  service: string,
  read: Promise<Part>,
  empty: Part,
): Promise<PartOfService<Part>> {
  try {
    return { part: await read, unavailable: [] }
  } catch (error) {
    if (!(error instanceof IntegrationError) || error.code === 'invalid_request') throw error
    const { code, message, members } = error
    const since = typeof members['since'] === 'string' ? members['since'] : null
    const detail = message.includes(service) ? message : `${service}: ${message}`
    return {
      part: empty,
      unavailable: [{ Service: service, Code: code, Detail: detail, Since: since }],
    }
  }
}
