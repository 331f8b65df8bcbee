/** A fake service over HTTP, whose responses a test sets. */
import { createServer, type IncomingMessage } from 'node:http'
import { text } from 'node:stream/consumers'
import { listenLocal } from '@integration-host/shared/test-support/listen-local'

export interface FakeRequest {
  readonly method: string
  readonly url: URL
  readonly headers: IncomingMessage['headers']
  readonly body: string
}

export interface FakeResponse {
  readonly status?: number
  /** The body. A text is sent unchanged, and any other value as JSON. A body with a `code` becomes a problem document. */
  readonly body: unknown
  readonly headers?: Readonly<Record<string, string>>
}

export interface FakeService extends AsyncDisposable {
  readonly url: string
  /** The requests that the fake service has received. */
  readonly requests: readonly FakeRequest[]
}

/** `respond` returns `undefined` for a path that the service does not have. */
export async function startFakeService(
  respond: (request: FakeRequest) => FakeResponse | undefined,
): Promise<FakeService> {
  const requests: FakeRequest[] = []
  const server = createServer((incoming, outgoing) => {
    void (async () => {
      const request = {
        method: incoming.method ?? '',
        url: new URL(incoming.url ?? '', 'http://service.invalid'),
        headers: incoming.headers,
        body: await text(incoming),
      }
      requests.push(request)
      const {
        status = 200,
        body,
        headers = {},
      } = respond(request) ?? {
        status: 404,
        body: { code: 'not_found', detail: 'There is nothing here' },
      }
      outgoing.statusCode = status
      outgoing.setHeader('Content-Type', 'application/json')
      for (const [name, value] of Object.entries(headers)) outgoing.setHeader(name, value)
      const { code } = Object(body) as { readonly code?: unknown }
      const problem = { type: `urn:integration-host:error:${String(code)}`, title: code, status }
      const sent = status >= 400 && code !== undefined ? { ...problem, ...Object(body) } : body
      outgoing.end(typeof sent === 'string' ? sent : JSON.stringify(sent))
    })()
  })
  return {
    ...(await listenLocal(server)),
    requests,
  }
}
