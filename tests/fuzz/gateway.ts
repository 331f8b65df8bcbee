/**
 * Two gateways, one with its fast path enabled and one with its fast path disabled. Both call a fake accounting API
 * and a fake token-service.
 */
import { startHttpServer } from '../support/fakes/http-server.ts'
import { type ServiceProcess, startSystem, type System } from '../support/system.ts'

/** The service key of every fuzzed service. It is constant, so that stored inputs contain the right key. */
export const KEY = 'fuzz-service-key-0123456789-0123456789-0123456789'

export const tokenOf = (realm: string): string => `access-token-of-${realm}-`.padEnd(64, 'x')

export interface Gateways extends AsyncDisposable {
  readonly system: System
  readonly all: readonly (ServiceProcess & { readonly port: number })[]
}

/** Starts two gateways that call the accounting API at `upstreamUrl`. */
export async function startGateways(upstreamUrl: string): Promise<Gateways> {
  await using opened = new AsyncDisposableStack()
  const tokens = opened.use(
    await startHttpServer((request, response) => {
      const realm = /^\/credentials\/ACC-(\w{1,20})\/(?:token|refresh)$/.exec(
        request.url ?? '',
      )?.[1]
      // The gateway is ready when the health check of the token-service responds with 200.
      if (realm === undefined)
        return void response.writeHead(request.url?.startsWith('/health') ? 200 : 404).end('{}')
      const body = {
        Name: `ACC-${realm}`,
        Authenticator: tokenOf(realm),
        Expiry: new Date(Date.now() + 3_600_000).toISOString(),
        Version: request.method === 'GET' ? 1 : 2,
      }
      response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(body))
    }),
  )
  const system = opened.use(await startSystem([]))
  const env = {
    LOG_LEVEL: 'error',
    SERVICE_API_KEY: KEY,
    ACCOUNTING_URL: upstreamUrl,
    TOKEN_SERVICE_URL: tokens.url,
    PROVIDER_PROFILE: 'unlimited',
    DEADLINE_SECONDS: '5',
  }
  const all = await Promise.all(
    ['on', 'off'].map(async (fastPath) => {
      const started = await system.replica('accounting-gateway', { ...env, FAST_PATH: fastPath })
      return { ...started, port: Number(new URL(started.url).port) }
    }),
  )
  const running = opened.move()
  return { system, all, [Symbol.asyncDispose]: () => running.disposeAsync() }
}

/**
 * Sends a valid request.
 *
 * @throws {Error} unless the response belongs to this request
 */
export async function control(url: string, marker: string): Promise<void> {
  const response = await fetch(`${url}/v3/company/control/${marker}`, {
    headers: { Authorization: `Bearer ${KEY}` },
  })
  const body = await response.text()
  if (response.status !== 200 || body !== `control ${marker}`)
    throw new Error(`a valid request got the response ${response.status} ${body.slice(0, 200)}`)
}
