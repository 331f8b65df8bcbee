import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { chooseProxy } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { createProxiedFetch } from '@integration-host/shared/http/forward-proxy/tunnel'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { startForwardProxy } from '@integration-host/shared/test-support/forward-proxy'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { readConfig } from '../../config.ts'
import { createOpenIdProvider } from './openid-provider.ts'

/** The discovery requests that have no response yet. */
let waiting: ServerResponse[]
let server: ReturnType<typeof createServer>

beforeEach(async () => {
  waiting = []
  server = createServer((_, response) => void waiting.push(response)).listen(0, '127.0.0.1')
  await once(server, 'listening')
})
afterEach(() => {
  server.closeAllConnections()
  server.close()
})

it('sign-ins share one request for the discovery document, also for five seconds after the provider has failed', async () => {
  let now = 0
  const failures: string[] = []
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const provider = createOpenIdProvider({
    issuer,
    clientId: 'console',
    clientSecret: new Secret('secret'),
    scope: 'openid',
    redirectUri: () => 'http://127.0.0.1/sign-in/callback',
    onFailure: (reason) => void failures.push(reason),
    fetch,
    now: () => now,
  })
  const begin = () => Promise.allSettled(Array.from({ length: 100 }, () => provider.begin()))
  const respond = async (status: number, body: unknown): Promise<void> => {
    await eventually(() => expect(waiting).toHaveLength(1))
    waiting
      .pop()
      ?.writeHead(status, { 'Content-Type': 'application/json' })
      .end(JSON.stringify(body))
  }
  const outcomes = (results: readonly PromiseSettledResult<unknown>[]) => [
    ...new Set(results.map(({ status }) => status)),
  ]

  const first = begin()
  await respond(503, {})
  expect(outcomes(await first)).toEqual(['rejected'])
  now = 4_999
  expect(outcomes(await begin())).toEqual(['rejected'])
  expect([waiting.length, failures.length]).toEqual([0, 1])

  now = 5_000
  const second = begin()
  await respond(200, { issuer, authorization_endpoint: `${issuer}/authorize` })
  expect(outcomes(await second)).toEqual(['fulfilled'])
  now = 5_000 + 3_599_999
  expect(outcomes(await begin())).toEqual(['fulfilled'])
  expect([waiting.length, failures.length]).toEqual([0, 1])
})

it('sign-ins reach the OpenID provider through the forward proxy', async () => {
  const { port } = server.address() as AddressInfo
  await using proxy = await startForwardProxy({ routes: { 'issuer.test:80': port } })
  const issuer = 'http://issuer.test'
  const config = readConfig({
    SERVICE_API_KEY: 'k'.repeat(32),
    SIGN_IN: 'link',
    http_proxy: `http://${proxy.address}`,
  })
  const provider = createOpenIdProvider({
    issuer,
    clientId: 'console',
    clientSecret: new Secret('secret'),
    scope: 'openid',
    redirectUri: () => 'http://127.0.0.1/sign-in/callback',
    onFailure() {},
    fetch: createProxiedFetch(chooseProxy(config)),
    now: () => 0,
  })
  const begun = provider.begin()
  await eventually(() => expect(waiting).toHaveLength(1))
  waiting
    .pop()
    ?.writeHead(200, { 'Content-Type': 'application/json' })
    .end(JSON.stringify({ issuer, authorization_endpoint: `${issuer}/authorize` }))
  expect((await begun).url).toContain(`${issuer}/authorize?`)
  expect(proxy.requests.map(({ to }) => to)).toEqual(['issuer.test:80'])
})
