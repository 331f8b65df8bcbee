/**
 * Tests what clients without a service key can cause through the authorization routes. All services are real
 * processes.
 */
import type { AuditPage } from '@integration-host/shared/contracts/audit'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { tokenServiceClient } from '../support/clients/token-service.ts'
import { connectCompany, consentInBrowser } from '../support/clients/user-actions.ts'
import { backend, type ServiceProcess, startSystem, type System } from '../support/system.ts'

let system: System
/** A second replica of token-service. */
let other: ServiceProcess
let redis: Redis

beforeAll(async () => {
  system = await startSystem(['token-service', 'sandbox-provider'])
  other = await system.replica('token-service')
  redis = new Redis(backend('TEST_REDIS_URL'))
})
afterAll(async () => {
  redis.disconnect()
  await system[Symbol.asyncDispose]()
})

const keys = async (kind: string): Promise<string[]> => {
  const found: string[] = []
  const match = `${system.redisKeyPrefix}${kind}*`
  for await (const page of redis.scanStream({ match, count: 1_000 }) as AsyncIterable<string[]>)
    found.push(...page)
  return (
    found
      .map((key) => key.slice(system.redisKeyPrefix.length))
      // token-service writes the keys that begin with `credentials:` even without a request, so these keys are left
      // out.
      .filter((key) => !/^(?:lease:)?credentials:/.test(key))
      .toSorted()
  )
}
const serviceUrl = () => system.url('token-service')

/** Starts an authorization as a client that has neither a key nor a browser's cookies. */
async function startAnonymously() {
  const response = await fetch(`${serviceUrl()}/authorize`, { redirect: 'manual' })
  const cookie = response.headers.getSetCookie()[0]?.split(';')[0] ?? ''
  const consent = new URL(response.headers.get('Location') ?? '')
  return { cookie, state: consent.searchParams.get('state') ?? '' }
}
/** Sends a callback with a code that the provider has not issued. Resolves with the response. */
async function callBackWithMadeUpCode(realmId: string): Promise<Response> {
  const { cookie, state } = await startAnonymously()
  const query = new URLSearchParams({ code: `made-up-${realmId}`, realmId, state })
  const response = await fetch(`${serviceUrl()}/callback?${query.toString()}`, {
    redirect: 'manual',
    headers: { Cookie: cookie },
  })
  return response
}

describe('GET /authorize', () => {
  it('GET /authorize writes nothing to Redis, however often it is called', async () => {
    const before = await keys('')
    const returnTo = encodeURIComponent(`http://localhost/${'x'.repeat(480)}`)
    for (let batch = 0; batch < 10; batch += 1) {
      const starts = Array.from({ length: 30 }, () =>
        fetch(`${serviceUrl()}/authorize?return_to=${returnTo}`, { redirect: 'manual' }),
      )
      for (const { status } of await Promise.all(starts)) expect(status).toBe(302)
    }
    expect(await keys('authorization:')).toEqual([])
    expect(await keys('')).toEqual(before)
  })
})

describe('GET /callback', () => {
  it('a callback with a forged state or from another browser writes nothing to Redis, and the valid state stays usable', async () => {
    const realm = '4620816365001'
    const { callback, follow } = await consentInBrowser(system, realm)
    const before = await keys('')
    const forged = new URL(callback)
    forged.searchParams.set('state', 'x'.repeat(300))
    for (const url of [forged, callback])
      expect((await fetch(url, { redirect: 'manual' })).status).toBe(400)
    expect(await keys('')).toEqual(before)
    expect((await follow()).status).toBe(302)
    expect(await keys('authorization:')).toHaveLength(1)
    expect((await follow()).status).toBe(400)
  })

  it('GET /callback completes an authorization that another replica of token-service has started', async () => {
    const realm = '4620816365002'
    const { callback, cookie } = await consentInBrowser(system, realm)
    const there = `${other.url}${callback.pathname}${callback.search}`
    const response = await fetch(there, { redirect: 'manual', headers: { Cookie: cookie } })
    expect(response.headers.get('Location')).toBe(`/connected?name=ACC-${realm}`)
  })

  it('two replicas of token-service respond to simultaneous callbacks with the result of one code exchange', async () => {
    const realm = '4620816365003'
    const { callback, cookie } = await consentInBrowser(system, realm)
    await sandboxClient(system).delayNextTokenResponse(500)
    const responses = await Promise.all(
      [serviceUrl(), other.url].map((origin) =>
        fetch(`${origin}${callback.pathname}${callback.search}`, {
          redirect: 'manual',
          headers: { Cookie: cookie },
        }),
      ),
    )
    const location = `/connected?name=ACC-${realm}`
    expect(responses.map(({ headers }) => headers.get('Location'))).toEqual([location, location])
    expect((await tokenServiceClient(system).credential(realm)).Version).toBe(1)
  })

  it('token-service limits how many made-up codes it sends to the provider, and keeps the audit entries of other callers', async () => {
    const realm = '4620816365004'
    expect((await connectCompany(system, realm)).status).toBe(302)
    const flood = Array.from({ length: 150 }, (_, index) => callBackWithMadeUpCode(`${index}`))
    // The codes from browsers do not delay a refresh, and a code that is sent with the service key is not rejected.
    expect((await tokenServiceClient(system).refresh(realm, {})).Version).toBe(2)
    const { status } = await system.call(
      `${serviceUrl()}/callback`,
      postJson({ RealmID: '1', Code: 'code-of-a-key-holder' }),
    )
    expect(status).toBe(502)
    const responses = await Promise.all(flood)
    const failed = responses.filter((response) => response.status === 502)
    const busy = responses.filter((response) => response.status === 503)
    expect(failed.length + busy.length).toBe(150)
    expect(busy.length).toBeGreaterThan(0)
    for (const response of busy) {
      expect(await response.json()).toMatchObject({ code: 'busy' })
      expect(response.headers.get('Retry-After')).toBe('5')
    }
    // Each code exchange causes one request to the provider and no retry. The number includes the exchange with the
    // service key.
    const metrics = await (await fetch(`${serviceUrl()}/metrics`)).text()
    const rejected =
      /^provider_request_duration_seconds_count\{[^}]*call="exchange",outcome="refused"[^}]*\} (\d+)$/m
    expect(Number(rejected.exec(metrics)?.[1])).toBe(failed.length + 1)
    await eventually(async () => {
      const response = await system.call(`${serviceUrl()}/audit?limit=1000`)
      const { items } = (await response.json()) as AuditPage
      const ofBrowsers = items.filter(({ Outcome, Who }) => Outcome !== 'ok' && Who === 'browser')
      expect(ofBrowsers.reduce((sum, { Count = 0 }) => sum + Count, 0)).toBe(failed.length)
      expect(new Set(ofBrowsers.map(({ Name }) => Name))).toEqual(new Set(['']))
      expect(ofBrowsers.length).toBeLessThan(failed.length)
      expect(items.filter(({ Name }) => Name === `ACC-${realm}`)).toHaveLength(2)
    })
  })
})
