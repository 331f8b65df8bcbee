import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http'
import { json, text } from 'node:stream/consumers'
import { beforeEach } from 'vitest'
import { listenLocal } from '@integration-host/shared/test-support/listen-local'

export const SERVICE_KEY = 'test-service-key-0123456789-0123456789'

export interface ReceivedRequest {
  /** The method and path, such as `GET /credentials`. */
  readonly route: string
  readonly query: URLSearchParams
  readonly headers: IncomingHttpHeaders
  /**
   * The parsed request body, which is JSON or a form. If the request has JSON lines instead, the member `lines`
   * contains these lines.
   */
  readonly body: Record<string, unknown>
}

export interface FakeResponse {
  readonly status?: number
  /** The response body, sent as JSON. A string is sent unchanged. */
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  /** Whether the connection is closed after the body, before the response is complete. */
  readonly isCut?: boolean
}

export type Routes = Readonly<
  Record<string, (request: ReceivedRequest) => FakeResponse | Promise<FakeResponse>>
>

/** A fake service: an HTTP server whose routes the test defines. */
export interface FakeService extends AsyncDisposable {
  readonly url: string
  readonly requests: readonly ReceivedRequest[]
}

async function readBody(
  request: IncomingMessage,
  mediaType: string | undefined,
): Promise<Record<string, unknown>> {
  if (mediaType === 'application/json') return (await json(request)) as Record<string, unknown>
  if (mediaType === 'application/x-www-form-urlencoded')
    return Object.fromEntries(new URLSearchParams(await text(request)))
  if (mediaType === 'application/x-ndjson')
    return { lines: (await text(request)).split('\n').map((line) => JSON.parse(line) as unknown) }
  return {}
}

/** Returns a problem document in the format of every service. */
export const problem = (status: number, code: string, members: object = {}): FakeResponse => ({
  status,
  body: { type: `urn:integration-host:error:${code}`, title: code, status, code, ...members },
})

/** Starts a fake service. If `key` is null, the fake service requires no service key. */
export async function startFakeService(
  routes: Routes,
  key: string | null = SERVICE_KEY,
): Promise<FakeService> {
  const requests: ReceivedRequest[] = []

  async function responseTo(request: IncomingMessage): Promise<FakeResponse> {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://fake')
    const mediaType = request.headers['content-type']?.split(';')[0]
    const one = {
      route: `${request.method} ${pathname}`,
      query: searchParams,
      headers: request.headers,
      body: await readBody(request, mediaType),
    }
    requests.push(one)
    if (key !== null && request.headers.authorization !== `Bearer ${key}`)
      return problem(401, 'unauthorized')
    return routes[one.route]?.(one) ?? problem(404, 'not_found')
  }

  const server = createServer((request, response: ServerResponse) => {
    void responseTo(request).then(({ status = 200, body = '', headers = {}, isCut = false }) => {
      response.writeHead(status, { 'Content-Type': 'application/json', ...headers })
      const sent = typeof body === 'string' ? body : JSON.stringify(body)
      if (isCut) response.write(sent, () => response.destroy())
      else response.end(sent)
    })
  })
  return {
    ...(await listenLocal(server)),
    requests,
  }
}

/** Starts a fake service before each test of the file or the suite, and stops it after the test. */
export function useFakeService(routes: Routes): Pick<FakeService, 'url' | 'requests'> {
  let service: FakeService | null = null
  beforeEach(async () => {
    const started = await startFakeService(routes)
    service = started
    return () => started[Symbol.asyncDispose]()
  })
  return {
    get url() {
      return service?.url ?? ''
    },
    get requests() {
      return service?.requests ?? []
    },
  }
}
