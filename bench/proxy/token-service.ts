import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tokenOf } from './peer.ts'

/** A fake token-service in this process. The gateway requests each realm's token once in five minutes. */
export async function startTokens() {
  const server = createServer((request, response) => {
    const realm = /^\/credentials\/ACC-(\w+)\/token$/.exec(request.url ?? '')?.[1]
    if (realm === undefined) return response.end('{}')
    return response.end(
      JSON.stringify({
        Name: `ACC-${realm}`,
        Authenticator: tokenOf(realm),
        Expiry: new Date(Date.now() + 3_600_000).toISOString(),
        Version: 1,
      }),
    )
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.close()
      server.closeAllConnections()
    },
  }
}
