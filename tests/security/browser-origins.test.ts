/**
 * Tests which routes a web page of another origin can reach. The control routes of the sandbox provider need no service
 * key, so they must recognise requests that a browser sends for another site. The demo API has such tests of its own.
 */
import { request } from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { startSystem, type System } from '../support/system.ts'

/** Headers of a request that a browser sends for a page on another port of the same machine. */
const OTHER_PORT = { 'Sec-Fetch-Site': 'same-site', 'Sec-Fetch-Mode': 'no-cors' }
/** Headers of a request that a browser sends for a page of another site. */
const OTHER_SITE = { 'Sec-Fetch-Site': 'cross-site', Origin: 'https://evil.example' }
const JSON_TYPE = { 'Content-Type': 'application/json' }

interface Sent {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

/**
 * Sends a request with the given headers and resolves with the response status. `fetch` does not allow the headers
 * `Host` and `Sec-Fetch-Site`.
 */
const statusOf = (url: string, { method = 'GET', headers = {}, body }: Sent): Promise<number> =>
  new Promise((resolve, reject) => {
    const outgoing = request(url, { method, headers, agent: false }, (incoming) => {
      incoming.resume()
      incoming.on('end', () => resolve(incoming.statusCode ?? 0))
    })
    outgoing.on('error', reject)
    outgoing.end(body)
  })

let system: System

beforeAll(async () => {
  system = await startSystem(['sandbox-provider'])
})
afterAll(() => system[Symbol.asyncDispose]())

describe('the control routes of the sandbox provider when a web page calls them', () => {
  const changes = [
    ['POST', 'reset', undefined],
    ['PUT', 'settings', '{"latencyMs":1}'],
    ['POST', 'faults', '{"target":"api","status":500}'],
    ['DELETE', 'faults', undefined],
    ['POST', 'realms/9341453908059889/revoke', undefined],
    ['POST', 'realms/9341453908059889/expire', undefined],
  ] as const
  const settings = async (): Promise<unknown> =>
    (await fetch(`${system.url('sandbox-provider')}/sandbox/settings`)).json()

  it.each(
    changes.flatMap(([method, path, body]) =>
      (
        [
          ['from a page on another port', { ...JSON_TYPE, ...OTHER_PORT }, 403],
          ['from a page of another site', { ...JSON_TYPE, ...OTHER_SITE }, 403],
          [
            'with a foreign host name that resolves to the loopback address',
            { ...JSON_TYPE, Host: 'evil.example' },
            421,
          ],
          // A page can send these two kinds of requests to any address without a CORS preflight (Fetch standard,
          // "CORS-safelisted").
          ['without a content type', {}, 415],
          ['with the content type text/plain', { 'Content-Type': 'text/plain' }, 415],
        ] as const
      ).map(([sender, headers, status]) => [method, path, sender, headers, status, body] as const),
    ),
  )(
    'the sandbox rejects %s /sandbox/%s %s and changes nothing',
    async (method, path, _, headers, status, body) => {
      await sandboxClient(system).set({ accessTokenSeconds: 77 })
      const before = await settings()
      const url = `${system.url('sandbox-provider')}/sandbox/${path}`
      expect(await statusOf(url, { method, headers, ...(body !== undefined && { body }) })).toBe(
        status,
      )
      expect(await settings()).toEqual(before)
    },
  )

  it('the sandbox rejects a cross-site request for its call counters, because they contain realm ids', async () => {
    const url = `${system.url('sandbox-provider')}/sandbox/counters`
    expect(await statusOf(url, { headers: OTHER_SITE })).toBe(403)
    expect(await statusOf(url, { headers: { Host: 'evil.example' } })).toBe(421)
  })

  it.each([
    '/.well-known/openid_configuration',
    '/oauth2/v1/authorize',
    '/oauth2/v1/tokens/bearer',
    '/v3/company/1/query',
  ])(
    'the sandbox responds 421 to %s under a foreign host name that resolves to the loopback address',
    async (path) => {
      const url = system.url('sandbox-provider') + path
      expect(await statusOf(url, { headers: { Host: 'evil.example' } })).toBe(421)
    },
  )

  it('the sandbox accepts a settings change that a client other than a browser sends as JSON', async () => {
    await sandboxClient(system).set({ accessTokenSeconds: 77 })
    await sandboxClient(system).reset()
    expect(await settings()).toMatchObject({ accessTokenSeconds: 3_600 })
  })
})

describe('the authorization endpoint of the sandbox provider when a web page calls it', () => {
  const MAX_COMPANIES = 2_000
  const authorize = async (realm: string): Promise<Response> => {
    const url = new URL(`${system.url('sandbox-provider')}/connect/oauth2`)
    url.search = new URLSearchParams({
      response_type: 'code',
      client_id: 'integration-host',
      redirect_uri: `${system.url('token-service')}/callback`,
      scope: 'openid com.intuit.quickbooks.accounting',
      state: 'a-state',
      sandbox_company: realm,
    }).toString()
    return fetch(url, { redirect: 'manual' })
  }

  it('the sandbox responds 503 for new companies above its limit, and still connects existing companies', async () => {
    await sandboxClient(system).reset()
    let next = 0
    let rejected = 0
    const connectMany = async (): Promise<void> => {
      while (next < MAX_COMPANIES) {
        const response = await authorize(`stranger-${next++}`)
        await response.body?.cancel()
        if (response.status === 503) rejected++
      }
    }
    await Promise.all(Array.from({ length: 20 }, connectMany))
    expect(rejected).toBe(3) // the three built-in companies count towards the limit
    const beyond = await authorize('one-more')
    expect([beyond.status, beyond.headers.get('Location')]).toEqual([503, null])
    expect(await beyond.text()).toContain('POST /sandbox/reset')
    const existing = await authorize('9341453908059889')
    expect(existing.headers.get('Location')).toContain('code=')
    await sandboxClient(system).reset()
    expect((await authorize('one-more')).status).toBe(302)
  })
})
