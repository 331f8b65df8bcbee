/** Calls of the accounting API through the gateway, for one company. */
import { type AttemptSettings, sendWithAttempts, withTimeout } from './attempts.ts'
import { serviceProblem } from './problem.ts'

/** A client for the accounting API of one company. The company's access token stays in the gateway. */
export interface CompanyClient {
  /**
   * Sends a request to a path below `/v3/company/<realm>`, with the options of `fetch`. Returns every response of the
   * accounting API, whatever its status is.
   *
   * A request is repeated if it got no response, or a response with status 429, 502, 503 or 504. This applies to GET,
   * HEAD, OPTIONS, PUT and DELETE, and to POST if the provider recognises a repeated POST. Every POST has an
   * `Idempotency-Key`, from which the gateway derives the same `X-RequestId` for each attempt. A request whose body is
   * a stream, and a batch without a `requestid` of its own, are sent only once.
   *
   * @throws {ProblemError} if the gateway itself rejects the request, or no response arrived (`connection_failed`).
   */
  fetch(path: string, init?: RequestInit): Promise<Response>
}

export interface CompanyDeps extends AttemptSettings {
  readonly fetch: typeof fetch
  readonly key: string
  /** How long an attempt waits for its response, in milliseconds. */
  readonly timeoutMs: number
  /** The address of the gateway, without a trailing slash. */
  readonly gateway: string
  /**
   * Whether the provider is known to recognise a repeated POST. The first response with the header `X-RequestId` sets
   * `areRecognised` to true, because the gateway adds the header under `PROVIDER_PROFILE=intuit`, but not under
   * `generic`.
   */
  readonly posts: { areRecognised: boolean }
}

const IDEMPOTENT: readonly string[] = ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE']

export function createCompanyClient(realm: string, deps: CompanyDeps): CompanyClient {
  const base = `${deps.gateway}/v3/company/${encodeURIComponent(realm)}/`
  return {
    async fetch(path, init = {}) {
      const url = new URL(base + path.replace(/^\//, ''))
      // A path with `..` could address another company by mistake. The gateway would accept the call if the key is
      // valid for that company.
      if (!url.href.startsWith(base) || realm === '')
        throw new TypeError('the path leaves the company')
      const method = (init.method ?? 'GET').toUpperCase()
      const isPost = method === 'POST'
      const headers = new Headers(init.headers)
      headers.set('Authorization', `Bearer ${deps.key}`)
      const ids = [...url.searchParams].filter(([name]) => name.toLowerCase() === 'requestid')
      if (isPost && ids.length === 0 && !headers.has('Idempotency-Key'))
        headers.set('Idempotency-Key', crypto.randomUUID())
      // If the caller's query has `requestid` in another spelling, such as `RequestId`, the provider might not
      // recognise a repeated POST. Such a POST is not repeated.
      // The gateway may add none to a batch, because the provider limits the length of both `requestid` and item ids.
      const isBatch = /\/batch\/?$/i.test(url.pathname)
      const isMarked =
        ids.length === 0 ? !isBatch : ids.length === 1 && !!url.searchParams.get('requestid')

      const response = await sendWithAttempts(deps, {
        send: () =>
          withTimeout(deps.timeoutMs, init.signal, async (signal) => {
            const sent = await deps.fetch(url, {
              redirect: 'manual',
              ...init,
              method,
              headers,
              signal,
            })
            if (isPost) {
              deps.posts.areRecognised ||= sent.headers.has('X-RequestId')
              // The body is read here. If the connection breaks during the body, the response counts as lost, and the
              // POST is repeated.
              await sent.clone().arrayBuffer()
            }
            return sent
          }),
        isRepeatable: () =>
          !isStream(init.body) &&
          (isPost ? isMarked && deps.posts.areRecognised : IDEMPOTENT.includes(method)),
        signal: init.signal,
        idempotencyKey: headers.get('Idempotency-Key'),
      })
      if (!/^application\/problem\+json\b/i.test(response.headers.get('Content-Type') ?? ''))
        return response
      const problem = serviceProblem(response, await response.clone().text())
      if (problem === null) return response // the accounting API has sent this problem
      throw problem
    },
  }
}

/** Returns whether the body is a stream, which can be read only once. */
const isStream = (body: RequestInit['body']): boolean =>
  body instanceof ReadableStream ||
  (typeof body === 'object' && body !== null && Symbol.asyncIterator in body)
