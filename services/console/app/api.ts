/** Calls of the console's own API. The browser adds the cookie of the session. */

/** The problem document (RFC 9457) of a rejected request. */
export class Problem extends Error {
  override readonly name = 'Problem'
  readonly status: number
  readonly code: string

  constructor(status: number, code: string, message: string) {
    super(message)
    this.status = status
    this.code = code
  }
}

/**
 * Sends a request. `key` is the same in each repetition of a request, so that the server acts only once.
 *
 * @throws {Problem} the console rejects the request; its status is 0 if the console does not respond.
 */
export async function call<Result>(
  method: 'GET' | 'POST' | 'DELETE',
  path: string,
  body?: unknown,
  key?: string,
): Promise<Result> {
  const response = await fetch(`/api${path}`, {
    method,
    ...(method === 'POST' && {
      headers: {
        'Content-Type': 'application/json',
        ...(key !== undefined && { 'Idempotency-Key': key }),
      },
      body: JSON.stringify(body ?? {}),
    }),
  }).catch(() => {
    throw new Problem(0, 'unreachable', 'The console does not respond. Is it running?')
  })
  // The server's contract tests check every response against its schema, so the response is not checked here.
  if (response.ok) return (response.status === 204 ? null : await response.json()) as Result
  const problem = (await response.json().catch(() => ({}))) as Partial<Record<string, string>>
  throw new Problem(
    response.status,
    problem['code'] ?? 'unknown',
    problem['detail'] ?? problem['title'] ?? `The console responded with ${response.status}.`,
  )
}
