/** Tests of the Reconnect URL and the Disconnect URL, with two replicas on Redis. */
import type { AuditPage } from '@integration-host/shared/contracts/audit'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { callBack } from '../../test-support/browser.ts'
import { collectFaultedEvents, type FaultedEvent } from '../../test-support/faulted-events.ts'
import { redisStoresPerTest } from '../../test-support/redis-stores.ts'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import {
  json,
  silent,
  startTestService,
  type TestRedis,
  type TestService,
  testKeys,
} from '../../test-support/service-fixture.ts'

const { openUsable } = redisStoresPerTest()
const REALM = '4620816365291'
const NAME = `ACC-${REALM}`

let provider: ScriptedProvider
let redis: TestRedis
let service: TestService
let closing: AsyncDisposableStack
let events: readonly FaultedEvent[]

beforeEach(async () => {
  closing = new AsyncDisposableStack()
  provider = closing.use(await startScriptedProvider())
  redis = await openUsable()
  const bus = closing.use(createInProcessBus(silent))
  events = await collectFaultedEvents(bus)
  service = await start({}, { bus })
})
afterEach(async () => {
  vi.useRealTimers()
  await closing.disposeAsync()
})

/** Stops the clock that the rate limits use. Otherwise a new interval could begin during a test on a slow machine. */
const stopClock = () => vi.useFakeTimers({ toFake: ['performance'] })

const start = async (
  env: Record<string, string> = {},
  options: Partial<Parameters<typeof startTestService>[0]> = {},
): Promise<TestService> =>
  closing.use(
    await startTestService({
      provider,
      store: redis.store,
      authorizations: redis.authorizations,
      keys: testKeys(),
      env,
      ...options,
    }),
  )
const visit = (path: string, init: RequestInit = {}, at: TestService = service) =>
  fetch(at.url + path, { redirect: 'manual', headers: { Accept: 'text/html' }, ...init })
const disconnected = (realm = REALM, at?: TestService) =>
  visit(`/disconnected?realmId=${realm}`, {}, at)
const refreshes = () => provider.requests.filter(({ grant }) => grant === 'refresh_token')
const credential = async () => (await service.ask(`/credentials/${NAME}`)).body
const LONG = 'x'.repeat(10_240)

describe('GET /reconnect', () => {
  it('GET /reconnect starts an authorization for a known company, and only this company can complete it', async () => {
    await service.connect(REALM)
    const started = await visit(`/reconnect?realmId=${REALM}`)
    expect(started.status).toBe(302)
    const consent = new URL(started.headers.get('Location') ?? '')
    expect(consent.origin).toBe(provider.url)
    const cookie = started.headers.getSetCookie()[0]?.split(';')[0] ?? ''
    const state = consent.searchParams.get('state') ?? ''
    const callback = (realmId: string, at = cookie) =>
      callBack(service.url, { code: provider.authorize(consent), realmId, state }, at)
    expect((await callback(REALM, '')).status).toBe(400)
    expect((await callback('8')).status).toBe(409)
    expect((await service.ask('/credentials/ACC-8')).status).toBe(404)
  })

  it('a visitor of /reconnect who chose another company can start again, and learns no label', async () => {
    await service.connect(REALM)
    await service.ask(`/credentials/${NAME}`, { ...json({ Label: 'Rosewood' }), method: 'PATCH' })
    const started = await visit(`/reconnect?realmId=${REALM}`)
    const consent = new URL(started.headers.get('Location') ?? '')
    const cookie = started.headers.getSetCookie()[0]?.split(';')[0] ?? ''
    const state = consent.searchParams.get('state') ?? ''
    const query = { code: provider.authorize(consent), realmId: '8', state }
    const refused = await callBack(service.url, query, cookie, { Accept: 'text/html' })
    const text = await refused.text()
    expect(text).toContain(`for the company ${REALM}, but the company 8 was chosen`)
    expect(text).not.toContain('Rosewood')
    expect(text).toMatch(
      new RegExp(`action="reconnect"[^]*name="realmId" value="${REALM}"[^]*Start again`),
    )
    // Anyone can visit this address, so the entry does not name the company.
    await eventually(async () => {
      const { items } = (await service.ask('/audit')).body as unknown as AuditPage
      expect(items.filter(({ Outcome }) => Outcome === 'realm_mismatch')).toMatchObject([
        { Name: '' },
      ])
    })
  })

  it('a visitor of /reconnect cannot replace the working grant of a company if the id token names no company', async () => {
    await service.connect(REALM)
    const visitor = async () => {
      const started = await visit(`/reconnect?realmId=${REALM}`)
      const consent = new URL(started.headers.get('Location') ?? '')
      const cookie = started.headers.getSetCookie()[0]?.split(';')[0] ?? ''
      const state = consent.searchParams.get('state') ?? ''
      // The visitor has chosen another company at the provider, and changes the realm in the address of the callback.
      const query = { code: provider.authorize(consent), realmId: REALM, state }
      return callBack(service.url, query, cookie)
    }
    const before = await credential()
    expect((await visitor()).status).toBe(409)
    expect(await credential()).toEqual(before)
    // After the grant of a company has ended, a visitor may replace the grant.
    provider.revokeAll()
    await service.ask(`/credentials/${NAME}/refresh`, { method: 'POST' })
    expect((await visitor()).status).toBe(302)
    expect(await credential()).toMatchObject({ Status: 'active' })
  })

  it('GET /reconnect responds to an unknown company and to a missing realmId with the same page, and sets no cookie', async () => {
    const pages = await Promise.all(
      ['/reconnect?realmId=1', '/reconnect', '/reconnect?realmId='].map(async (path) => {
        const response = await visit(path)
        return [response.status, response.headers.getSetCookie(), await response.text()]
      }),
    )
    expect(pages[0]).toEqual([
      200,
      [],
      expect.stringContaining('Ask the operator of this integration'),
    ])
    expect(pages.slice(1)).toEqual([pages[0], pages[0]])
  })

  it('GET /reconnect looks up at most 20 companies a second, and asks further visitors to try again', async () => {
    stopClock()
    const statuses = await Promise.all(
      Array.from(
        { length: 60 },
        async (_, index) => (await visit(`/reconnect?realmId=${index}`)).status,
      ),
    )
    expect(new Set(statuses)).toEqual(new Set([200, 503]))
    expect(statuses.filter((status) => status === 200)).toHaveLength(20)
  })

  it('visits of /reconnect without a realmId look up no company and do not count against the limit', async () => {
    await service.connect(REALM)
    const pages = await Promise.all(Array.from({ length: 60 }, () => visit('/reconnect')))
    expect(new Set(pages.map(({ status }) => status))).toEqual(new Set([200]))
    expect((await visit(`/reconnect?realmId=${REALM}`)).status).toBe(302)
  })

  it.each(['/reconnect', '/disconnected'])(
    '%s responds 400 with a page if the realmId has 10 KB, contains markup or is given twice',
    async (path) => {
      for (const query of [`realmId=${LONG}`, 'realmId=%3Cscript%3E', 'realmId=1&realmId=2']) {
        const response = await visit(`${path}?${query}`)
        expect([response.status, response.headers.get('Content-Type')]).toEqual([
          400,
          'text/html; charset=UTF-8',
        ])
        expect(await response.text()).not.toContain('<script')
      }
    },
  )
})

describe('GET /disconnected', () => {
  it('GET /disconnected for a disconnected company causes the fault disconnected, publishes its event, and ends token issuance', async () => {
    await service.connect(REALM)
    provider.revokeAll()
    const page = await disconnected()
    expect(page.status).toBe(200)
    expect(await page.text()).toContain(`<a href="reconnect?realmId=${REALM}">`)
    await eventually(async () =>
      expect(await credential()).toMatchObject({
        Status: 'faulted',
        Fault: {
          Code: 'disconnected',
          Final: false,
          Rejections: 1,
          Remedy: expect.stringMatching(/disconnected the application.*connect link.*\/reconnect/),
        },
      }),
    )
    await eventually(() => expect(events).toHaveLength(1))
    expect(events[0]?.event.Fault?.Code).toBe('disconnected')
    // The stored access token has not expired, but the provider has revoked it together with the grant.
    const issued = await service.ask(`/credentials/${NAME}/token`)
    expect([issued.status, issued.body['code']]).toEqual([424, 'credential_faulted'])
    expect(refreshes()).toHaveLength(1)

    await service.connect(REALM)
    expect(await credential()).toMatchObject({ Status: 'active' })
    expect((await service.ask(`/credentials/${NAME}/token`)).status).toBe(200)
  })

  it('a disconnect hint causes a final fault if the provider profile has no retry delays for rejected tokens', async () => {
    const strict = await start({ PROVIDER_PROFILE: 'generic', SCOPE: 'openid' })
    await strict.connect(REALM)
    provider.revokeAll()
    await disconnected(REALM, strict)
    await eventually(async () =>
      expect(await credential()).toMatchObject({ Fault: { Code: 'disconnected', Final: true } }),
    )
  })

  it('a disconnect hint is recognized even while an earlier rejection is still provisional', async () => {
    await service.connect(REALM)
    provider.revokeAll()
    await service.ask(`/credentials/${NAME}/refresh`, { method: 'POST' })
    expect(await credential()).toMatchObject({ Fault: { Code: 'used_elsewhere', Final: false } })
    await disconnected()
    await eventually(async () =>
      expect(await credential()).toMatchObject({
        Fault: { Code: 'disconnected', Final: false, Rejections: 1 },
      }),
    )
  })

  it('forged disconnect hints about a connected company cause one refresh a minute over all replicas, and no fault', async () => {
    const other = await start()
    await service.connect(REALM)
    for (let round = 0; round < 10; round += 1)
      await Promise.all([disconnected(), disconnected(REALM, other)])
    await eventually(async () => expect(await credential()).toMatchObject({ Version: 2 }))
    expect(await credential()).toMatchObject({ Status: 'active' })
    expect(refreshes()).toHaveLength(1)
    const key = `authorization:hint:${NAME}`
    expect(await redis.redis.pttl(key)).toBeGreaterThan(50_000)
    await redis.redis.del(key) // The expiry of this key after a minute would have the same effect.
    await disconnected(REALM, other)
    await eventually(() => expect(refreshes()).toHaveLength(2))
  })

  it('a disconnect hint causes no fault while the provider is unavailable', async () => {
    await service.connect(REALM)
    provider.script({ status: 503, body: '' }, { status: 503, body: '' })
    await disconnected()
    await eventually(() => expect(refreshes()).toHaveLength(2))
    await eventually(async () => expect(await redis.redis.hget(NAME, 'Attempts')).toBe('1'))
    expect(JSON.stringify(await credential())).not.toContain('disconnected')
  })

  it('a flood of disconnect hints about many companies causes at most 20 refreshes a minute', async () => {
    const realms = Array.from({ length: 40 }, (_, index) => String(index))
    for (const realm of realms) await service.connect(realm)
    stopClock()
    // Each of the first hints is awaited, because a process drops hints while it processes 16 others.
    for (const [index, realm] of realms.entries()) {
      await disconnected(realm)
      await eventually(() => expect(refreshes()).toHaveLength(Math.min(index + 1, 20)))
    }
    await disconnected('0')
    expect(refreshes()).toHaveLength(20)
  })

  it('disconnect hints about unknown companies write nothing, and get the same page as hints about known companies', async () => {
    const [first, second] = await Promise.all(['1', '2'].map((realm) => disconnected(realm)))
    expect((await first?.text())?.replaceAll('realmId=1', '')).toBe(
      (await second?.text())?.replaceAll('realmId=2', ''),
    )
    expect((await visit('/disconnected')).status).toBe(200)
    expect(await redis.redis.keys(`${redis.prefix}authorization:*`)).toEqual([])
  })

  it('a HEAD request to /disconnected is not treated as a disconnect hint', async () => {
    await service.connect(REALM)
    expect((await visit(`/disconnected?realmId=${REALM}`, { method: 'HEAD' })).status).toBe(200)
    await disconnected('another')
    expect(await redis.redis.exists(`authorization:hint:${NAME}`)).toBe(0)
  })
})
