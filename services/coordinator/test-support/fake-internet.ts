import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

/**
 * The target of an internet probe. A test can make it unreachable. An unreachable target keeps its port, because the
 * operating system could give a released port to another test.
 */
export interface Internet extends AsyncDisposable {
  /** The value of the setting `INTERNET_PROBES`. */
  readonly probe: string
  isReachable: boolean
}

export async function startFakeInternet(): Promise<Internet> {
  const server = createServer((request, response) => {
    if (internet.isReachable) response.end()
    else request.socket.destroy()
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const internet: Internet = {
    probe: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    isReachable: true,
    async [Symbol.asyncDispose]() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
  return internet
}
