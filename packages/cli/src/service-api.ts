/** The client of a service's HTTP API. Its failures are those of the command. */
import { hasProblem, ProblemError } from '@integration-host/client/problem'
import {
  createService,
  dataOf,
  type Reply,
  type ServiceRequest,
} from '@integration-host/client/service'
import { Fault } from '@integration-host/shared/contracts/credential'
import { readLines } from '@integration-host/shared/http/response-body'
import { parseJson, SERVICE_LIMITS } from '@integration-host/shared/json'
import { reasonOf } from '@integration-host/shared/observability/health'
import { z } from 'zod'
import { CommandFailed, exitCodes } from './exit-code.ts'
import { faultLines } from './fault-lines.ts'
import { addressOf, type Connection, readConnection, type ServiceName } from './settings.ts'
import { plain, type Terminal } from './terminal.ts'

/** Sends requests to a service. Every method throws {@link CommandFailed}, which has the exit code of the failure. */
export interface ServiceApi {
  get<T>(path: string, schema: z.ZodType<T>): Promise<T>
  /** Posts a JSON body, and returns the body of the response. */
  post<T>(
    path: string,
    body: unknown,
    schema: z.ZodType<T>,
    options?: Pick<ServiceRequest, 'ifVersion' | 'timeoutMs'>,
  ): Promise<T>
  /** Sends a request, and returns the response with its body. */
  send<T>(
    path: string,
    schema: z.ZodType<T>,
    request: ServiceRequest,
  ): Promise<Pick<Reply, 'status' | 'headers'> & { readonly data: T }>
  /** Sends a request, by default GET, and yields each line of the response, however long the response takes. */
  lines<T>(path: string, schema: z.ZodType<T>, request?: ServiceRequest): AsyncGenerator<T>
}

// The deadline must allow for a refresh that first waits for another caller's refresh and then calls the provider
// itself. Each call of the provider may take 10 s.
const DEADLINE_MS = 60_000
/** The media type of a body with a JSON value on each line. */
export const JSON_LINES = 'application/x-ndjson'
/** The deadline of a request with many credentials or grants. */
export const LONG_DEADLINE_MS = 5 * 60_000
/** A line is a run with all of its items, each of which has a response of up to 1 MiB. */
const MAX_LINE_CHARACTERS = 256 * 1_048_576

/** Returns the client of token-service. @throws {UsageError} the address or the key is invalid or missing. */
export const openTokenService = (url: string | undefined, terminal: Terminal): ServiceApi =>
  openService('token-service', url, terminal)

/** Returns the client of the coordinator. @throws {UsageError} the address or the key is invalid or missing. */
export const openCoordinator = (url: string | undefined, terminal: Terminal): ServiceApi =>
  openService('coordinator', url, terminal)

/** Returns the client of the gateway. @throws {UsageError} the address or the key is invalid or missing. */
export const openGateway = (url: string | undefined, terminal: Terminal): ServiceApi =>
  openService('accounting-gateway', url, terminal)

/** Returns the client of the console. @throws {UsageError} the address or the key is invalid or missing. */
export const openConsole = (url: string | undefined, terminal: Terminal): ServiceApi =>
  openService('console', url, terminal)

function openService(
  service: ServiceName,
  url: string | undefined,
  terminal: Terminal,
): ServiceApi {
  const connection = readConnection(service, url, terminal.env)
  const { signal } = terminal
  const client = createService({ ...connection, timeoutMs: DEADLINE_MS })

  /** Converts an error of `work` into the error with which the command fails. */
  async function reaching<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      signal.throwIfAborted()
      throw failureOf(connection, error)
    }
  }
  const send: ServiceApi['send'] = (path, schema, request) =>
    reaching(async () => {
      const reply = await client.send(path, { ...request, signal })
      return { status: reply.status, headers: reply.headers, data: dataOf(reply, schema) }
    })

  return {
    get: async (path, schema) => (await send(path, schema, {})).data,
    post: async (path, body, schema, options) =>
      (await send(path, schema, { ...options, method: 'POST', body })).data,
    send,
    async *lines(path, schema, request) {
      // No deadline applies to the whole response. fetch aborts the response if no data arrives for five minutes
      // (undici's bodyTimeout).
      const response = await reaching(() => client.open(path, { ...request, signal }))
      const lines = readLines(response, MAX_LINE_CHARACTERS)
      for (;;) {
        const next = await reaching(() => lines.next())
        if (next.done === true) return
        for (const line of next.value) {
          const parsed = schema.safeParse(parseJson(line, SERVICE_LIMITS))
          if (!parsed.success) throw anotherForm(connection, parsed.error)
          yield parsed.data
        }
      }
    },
  }
}

function failureOf(connection: Connection, error: unknown): CommandFailed {
  const { service, url } = connection
  const setting = `(--url, ${addressOf[service]})`
  if (!(error instanceof ProblemError) || hasProblem(error, 'connection_failed'))
    return new CommandFailed(
      exitCodes.unreachable,
      `${service} at ${url} cannot be reached (${reasonOf(error)}). Is it running, and is the address right ${setting}?`,
    )
  const { cause, problem, retryAfterSeconds } = error
  if (cause instanceof z.ZodError) return anotherForm(connection, cause)
  if (!('type' in problem))
    return new CommandFailed(
      exitCodes.unreachable,
      `${url} responds with status ${'status' in problem ? problem.status : 0}, which is not a response of ${service}. Is the address right ${setting}?`,
    )
  const { status, code, detail, title } = problem
  const exitCode = exitCodeOf(status, code)
  if (code === 'forbidden') {
    const message = `${service} at ${url}: ${plain(detail ?? title)} (forbidden). SERVICE_API_KEY needs a key that may do this (integration-host keys new --help).`
    return new RequestRejected(exitCode, message, code)
  }
  if (exitCode === exitCodes.unreachable) {
    const message = `${service} at ${url} rejects the service key. Is SERVICE_API_KEY one of its keys?`
    return new RequestRejected(exitCode, message, code)
  }
  const fault = Fault.safeParse('Fault' in problem ? problem.Fault : undefined)
  const lines = [
    ...(fault.success ? faultLines(fault.data) : [`${plain(detail ?? title)} (${plain(code)})`]),
    ...(retryAfterSeconds === null ? [] : [`Try again in ${retryAfterSeconds} s.`]),
  ]
  return new RequestRejected(exitCode, lines.join('\n'), code)
}

const anotherForm = ({ service, url }: Connection, { issues }: z.ZodError): CommandFailed =>
  new CommandFailed(
    exitCodes.failed,
    `${url} does not respond as the ${service} of this version does (${plain(issues[0]?.path.join('.') || 'the whole')}).`,
  )

/** The service rejected the request. `code` is the problem code (docs/errors.md). */
export class RequestRejected extends CommandFailed {
  readonly code: string

  constructor(exitCode: number, message: string, code: string) {
    super(exitCode, message)
    this.code = code
  }
}

const NOT_FOUND = new Set([
  'credential_not_found',
  'process_not_found',
  'schedule_not_found',
  'change_feed_not_found',
  'transaction_not_found',
  'operation_not_found',
  'dead_letter_not_found',
])

function exitCodeOf(status: number, code: string): number {
  if (status === 401 || status === 403) return exitCodes.unreachable
  if (NOT_FOUND.has(code)) return exitCodes.notFound
  return code === 'credential_faulted' ? exitCodes.faulted : exitCodes.failed
}
