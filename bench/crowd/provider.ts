import { type HttpServer, startHttpServer } from '@integration-host/tests/http-server'

export interface Provider extends HttpServer {
  /** The number of all calls of the throttled company since the start, and how many of these calls got a 429. */
  readonly counts: { calls: number; rejected: number }
}

/**
 * Starts an accounting API in this process. It accepts `perSecond` calls of the throttled realm in each second, and
 * rejects further calls of this realm with 429 and `Retry-After: 1`. All calls of other realms are accepted.
 */
export async function startProvider(throttledRealm: string, perSecond: number): Promise<Provider> {
  const counts = { calls: 0, rejected: 0 }
  let second = 0
  let accepted = 0
  const server = await startHttpServer((request, response) => {
    request.resume()
    if (request.url?.startsWith(`/v3/company/${throttledRealm}/`) === true) {
      counts.calls += 1
      const now = Math.floor(performance.now() / 1_000)
      if (now !== second) [second, accepted] = [now, 0]
      accepted += 1
      if (accepted > perSecond) {
        counts.rejected += 1
        response.writeHead(429, { 'Retry-After': '1', 'Content-Type': 'application/xml' })
        return void response.end(THROTTLED)
      }
    }
    response.writeHead(200, { 'Content-Type': 'application/json' })
    response.end('{"Invoice":{"Id":"1"}}')
  })
  return { ...server, counts, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() }
}

/** The provider responds to a throttled call with XML, whatever the client accepts (docs/intuit.md). */
const THROTTLED =
  '<IntuitResponse><Fault type="SYSTEM"><Error code="3001"><Message>ThrottleExceeded</Message></Error></Fault></IntuitResponse>'
