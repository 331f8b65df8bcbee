import type { IncomingMessage, ServerResponse } from 'node:http'
import { buffer } from 'node:stream/consumers'
import { startHttpServer } from './http-server.ts'

/** A proxy in front of the provider's token endpoint. It counts the calls in flight and can pause them. */
export interface TokenEndpointProxy extends AsyncDisposable {
  /** URL of a discovery document that is a copy of the provider's, except that the token endpoint is this proxy. */
  readonly discoveryUrl: string
  /** Delays further calls to the provider until `resume` is called. */
  pause(): void
  resume(): void
  inFlight(): number
  /** Returns the maximum number of calls that were in flight at the same time since this function was last called. */
  takeMaxInFlight(): number
}

/** The proxy's own response to a call that it does not forward to the provider. */
export interface RejectedCall {
  readonly status: number
  readonly body: string
}

const DISCOVERY = '/.well-known/openid_configuration'
/** The headers of a token call that the provider evaluates. */
const FORWARDED = ['authorization', 'content-type', 'x-include-refresh-token-hard-expires-in']

/**
 * Starts the proxy.
 *
 * @param reject receives the form parameters of each token call and returns the response that the proxy sends
 * itself; `null` to forward the call to the provider
 */
export async function startTokenEndpointProxy(
  providerUrl: string,
  reject: (form: URLSearchParams) => RejectedCall | null = () => null,
): Promise<TokenEndpointProxy> {
  let inFlight = 0
  let maxInFlight = 0
  let resumed = Promise.resolve()
  let resume = (): void => {}

  async function forward(request: IncomingMessage, response: ServerResponse): Promise<void> {
    inFlight += 1
    maxInFlight = Math.max(maxInFlight, inFlight)
    try {
      const body = await buffer(request)
      await resumed
      const rejected = reject(new URLSearchParams(body.toString()))
      if (rejected !== null) {
        response
          .writeHead(rejected.status, { 'Content-Type': 'application/json' })
          .end(rejected.body)
        return
      }
      const headers = FORWARDED.flatMap((name): [string, string][] => {
        const value = request.headers[name]
        return typeof value === 'string' ? [[name, value]] : []
      })
      const upstream = await fetch(providerUrl + (request.url ?? ''), {
        method: 'POST',
        headers,
        body: new Uint8Array(body),
      })
      response
        .writeHead(upstream.status, { 'Content-Type': upstream.headers.get('Content-Type') ?? '' })
        .end(await upstream.text())
    } finally {
      inFlight -= 1
    }
  }

  async function discover(response: ServerResponse): Promise<void> {
    const document = (await (await fetch(providerUrl + DISCOVERY)).json()) as {
      token_endpoint: string
    }
    const endpoint = document.token_endpoint.replace(providerUrl, server.url)
    response
      .writeHead(200, { 'Content-Type': 'application/json' })
      .end(JSON.stringify({ ...document, token_endpoint: endpoint }))
  }

  const server = await startHttpServer((request, response) =>
    request.method === 'POST' ? forward(request, response) : discover(response),
  )
  return {
    discoveryUrl: server.url + DISCOVERY,
    pause() {
      ;({ promise: resumed, resolve: resume } = Promise.withResolvers<void>())
    },
    resume: () => resume(),
    inFlight: () => inFlight,
    takeMaxInFlight() {
      const maximum = maxInFlight
      maxInFlight = inFlight
      return maximum
    },
    async [Symbol.asyncDispose]() {
      resume()
      await server[Symbol.asyncDispose]()
    },
  }
}
