/** The client of a service's HTTP API. */
import { Fault } from '@integration-host/shared/contracts/credential'
import { Problem } from '@integration-host/shared/contracts/problem'
import { readLines } from '@integration-host/shared/http/read-lines'
import { parseJson, SERVICE_LIMITS } from '@integration-host/shared/json'
import { reasonOf } from '@integration-host/shared/observability/health'
import type { z } from 'zod'
import { CommandFailed, exitCodes } from './exit-code.ts'
import { faultLines } from './fault-lines.ts'
import { addressOf, type Connection, readConnection, type ServiceName } from './settings.ts'
import { plain, type Terminal } from './terminal.ts'

/** Sends requests to a service. Every method throws {@link CommandFailed}, which has the exit code of the failure. */
export interface ServiceApi {
  get<T>(path: string, schema: z.ZodType<T>): Promise<T>
  /**
   * Posts a JSON body and returns the parsed response. `isLong` allows the response to take minutes. With `ifVersion`
   * the service makes the change only if the resource still has this version.
   */
  post<T>(
    path: string,
    body: unknown,
    schema: z.ZodType<T>,
    options?: { readonly isLong?: boolean; readonly ifVersion?: number | undefined },
  ): Promise<T>
  /**
   * Posts a JSON body and returns the status with the parsed response, for routes whose outcomes differ in the status.
   */
  postForStatus<T>(
    path: string,
    body: unknown,
    schema: z.ZodType<T>,
  ): Promise<{ readonly status: number; readonly data: T }>
  /** Posts a body of JSON lines unchanged. `isLong` allows the response to take minutes. */
  postText<T>(
    path: string,
    lines: string,
    schema: z.ZodType<T>,
    options?: { readonly isLong: boolean },
  ): Promise<T>
  /** Sends PATCH with a JSON body and returns the parsed response. */
  patch<T>(path: string, body: unknown, schema: z.ZodType<T>): Promise<T>
  /** Sends DELETE, with a JSON body if one is given, and returns the headers of the response. */
  delete(path: string, body?: unknown): Promise<Headers>
  /** Sends DELETE with a JSON body and returns the parsed response. */
  deleteForResult<T>(path: string, body: unknown, schema: z.ZodType<T>): Promise<T>
  /** Sends GET and yields each line of the response, however long the response takes. */
  getForLines<T>(path: string, schema: z.ZodType<T>): AsyncGenerator<T>
  /** Sends POST without a body and yields each line of the response. */
  postForLines<T>(path: string, schema: z.ZodType<T>): AsyncGenerator<T>
}

// The deadline must allow for a refresh that first waits for another caller's refresh and then calls the provider
// itself. Each call of the provider may take 10 s.
const DEADLINE_MS = 60_000
const LONG_DEADLINE_MS = 5 * 60_000

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

  async function call<T>(
    method: string,
    path: string,
    read: (response: Response) => Promise<T>,
    {
      body,
      lines,
      ifVersion,
      deadlineMs = DEADLINE_MS,
    }: {
      readonly body?: unknown
      readonly lines?: string
      readonly ifVersion?: number | undefined
      readonly deadlineMs?: number | null
    },
  ): Promise<T> {
    return reaching(connection, terminal, async () => {
      const response = await fetch(connection.url + path, {
        method,
        headers: {
          Authorization: `Bearer ${connection.key.reveal()}`,
          ...(body !== undefined && { 'Content-Type': 'application/json' }),
          ...(lines !== undefined && { 'Content-Type': 'application/x-ndjson' }),
          ...(ifVersion !== undefined && { 'If-Match': `"${ifVersion}"` }),
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        ...(lines !== undefined && { body: lines }),
        redirect: 'manual', // a redirect could send the service key to another server
        signal: AbortSignal.any([
          terminal.signal,
          ...(deadlineMs === null ? [] : [AbortSignal.timeout(deadlineMs)]),
        ]),
      })
      if (!response.ok) throw rejectionOf(connection, response, await response.text())
      return read(response)
    })
  }
  async function* forLines<T>(
    method: string,
    path: string,
    schema: z.ZodType<T>,
  ): AsyncGenerator<T> {
    // No deadline applies to the whole response. fetch aborts the response if no data arrives for five minutes
    // (undici's bodyTimeout).
    const response = await call(method, path, async (begun) => begun, { deadlineMs: null })
    const lines = readLines(response, MAX_LINE_CHARACTERS)
    for (;;) {
      const next = await reaching(connection, terminal, () => lines.next())
      if (next.done === true) return
      for (const line of next.value) yield parsed(line, schema, connection)
    }
  }
  const json =
    <T>(schema: z.ZodType<T>) =>
    async (response: Response): Promise<T> =>
      parsed(await response.text(), schema, connection)

  return {
    get: (path, schema) => call('GET', path, json(schema), {}),
    post: (path, body, schema, { isLong = false, ifVersion } = {}) =>
      call('POST', path, json(schema), {
        body,
        ifVersion,
        ...(isLong && { deadlineMs: LONG_DEADLINE_MS }),
      }),
    patch: (path, body, schema) => call('PATCH', path, json(schema), { body }),
    postForStatus: (path, body, schema) =>
      call(
        'POST',
        path,
        async (response) => ({ status: response.status, data: await json(schema)(response) }),
        { body },
      ),
    postText: (path, lines, schema, { isLong } = { isLong: false }) =>
      call('POST', path, json(schema), { lines, ...(isLong && { deadlineMs: LONG_DEADLINE_MS }) }),
    deleteForResult: (path, body, schema) => call('DELETE', path, json(schema), { body }),
    delete: (path, body) =>
      call(
        'DELETE',
        path,
        async (response) => {
          await response.text()
          return response.headers
        },
        { body },
      ),
    getForLines: (path, schema) => forLines('GET', path, schema),
    postForLines: (path, schema) => forLines('POST', path, schema),
  }
}

/** A line is a run with all of its items, each of which has a response of up to 1 MiB. */
const MAX_LINE_CHARACTERS = 256 * 1_048_576

/** Converts an error that fetch threw into the error with which the command fails. */
async function reaching<T>(
  { service, url }: Connection,
  { signal }: Terminal,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work()
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof CommandFailed) throw error
    throw new CommandFailed(
      exitCodes.unreachable,
      `${service} at ${url} cannot be reached (${reasonFrom(error)}). Is it running, and is the address right (--url, ${addressOf[service]})?`,
    )
  }
}

// fetch rejects with `TypeError: fetch failed`; the network error is its `cause`.
const reasonFrom = (error: unknown): string =>
  reasonOf(error instanceof Error && error.cause !== undefined ? error.cause : error)

function parsed<T>(text: string, schema: z.ZodType<T>, { service, url }: Connection): T {
  const result = schema.safeParse(parseJson(text, SERVICE_LIMITS))
  if (result.success) return result.data
  const place = result.error.issues[0]?.path.join('.') || 'the whole'
  throw new CommandFailed(
    exitCodes.failed,
    `${url} does not respond as the ${service} of this version does (${plain(place)}).`,
  )
}

/** The service rejected the request. `code` is the problem code (docs/errors.md). */
export class RequestRejected extends CommandFailed {
  readonly code: string

  constructor(exitCode: number, message: string, code: string) {
    super(exitCode, message)
    this.code = code
  }
}

function rejectionOf(connection: Connection, response: Response, body: string): CommandFailed {
  const { service, url } = connection
  const problem = Problem.safeParse(parseJson(body))
  if (!problem.success) {
    return new CommandFailed(
      exitCodes.unreachable,
      `${url} responds with status ${response.status}, which is not a response of ${service}. Is the address right (--url, ${addressOf[service]})?`,
    )
  }
  const { code, detail, title } = problem.data
  const exitCode = exitCodeOf(response.status, code)
  if (code === 'forbidden') {
    const message = `${service} at ${url}: ${plain(detail ?? title)} (forbidden). SERVICE_API_KEY needs a key that may do this (integration-host keys new --help).`
    return new RequestRejected(exitCode, message, code)
  }
  if (exitCode === exitCodes.unreachable) {
    const message = `${service} at ${url} rejects the service key. Is SERVICE_API_KEY one of its keys?`
    return new RequestRejected(exitCode, message, code)
  }
  const fault = Fault.safeParse(problem.data['Fault'])
  const retryAfter = response.headers.get('Retry-After')
  const lines = [
    ...(fault.success ? faultLines(fault.data) : [`${plain(detail ?? title)} (${plain(code)})`]),
    ...(retryAfter === null ? [] : [`Try again in ${plain(retryAfter)} s.`]),
  ]
  return new RequestRejected(exitCode, lines.join('\n'), code)
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
