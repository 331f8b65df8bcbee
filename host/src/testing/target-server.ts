import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { createFakeTarget, type FakeTarget } from './fake-target.ts'

/** A fake target that runs as a server. */
export interface TargetServer extends FakeTarget, AsyncDisposable {}

/**
 * Starts a fake target on a free port of this machine, for steps that do not call by `execute` but, for example, with
 * an SDK. The server follows the real time, so the member `after` of a reply has no effect. After the reply
 * `no response`, only the caller's own time limit ends the call.
 */
export async function startTargetServer(): Promise<TargetServer> {
  const server = createServer((request, response) => {
    respond(request, response).catch((error: unknown) => response.destroy(error as Error))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const target = createFakeTarget(`http://127.0.0.1:${port}`, Date.now)

  async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(request)
    const headers = Object.entries(request.headersDistinct)
    const { outcome, afterMs } = await target.serve({
      method: request.method ?? 'GET',
      url: new URL(target.url + (request.url ?? '/')),
      headers: Object.fromEntries(
        headers.map(([name, values]) => [name, values?.join(', ') ?? '']),
      ),
      body: body === '' ? null : body,
    })
    if (afterMs === null) return
    if (outcome.kind === 'answered')
      response.writeHead(outcome.status, [...outcome.headers]).end(outcome.body)
    else response.destroy()
  }

  return Object.assign(target, {
    async [Symbol.asyncDispose]() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  })
}
