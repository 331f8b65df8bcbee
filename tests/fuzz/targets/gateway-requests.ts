import type { IncomingMessage, ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { startHttpServer } from '../../support/fakes/http-server.ts'
import type { Target } from '../fuzz.ts'
import { control, KEY, startGateways, tokenOf } from '../gateway.ts'
import { exchange } from '../raw-http.ts'

const head = (line: string, ...headers: readonly string[]): string =>
  [line, 'Host: gateway', `Authorization: Bearer ${KEY}`, ...headers, '', ''].join('\r\n')

const inputs = [
  head('GET /v3/company/1/query?query=select%20*%20from%20CompanyInfo HTTP/1.1', 'Accept: */*'),
  head('GET /v3/company/2/companyinfo/2 HTTP/1.1', 'Connection: keep-alive'),
  `${head('POST /v3/company/1/invoice HTTP/1.1', 'Content-Type: application/json', 'Content-Length: 14')}{"Line": [1,2]}`,
  `${head('POST /v3/company/2/invoice HTTP/1.1', 'Transfer-Encoding: chunked')}5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n`,
  head('GET /v3/company/1/a HTTP/1.1') + head('GET /v3/company/2/b HTTP/1.1'),
  head('GET /health/ready HTTP/1.1'),
  head('GET http://gateway/v3/company/1/x HTTP/1.1'),
].map((input) => Buffer.from(input))

/** A difference between the two gateways counts as a violation if it persists for this time. */
const DIFFERENCE_MS = 10_000

/**
 * Sends mutated requests to two gateways, one with and one without the fast path, and checks three rules. Each
 * request that reaches the accounting API has the access token of the company that the path of the request names.
 * Both gateways forward the same requests. A valid request after a mutated request gets its own response.
 */
export async function gatewayRequests(): Promise<Target> {
  await using opened = new AsyncDisposableStack()
  const violations: string[] = []
  let seen: string[] = []
  const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { method, url = '', headers } = request
    const realm = /^\/v3\/company\/(\w+)(?:[/?]|$)/.exec(url)?.[1]
    if (realm === undefined || headers.authorization !== `Bearer ${tokenOf(realm)}`)
      violations.push(`${method} ${url} arrived with ${headers.authorization}`)
    const body = await text(request).catch(() => null)
    const marker = /^\/v3\/company\/control\/(\w+)$/.exec(url)?.[1]
    if (marker !== undefined) return void response.end(`control ${marker}`)
    if (body !== null) seen.push(`${method} ${url} ${JSON.stringify(body)}`)
    response.end(`for ${realm}`)
  }
  const upstream = opened.use(
    await startHttpServer(respond, (error) => {
      // If a caller ends its connection in the middle of a body, the gateway also ends the request to the accounting
      // API.
      const code = 'code' in error ? String(error.code) : ''
      if (!/ECONNRESET|INVALID_EOF_STATE/.test(code))
        violations.push(`the gateway sent a malformed request: ${error.message}`)
    }),
  )
  const gateways = opened.use(await startGateways(upstream.url))
  let count = 0
  async function forwardedBy(
    gateway: (typeof gateways.all)[number],
    input: Buffer,
  ): Promise<readonly string[]> {
    seen = []
    const roundTrip = (): Promise<void> => control(gateway.url, `m${(count += 1)}`)
    await exchange(gateway.port, input, { roundTrip })
    await roundTrip()
    return seen
  }
  for (const gateway of gateways.all) {
    const forwarded = await forwardedBy(gateway, Buffer.from(head('GET /v3/company/1/x HTTP/1.1')))
    if (forwarded.join() !== 'GET /v3/company/1/x ""')
      throw new Error(`a valid request was forwarded as ${forwarded.join()}`)
  }

  const running = opened.move()
  return {
    inputs,
    processes: gateways.all,
    async check(input) {
      const startedAt = performance.now()
      for (;;) {
        const forwarded: (readonly string[])[] = []
        for (const gateway of gateways.all) forwarded.push(await forwardedBy(gateway, input))
        const [fast, plain] = forwarded.map((requests) => requests.join('\n'))
        if (fast === plain) break
        // On a slow machine, the caller may end its connection before one of the gateways has a token. This gateway
        // then forwards nothing, so only a lasting difference counts as a violation.
        if (performance.now() - startedAt >= DIFFERENCE_MS) {
          violations.push(`with the fast path:\n${fast}\nand without it:\n${plain}`)
          break
        }
      }
      if (violations.length > 0) throw new Error(violations.splice(0).join('\n'))
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
}
