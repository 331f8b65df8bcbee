import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

/**
 * What a probe asks whether the internet is there. It keeps its port while it is "away": a port that was
 * given up can be another test's a moment later.
 */
export interface Internet extends AsyncDisposable {
  /** For `INTERNET_PROBES`. */
  readonly probe: string
  isThere: boolean
}

export async function startFakeInternet(): Promise<Internet> {
  const server = createServer((request, response) => {
    if (internet.isThere) response.end()
    else request.socket.destroy()
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const internet: Internet = {
    probe: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    isThere: true,
    async [Symbol.asyncDispose]() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
  return internet
}
