import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { listenLocal } from '@integration-host/shared/test-support/listen-local'

export interface HttpServer extends AsyncDisposable {
  readonly url: string
}

/**
 * Starts an HTTP server on a free loopback port. If `handle` rejects, the server closes the connection without a
 * response. `onClientError` is called for each malformed request, whose connection is then closed. Disposing the server
 * also closes all open connections.
 */
export async function startHttpServer(
  handle: (request: IncomingMessage, response: ServerResponse) => void | Promise<void>,
  onClientError?: (error: Error) => void,
): Promise<HttpServer> {
  async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      await handle(request, response)
    } catch {
      response.destroy()
    }
  }
  const server = createServer((request, response) => void respond(request, response))
  if (onClientError !== undefined)
    server.on('clientError', (error, socket) => {
      onClientError(error)
      socket.destroy()
    })
  return listenLocal(server)
}
