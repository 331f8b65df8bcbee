import { type HttpServer, startHttpServer } from '@integration-host/tests/http-server'
import { tokenOf } from './peer.ts'

/**
 * Starts a fake token-service in this process. The gateway requests the token of each realm from this server once every
 * five minutes.
 */
export const startTokens = (): Promise<HttpServer> =>
  startHttpServer((request, response) => {
    const realm = /^\/credentials\/ACC-(\w+)\/token$/.exec(request.url ?? '')?.[1]
    if (realm === undefined) return void response.end('{}')
    response.end(
      JSON.stringify({
        Name: `ACC-${realm}`,
        Authenticator: tokenOf(realm),
        Expiry: new Date(Date.now() + 3_600_000).toISOString(),
        Version: 1,
      }),
    )
  })
