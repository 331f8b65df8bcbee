/** Functions that call the console's own API. The browser adds the session cookie to each request. */
import type { MissingService } from '../src/contracts/services.ts'
import { isUnattended } from './attendance.ts'
import { setAnswered } from './reach.ts'

/** The problem document (RFC 9457) of a rejected request. */
export class Problem extends Error {
  override readonly name = 'Problem'
  readonly status: number
  readonly code: string
  /**
   * One text for each invalid member of the request, with the path of the member. Empty if the problem has only a
   * message.
   */
  readonly errors: readonly string[]
  /** The time since which a service does not respond; `null` if the problem is another one. */
  readonly since: string | null

  constructor(
    status: number,
    code: string,
    message: string,
    further: Pick<ProblemDocument, 'errors' | 'since'> = {},
  ) {
    super(message)
    this.status = status
    this.code = code
    this.errors = further.errors ?? []
    this.since = further.since ?? null
  }
}

/**
 * Returns whether a request has ended: it was executed (`null`), or the console has rejected it or says that its outcome
 * is unknown. Otherwise the console may have executed the request. The person may then repeat it with the same key: the
 * connection was lost, or a load balancer has responded without a problem document, or the console responded 5xx to a
 * repetition, whose first request may have been executed.
 */
export const hasEnded = (error: Error | null): boolean =>
  error === null ||
  (error instanceof Problem &&
    (error.code === 'outcome_unknown' ||
      (error.status >= 400 && error.status < 500 && error.code !== 'unknown')))

/**
 * Sends a request. `key` is sent as the header `Idempotency-Key`. A repeated request has the same key, so that the
 * server executes the request only once.
 *
 * @throws {Problem} the console rejects the request, or does not respond; the status is 0 if there is no response.
 */
export async function call<Result>(
  method: 'GET' | 'POST' | 'DELETE',
  path: string,
  body?: unknown,
  key?: string,
): Promise<Result> {
  const response = await respond(`/api${path}`, {
    method,
    ...(method === 'POST' && {
      headers: {
        'Content-Type': 'application/json',
        ...(key !== undefined && { 'Idempotency-Key': key }),
      },
      body: JSON.stringify(body ?? {}),
    }),
  })
  // The server's contract tests check every response against its schema, so the response is not checked here.
  return (response.status === 204 ? null : await response.json()) as Result
}

/** Sends a GET request and returns the body as text. @throws {Problem} as {@link call} does. */
export const readText = async (path: string): Promise<string> =>
  (await respond(`/api${path}`, {})).text()

async function respond(path: string, options: RequestInit): Promise<Response> {
  const headers = new Headers(options.headers)
  if (isUnattended()) headers.set('Unattended', '1')
  const response = await fetch(path, { ...options, headers }).catch(() => {
    setAnswered(false)
    throw new Problem(0, 'unreachable', 'The console does not respond. Is it running?')
  })
  setAnswered(true)
  if (response.ok) return response
  const problem = (await response.json().catch(() => ({}))) as ProblemDocument
  throw new Problem(
    response.status,
    problem.code ?? 'unknown',
    problem.detail ?? problem.title ?? `The console responded with ${response.status}.`,
    problem,
  )
}

/** Returns the problem of a service whose part of a response is missing. */
export const problemOf = ({ Code, Detail, Since }: MissingService): Problem =>
  new Problem(503, Code, Detail, { since: Since })

interface ProblemDocument {
  readonly code?: string
  readonly title?: string
  readonly detail?: string
  readonly errors?: readonly string[]
  readonly since?: string | null
}
