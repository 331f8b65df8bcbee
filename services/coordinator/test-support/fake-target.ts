import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { listenLocal } from '@integration-host/shared/test-support/listen-local'

export interface SeenCall {
  readonly method: string
  readonly path: string
  readonly query: Readonly<Record<string, string>>
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
}

type Handler = (
  request: IncomingMessage,
  response: ServerResponse,
) => boolean | void | Promise<boolean | void>

/** The target of steps. It responds to /order and /report like the demo API, unless a test overrides the response. */
export interface Target extends AsyncDisposable {
  readonly url: string
  readonly calls: readonly SeenCall[]
  callsTo(path: string): readonly SeenCall[]
  /** Handles calls to `path`. If a handler returns false, the call gets the default response. */
  on(path: string, handler: Handler): void
}

export async function startTarget(): Promise<Target> {
  const calls: SeenCall[] = []
  const handlers = new Map<string, Handler>()
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://target')
    const query = Object.fromEntries(url.searchParams)
    calls.push({
      method: request.method ?? '',
      path: url.pathname,
      query,
      headers: request.headers,
    })
    const respondByDefault = (): void => {
      const isOrder = url.pathname === '/order'
      response.writeHead(isOrder ? 201 : 200, { 'content-type': 'application/json' })
      response.end(
        JSON.stringify(
          isOrder
            ? { Order: query['order'], CreatedAt: '2026-11-20T21:24:19.3210000+01:00' }
            : { Order: query['order'], CreatedAt: query['created'], Status: 'Confirmed' },
        ),
      )
    }
    void (async () => {
      const isHandled = await handlers.get(url.pathname)?.(request, response)
      if (isHandled === undefined && handlers.has(url.pathname)) return
      respondByDefault()
    })()
  })
  return {
    ...(await listenLocal(server)),
    calls,
    callsTo: (path) => calls.filter((call) => call.path === path),
    on: (path, handler) => void handlers.set(path, handler),
  }
}

/** Builds a handler for `Target.on` that responds with a status and a text. */
export const respondWith =
  (status: number, body = '', headers: Record<string, string> = {}) =>
  (_: IncomingMessage, response: ServerResponse): void => {
    response.writeHead(status, headers)
    response.end(body)
  }
