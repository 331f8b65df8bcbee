/** Calls of the accounting API through the gateway, for one company. */
import { type Connection, sendWithAttempts } from './attempts.ts'
import { serviceProblem } from './problem.ts'

/** A company. Its access token stays in the gateway. */
export interface CompanyClient {
  /**
   * `fetch` for the paths below `/v3/company/<realm>`. The responses of the accounting API are returned whatever their status.
   *
   * A call that got no response, or 429, 502, 503 or 504, is sent again if that does no harm: GET, HEAD, OPTIONS, PUT and DELETE,
   * and a POST if the provider recognises a repetition. Every POST has an `Idempotency-Key`, from which the gateway derives the
   * same `X-RequestId` for each attempt. A call whose body is a stream is sent once.
   *
   * @throws {ProblemError} for a problem of the gateway itself, and `connection_failed`.
   */
  fetch(path: string, init?: RequestInit): Promise<Response>
}

export interface CompanyDeps extends Connection {
  /** The address of the gateway, without a slash at the end. */
  readonly gateway: string
  /**
   * Whether the provider is known to recognise a repeated POST. The client learns it from `X-RequestId` in a response: under
   * `PROVIDER_PROFILE=intuit` the gateway adds it, under `generic` it does not.
   */
  readonly posts: { areRecognised: boolean }
}

const IDEMPOTENT: readonly string[] = ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE']

export function createCompanyClient(realm: string, deps: CompanyDeps): CompanyClient {
  const base = `${deps.gateway}/v3/company/${encodeURIComponent(realm)}/`
  return {
    async fetch(path, init = {}) {
      const url = new URL(base + path.replace(/^\//, ''))
      // `..` in a path could name another company, for which the key may be valid too.
      if (!url.href.startsWith(base) || realm === '')
        throw new TypeError('the path leaves the company')
      const method = (init.method ?? 'GET').toUpperCase()
      const isPost = method === 'POST'
      const headers = new Headers(init.headers)
      headers.set('Authorization', `Bearer ${deps.key}`)
      const ids = [...url.searchParams].filter(([name]) => name.toLowerCase() === 'requestid')
      if (isPost && ids.length === 0 && !headers.has('Idempotency-Key'))
        headers.set('Idempotency-Key', crypto.randomUUID())
      // The gateway does not repeat a POST with another spelling of `requestid`, because the provider might not recognise it.
      const isMarked = ids.length === 0 || (ids.length === 1 && !!url.searchParams.get('requestid'))

      const response = await sendWithAttempts(deps, {
        async send(signal) {
          const sent = await deps.fetch(url, {
            redirect: 'manual',
            ...init,
            method,
            headers,
            signal,
          })
          if (isPost) {
            deps.posts.areRecognised ||= sent.headers.has('X-RequestId')
            // A response is lost too if its body breaks off, which only a second request can replace.
            await sent.clone().arrayBuffer()
          }
          return sent
        },
        isRepeatable: () =>
          !isStream(init.body) &&
          (isPost ? isMarked && deps.posts.areRecognised : IDEMPOTENT.includes(method)),
        signal: init.signal,
        idempotencyKey: headers.get('Idempotency-Key'),
      })
      if (!/^application\/problem\+json\b/i.test(response.headers.get('Content-Type') ?? ''))
        return response
      const problem = serviceProblem(response, await response.clone().text())
      if (problem === null) return response // a problem document of the accounting API
      throw problem
    },
  }
}

/** Returns whether the body can be read only once. */
const isStream = (body: RequestInit['body']): boolean =>
  body instanceof ReadableStream ||
  (typeof body === 'object' && body !== null && Symbol.asyncIterator in body)
