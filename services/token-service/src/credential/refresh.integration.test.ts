/**
 * Tests of the refresh protocol on real Redis. `I1` to `I10` are the invariants in the comment at the top of
 * refresh.ts.
 */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import { collectFaultedEvents } from '../../test-support/faulted-events.ts'
import {
  CLIENT_SECRET,
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import { changeRecord, expiringIn } from '@integration-host/shared/test-support/change-record'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import {
  json,
  type ServiceOptions,
  silent,
  startTestService,
  testKeys,
  type TestRedis,
  type TestService,
  usable,
  useTestRedis,
} from '../../test-support/service-fixture.ts'
import type { CredentialStore } from './credential-store.ts'
import { OutboxEntry } from './outbox.ts'
import { type Failpoint, failpoints, refreshTiming } from './refresh.ts'

const NAME = 'ACC-1'
let keys: KeyRing
let provider: ScriptedProvider
let redis: TestRedis
let cleanup: AsyncDisposableStack

beforeEach(async () => {
  cleanup = new AsyncDisposableStack()
  keys = testKeys()
  provider = cleanup.use(await startScriptedProvider())
  redis = await useTestRedis(cleanup, { keys })
})
afterEach(() => cleanup.disposeAsync())

async function start(options: Partial<ServiceOptions> = {}): Promise<TestService> {
  const { store, authorizations } = redis
  return cleanup.use(await startTestService({ provider, store, authorizations, keys, ...options }))
}

/** Changes the record of a credential so that its access token has expired. */
async function expire(name = NAME): Promise<void> {
  await changeRecord(redis.redis, keys, name, expiringIn(-1_000))
}
/** Starts a service, and connects a company. */
async function connected(options: Partial<ServiceOptions> = {}): Promise<TestService> {
  const service = await start(options)
  await service.connect('1')
  return service
}
/** Starts a service, and connects a company whose access token has expired. */
async function expired(options: Partial<ServiceOptions> = {}): Promise<TestService> {
  const service = await connected(options)
  await expire()
  return service
}
const token = (service: TestService, name = NAME) => service.ask(`/credentials/${name}/token`)
const shown = async (service: TestService, name = NAME) =>
  (await service.ask(`/credentials/${name}`)).body
const refresh = (service: TestService, name = NAME) =>
  service.ask(`/credentials/${name}/refresh`, { method: 'POST' })
const refreshes = () => provider.requests.filter(({ grant }) => grant === 'refresh_token')
const events = async (): Promise<string[]> => {
  // The events are read from the outbox, because the in-process bus has no subscriber.
  const all = await redis.redis.xrange('credentials:outbox', '-', '+')
  return all.flatMap(([, [, entry]]) =>
    OutboxEntry.parse(JSON.parse(entry ?? '')).events.map(({ kind }) => kind),
  )
}

/**
 * Returns the store of a process that the test can kill. Each call of this store fails after the process was killed.
 */
function killable(store: CredentialStore) {
  let isDead = false
  const proxied = new Proxy(store, {
    get:
      (target, method: keyof CredentialStore) =>
      (...args: never[]) =>
        isDead
          ? Promise.reject(new Error('this process is dead'))
          : (target[method] as (...given: never[]) => unknown)(...args),
  })
  return {
    store: proxied,
    die: () => {
      isDead = true
      throw new Error('killed')
    },
    kill: () => {
      isDead = true
    },
  }
}

/** The options of a process that is killed at a failpoint. */
function killedAt(point: Failpoint): Partial<ServiceOptions> {
  const doomed = killable(redis.store)
  return { store: doomed.store, failpoint: (at) => (at === point ? doomed.die() : undefined) }
}

describe('single flight (I1 of refresh.ts)', () => {
  it('three replicas with any number of concurrent callers send a single refresh request to the provider', async () => {
    // On a busy machine, a refresh may take longer than the short lease of these tests. Another replica would then
    // assume that the process has died, and refresh again.
    const timing = refreshTiming
    const services = [await start({ timing })]
    for (const _ of [2, 3]) {
      const { store, authorizations } = await useTestRedis(cleanup, { keys, prefix: redis.prefix })
      services.push(await start({ store, authorizations, timing }))
    }
    await services[0]?.connect('1')
    provider.knobs.latencyMs = 150
    await expire()
    const calls = services.flatMap((service) => Array.from({ length: 34 }, () => token(service)))
    const responses = await Promise.all(calls)
    expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([200]))
    expect(new Set(responses.map(({ body }) => body['Authenticator'])).size).toBe(1)
    expect(responses[0]?.body['Version']).toBe(2)
    expect(refreshes()).toHaveLength(1)
  })

  it('concurrent refresh requests with the same version cause one refresh, and a later request with this version causes none', async () => {
    const service = await connected()
    const renew = () => service.ask(`/credentials/${NAME}/refresh`, json({ Version: 1 }))
    const responses = await Promise.all(Array.from({ length: 20 }, renew))
    expect(responses.map(({ body }) => body['Version'])).toEqual(Array(20).fill(2))
    expect((await renew()).body['Version']).toBe(2)
    expect(refreshes()).toHaveLength(1)
  })

  it('a valid access token is issued without waiting for its proactive refresh', async () => {
    const service = await connected({ env: { REFRESH_AHEAD_SECONDS: '600' } })
    const before = (await token(service)).body
    const gate = Promise.withResolvers<void>()
    provider.script({ until: gate.promise })
    await changeRecord(redis.redis, keys, NAME, expiringIn(60_000))
    const during = await Promise.all(Array.from({ length: 5 }, () => token(service)))
    expect(during.map(({ body }) => body['Authenticator'])).toEqual(
      Array(5).fill(before['Authenticator']),
    )
    gate.resolve()
    await eventually(async () => expect((await shown(service))['Version']).toBe(2))
    expect(refreshes()).toHaveLength(1)
  })

  it('if the access tokens of a hundred realms expire at the same time, each is refreshed once, at most 32 concurrently', async () => {
    const service = await start()
    const realms = Array.from({ length: 100 }, (_, index) => `r${index}`)
    await Promise.all(realms.map((realm) => service.connect(realm)))
    provider.knobs.latencyMs = 20
    for (const realm of realms) {
      await expire(`ACC-${realm}`)
      await redis.redis.zadd('credentials:due', 1, `ACC-${realm}`)
    }
    await eventually(async () => {
      const versions = await Promise.all(
        realms.map((realm) => redis.redis.hget(`ACC-${realm}`, 'Version')),
      )
      expect(new Set(versions)).toEqual(new Set(['2']))
    })
    expect(refreshes()).toHaveLength(100)
    expect(provider.mostAtOnce).toBeLessThanOrEqual(32)
  })
})

describe('a refresh that is granted', () => {
  it('a granted refresh replaces all tokens, keeps the realm, and counts the token lifetime from the start of the request', async () => {
    const service = await expired()
    provider.knobs.latencyMs = 100
    const { body } = await token(service)
    const receivedAt = refreshes()[0]?.at ?? 0
    expect(Date.parse(String(body['Expiry']))).toBeLessThanOrEqual(receivedAt + 3_600_000)
    const { lease, credential, refreshToken, previous } = await leased()
    expect([lease.version, credential.environment]).toEqual([2, '1'])
    expect(refreshToken?.reveal()).not.toBe(previous?.token.reveal())
    expect(previous?.token.reveal()).toBe(refreshes()[0]?.form.get('refresh_token'))
  })

  it('a granted refresh keeps the refresh token and the id token if the response does not contain them', async () => {
    const service = await connected()
    provider.knobs.rotation = 'never'
    provider.script({ members: { refresh_token: undefined, id_token: undefined } })
    await expire()
    await token(service)
    const { refreshToken, previous, idToken } = await leased()
    expect(refreshToken?.reveal()).toBe(refreshes()[0]?.form.get('refresh_token'))
    expect([previous, idToken === null]).toEqual([null, false])
  })

  async function leased() {
    const acquired = await redis.store.acquire(NAME, 'test', 1_000)
    if (acquired.kind !== 'acquired') throw new Error(acquired.kind)
    return acquired.leased
  }
})

describe('a process that is killed during a refresh (I3 and I5 of refresh.ts)', () => {
  /**
   * At these failpoints, the provider has already rotated the refresh token, and the response is lost together with the
   * process.
   */
  const isTokenUsed = (point: Failpoint): boolean =>
    point === 'after response' || point === 'before commit'

  describe.each(['never', 'with grace'] as const)('with refresh token rotation: %s', (rotation) => {
    it.each(failpoints)(
      'another replica refreshes the credential after a process was killed %s',
      async (point) => {
        const first = await connected(killedAt(point))
        provider.knobs.rotation = rotation === 'never' ? 'never' : 'always'
        provider.knobs.graceMs = rotation === 'never' ? 0 : 60_000
        await expire()
        await first.call(`/credentials/${NAME}/token`)
        const survivor = await start()
        const { status, body } = await token(survivor)
        expect([status, typeof body['Authenticator']]).toEqual([200, 'string'])
        expect(await shown(survivor)).toMatchObject({
          Status: 'active',
          Version: 2,
        })
        const calls = {
          'before intent': 1,
          'after intent': 1,
          'after response': 2,
          'before commit': 2,
          'after commit': 1,
        }[point]
        expect(refreshes()).toHaveLength(calls)
        expect(provider.mostAtOnce).toBe(1)
      },
    )
  })

  it.each(failpoints.filter((point) => !isTokenUsed(point)))(
    'no grant is lost if the refreshing process was killed %s, even if a used refresh token becomes invalid immediately',
    async (point) => {
      const first = await expired(killedAt(point))
      await first.call(`/credentials/${NAME}/token`)
      const survivor = await start()
      expect((await token(survivor)).status).toBe(200)
      expect(refreshes()).toHaveLength(1)
    },
  )

  it('if a refresh token can be used only once, a process that is killed before its commit causes one fault rotation_lost', async () => {
    const first = await expired(killedAt('before commit'))
    await first.call(`/credentials/${NAME}/token`)
    // The second service does not publish events, so they stay in the outbox, where the test counts them.
    const survivor = await start({ store: withoutRelay(redis.store) })
    const responses = await Promise.all(Array.from({ length: 5 }, () => token(survivor)))
    expect(responses.map(({ status }) => status)).toEqual(Array(5).fill(424))
    expect(responses[0]?.body).toMatchObject({
      code: 'credential_faulted',
      detail: `Couldn't refresh token for realm ${NAME}, {"error":"invalid_grant"}`,
      Fault: { Code: 'rotation_lost', TraceId: 'trace-1-0123456789' },
    })
    expect((await events()).filter((kind) => kind === 'faulted')).toHaveLength(1)
  })

  const withoutRelay = (store: CredentialStore): CredentialStore => ({
    ...store,
    readOutbox: async () => null,
  })

  it('another process repeats the request of a killed process only when that request can no longer be in flight', async () => {
    const doomed = killable(redis.store)
    const response = Promise.withResolvers<void>()
    const first = await connected({ store: doomed.store })
    provider.knobs.graceMs = 60_000
    await expire()
    provider.script({ until: response.promise })
    const lost = first.call(`/credentials/${NAME}/token`).catch(() => {})
    await eventually(() => expect(refreshes()).toHaveLength(1))
    doomed.kill()
    const survivor = await start({ timing: { intentMaxAgeMs: 1_500 } })
    expect((await token(survivor)).status).toBe(200)
    response.resolve()
    expect(refreshes()).toHaveLength(2)
    const [at1 = 0, at2 = 0] = refreshes().map(({ at }) => at)
    expect(at2 - at1).toBeGreaterThanOrEqual(1_400)
    await lost
  })
})

describe('a lease holder that was paused until its lease expired (I7 of refresh.ts)', () => {
  /** Starts a refresh that pauses before its commit. By default, the paused replica does not renew its leases. */
  async function pausedRefresh(options: Partial<ServiceOptions> = {}) {
    const { promise, resolve: wake } = Promise.withResolvers<void>()
    const first = await expired({
      store: { ...redis.store, renew: async () => false },
      failpoint: (at) => (at === 'before commit' ? promise : undefined),
      ...options,
    })
    const slow = token(first)
    await eventually(() => expect(refreshes()).toHaveLength(1))
    return { first, slow, wake }
  }

  it('a paused process commits its token pair under a new lease after another replica has recorded a fault', async () => {
    const { slow, wake } = await pausedRefresh()
    // The lease expires, and another replica acquires it. Under strict rotation, the provider rejects the refresh token
    // of the other replica, because the paused process has already used it.
    const second = await start()
    const taken = await token(second)
    expect(taken).toMatchObject({ status: 424, body: { Fault: { Code: 'rotation_lost' } } })
    wake()
    expect((await slow).status).toBe(200)
    await eventually(async () =>
      expect(await shown(second)).toMatchObject({
        Status: 'active',
        Version: 2,
      }),
    )
    const healed = await token(second)
    expect(healed.body['Authenticator']).toBe((await slow).body['Authenticator'])
  })

  it('a process that was paused during a refresh commits its token pair, and the replica that waited uses this pair', async () => {
    const { slow, wake } = await pausedRefresh()
    const fence = await redis.redis.hget(NAME, 'Fence')
    const second = await start({ timing: { intentMaxAgeMs: 600_000 } })
    const waiting = token(second)
    // The lease of the paused process expires, and the other replica acquires it.
    await eventually(async () => expect(await redis.redis.hget(NAME, 'Fence')).not.toBe(fence))
    wake()
    const { status, body } = await waiting
    expect([status, body['Version']]).toEqual([200, 2])
    expect((await slow).body['Authenticator']).toBe(body['Authenticator'])
    expect(refreshes()).toHaveLength(1)
  })

  it('a new grant that was stored while the lease holder was paused is not overwritten', async () => {
    const { first, slow, wake } = await pausedRefresh({ store: redis.store })
    await first.connect('1')
    const granted = (await token(first)).body['Authenticator']
    wake()
    expect((await slow).body).toMatchObject({ Authenticator: granted, Version: 2 })
    expect((await token(first)).body['Authenticator']).toBe(granted)
  })

  it('a credential that was removed while the lease holder was paused is not restored', async () => {
    const { first, slow, wake } = await pausedRefresh({ timing: { leaseMs: 300 } })
    expect((await first.call(`/credentials/${NAME}`, { method: 'DELETE' })).status).toBe(204)
    wake()
    expect((await slow).status).toBe(404)
    expect(await redis.redis.exists(NAME)).toBe(0)
  })
})

describe('the lease of a refresh', () => {
  it('the lease of a refresh is renewed while the provider responds slowly, but not after the refresh has ended', async () => {
    const renewals = new Map<number, number>()
    const renewed = (fence: number): number => renewals.get(fence) ?? 0
    const store: CredentialStore = {
      ...redis.store,
      renew: (lease, leaseMs) => {
        renewals.set(lease.fence, renewed(lease.fence) + 1)
        return redis.store.renew(lease, leaseMs)
      },
    }
    const service = await connected({ store, timing: { leaseMs: 300 } })
    const ended: [fence: number, renewals: number][] = []
    // Each request takes four times as long as a lease. If the lease of an ended refresh were still renewed, the test
    // would count these renewals during the next request.
    for (const step of [
      { latencyMs: 1_200 },
      { latencyMs: 1_200, status: 400, body: '{"error":"invalid_scope"}' },
      { latencyMs: 1_200 },
    ]) {
      provider.script(step)
      await refresh(service)
      const last = Math.max(...renewals.keys())
      ended.push([last, renewed(last)])
    }
    expect(refreshes()).toHaveLength(3)
    expect(new Set(ended.map(([fence]) => fence)).size).toBe(3)
    for (const [fence, during] of ended) {
      expect(during).toBeGreaterThanOrEqual(4)
      expect(renewed(fence) - during).toBeLessThanOrEqual(1)
    }
  })
})

describe('a token endpoint that fails', () => {
  it.each([
    ['HTML', { status: 200, body: '<html>' }],
    ['status 500', { status: 500, body: 'boom' }],
    ['a closed connection', { cuts: 'before' as const }],
  ])(
    'a token endpoint that responds with %s gets the same refresh request once more, after a delay',
    async (_, step) => {
      const service = await expired()
      provider.script(step)
      expect((await token(service)).status).toBe(200)
      expect(refreshes()).toHaveLength(2)
      expect((refreshes()[1]?.at ?? 0) - (refreshes()[0]?.at ?? 0)).toBeGreaterThanOrEqual(45)
      expect(refreshes()[1]?.form.get('refresh_token')).toBe(
        refreshes()[0]?.form.get('refresh_token'),
      )
    },
  )

  it('if the access token has expired, a failing token endpoint causes a fault, and the refresh is retried with back-off', async () => {
    const service = await expired()
    const before = await redis.redis.hmget(NAME, 'Authenticator', 'RefreshToken', 'StoreA')
    provider.script({ status: 500, body: 'boom' }, { status: 500, body: 'boom' })
    const rejected = await service.call(`/credentials/${NAME}/token`)
    expect([rejected.status, Number(rejected.headers.get('Retry-After'))]).toEqual([
      503,
      expect.any(Number),
    ])
    expect(Number(rejected.headers.get('Retry-After'))).toBeGreaterThanOrEqual(1)
    expect(await rejected.json()).toMatchObject({ code: 'provider_unavailable' })
    expect(await shown(service)).toMatchObject({
      Status: 'faulted',
      Version: 1,
      Fault: {
        Code: 'provider_unavailable',
        Message: `Couldn't refresh token for realm ${NAME}, boom`,
        Attempts: 1,
      },
    })
    expect(await redis.redis.hmget(NAME, 'Authenticator', 'RefreshToken', 'StoreA')).toEqual(before)
    // During the back-off, further callers get the same error, and no request is sent to the provider.
    for (const _ of [1, 2, 3])
      expect((await service.call(`/credentials/${NAME}/token`)).status).toBe(503)
    expect(refreshes()).toHaveLength(2)
    await eventually(async () =>
      expect(await shown(service)).toMatchObject({
        Status: 'active',
        Version: 2,
      }),
    )
  })

  it('a valid access token is issued and no fault is recorded while the token endpoint fails', async () => {
    const service = await connected()
    const issued = (await token(service)).body['Authenticator']
    provider.script({ status: 503, body: '' }, { status: 503, body: '' })
    await changeRecord(redis.redis, keys, NAME, expiringIn(60_000))
    expect((await token(service)).body['Authenticator']).toBe(issued)
    await eventually(async () => expect(await redis.redis.hget(NAME, 'Attempts')).toBe('1'))
    expect(await shown(service)).toMatchObject({ Status: 'active' })
  })

  it('the token endpoint gets no further request before its Retry-After has passed', async () => {
    const service = await expired()
    provider.script({ status: 429, body: '', headers: { 'Retry-After': '30' } })
    const response = await service.call(`/credentials/${NAME}/token`)
    expect([response.status, Number(response.headers.get('Retry-After')) >= 30]).toEqual([
      503,
      true,
    ])
    await service.call(`/credentials/${NAME}/token`)
    expect(refreshes()).toHaveLength(1)
  })
})

describe('a refresh token that the provider rejects in an outage (I10 of refresh.ts)', () => {
  const invalidGrant = { status: 400, body: '{"error":"invalid_grant"}' }
  const fault = async (): Promise<Record<string, unknown>> =>
    JSON.parse((await redis.redis.hget(NAME, 'Fault')) ?? '{}') as Record<string, unknown>
  const sentTokens = () => refreshes().map(({ form }) => form.get('refresh_token'))

  it('a request for an access token does not send a rejected refresh token again, but the refresh schedule does', async () => {
    const service = await expired({ timing: { rejectedGrantRetryDelaysMs: [1_500, 60_000] } })
    provider.script(invalidGrant)
    const rejected = await token(service)
    expect(rejected).toMatchObject({
      status: 424,
      body: {
        code: 'credential_faulted',
        detail: `Couldn't refresh token for realm ${NAME}, {"error":"invalid_grant"}`,
        Fault: { Code: 'used_elsewhere', Final: false, Rejections: 1 },
      },
    })
    expect((await token(service)).status).toBe(424)
    expect(refreshes()).toHaveLength(1)
    // The refresh schedule sends the same refresh token again without a request from a caller.
    await eventually(async () => expect(await redis.redis.hget(NAME, 'Version')).toBe('2'))
    expect(new Set(sentTokens()).size).toBe(1)
    expect(await shown(service)).toMatchObject({ Status: 'active' })
    expect((await token(service)).status).toBe(200)
  })

  it('a rejected refresh token is sent again as often as the provider profile says, and then the fault is final', async () => {
    const bus = cleanup.use(createInProcessBus(silent))
    const published = await collectFaultedEvents(bus)
    const service = await expired({ bus, timing: { rejectedGrantRetryDelaysMs: [20, 20] } })
    const stored = await redis.redis.hmget(NAME, 'Authenticator', 'RefreshToken', 'StoreA')
    provider.revokeAll()
    expect((await token(service)).status).toBe(424)
    await eventually(async () => expect(await fault()).toMatchObject({ Final: true }))
    expect(await fault()).toMatchObject({ Code: 'used_elsewhere', Rejections: 3 })
    expect(await redis.redis.zscore('credentials:due', NAME)).toBeNull()
    expect(sentTokens()).toHaveLength(3)
    expect(new Set(sentTokens()).size).toBe(1)
    await refresh(service)
    expect(refreshes()).toHaveLength(3)
    expect(await redis.redis.hmget(NAME, 'Authenticator', 'RefreshToken', 'StoreA')).toEqual(stored)
    await eventually(() => expect(published).toHaveLength(2))
    expect(published.map(({ event }) => event.Fault?.Final)).toEqual([false, true])
    expect(published.map(({ messageId }) => messageId)).toEqual([
      `${NAME}/1/faulted`,
      `${NAME}/1/faulted/final`,
    ])
  })

  it('a failure unrelated to the grant does not replace the provisional fault of a rejected refresh token', async () => {
    const service = await expired({ timing: { rejectedGrantRetryDelaysMs: [60_000, 60_000] } })
    provider.script(invalidGrant, { status: 503, body: '' }, { status: 503, body: '' })
    await token(service)
    const forced = await refresh(service)
    expect([forced.status, refreshes().length]).toEqual([424, 3])
    expect(await fault()).toMatchObject({ Code: 'used_elsewhere', Final: false, Rejections: 1 })
  })

  it('the fault class stays the same after a request of unknown outcome between two rejections', async () => {
    const service = await expired({ timing: { rejectedGrantRetryDelaysMs: [60_000, 60_000] } })
    provider.script(invalidGrant, { status: 503, body: '' }, { status: 503, body: '' })
    await token(service)
    await refresh(service)
    provider.revokeAll()
    await refresh(service)
    expect(await fault()).toMatchObject({ Code: 'used_elsewhere', Rejections: 2 })
  })

  it('the previous refresh token is sent only once, even if the current refresh token is rejected several times', async () => {
    const service = await connected({ timing: { rejectedGrantRetryDelaysMs: [60_000, 60_000] } })
    await refresh(service)
    provider.revokeAll()
    await refresh(service)
    await refresh(service)
    const [first, current, previous, again, ...more] = sentTokens()
    expect(previous).toBe(first)
    expect(again).toBe(current)
    expect(more).toEqual([])
  })

  it('nextExpiryAt ignores a credential whose refresh token was rejected', async () => {
    const service = await connected({ timing: { rejectedGrantRetryDelaysMs: [60_000] } })
    expect((await redis.store.counts()).nextExpiryAt).not.toBeNull()
    provider.revokeAll()
    await refresh(service)
    expect((await redis.store.counts()).nextExpiryAt).toBeNull()
  })
})

const FIRST_REJECTION_IS_FINAL = { rejectedGrantRetryDelaysMs: [] }

describe('a grant that has ended (I9 of refresh.ts)', () => {
  it('an ended grant gets a final fault after one request with the previous token, and no further request is sent', async () => {
    const service = await connected({ timing: FIRST_REJECTION_IS_FINAL })
    await refresh(service)
    provider.revokeAll()
    const before = await redis.redis.hmget(
      NAME,
      'Authenticator',
      'RefreshToken',
      'StoreA',
      'Previous',
    )
    const rejected = await refresh(service)
    expect(rejected).toMatchObject({
      status: 424,
      body: {
        code: 'credential_faulted',
        detail: `Couldn't refresh token for realm ${NAME}, {"error":"invalid_grant"}`,
      },
    })
    const sent = refreshes()
      .slice(1)
      .map(({ form }) => form.get('refresh_token'))
    expect(sent).toHaveLength(2)
    expect(sent[1]).toBe(refreshes()[0]?.form.get('refresh_token'))
    expect(
      await redis.redis.hmget(NAME, 'Authenticator', 'RefreshToken', 'StoreA', 'Previous'),
    ).toEqual(before)
    expect(await redis.redis.zscore('credentials:due', NAME)).toBeNull()
    // The access token is issued until it expires.
    expect((await token(service)).status).toBe(200)
    await expire()
    expect((await token(service)).status).toBe(424)
    expect((await refresh(service)).status).toBe(424)
    expect(refreshes()).toHaveLength(3)
  })

  it.each([
    ['final', FIRST_REJECTION_IS_FINAL],
    ['provisional', { rejectedGrantRetryDelaysMs: [60_000] }],
  ])(
    'a credential is replaced when the company reconnects while the fault is %s',
    async (_, timing) => {
      const service = await connected({ timing })
      provider.revokeAll()
      await refresh(service)
      expect((await service.connect('1')).status).toBe(201)
      expect(await shown(service)).toMatchObject({
        Status: 'active',
        Version: 2,
      })
      expect((await refresh(service)).body).toMatchObject({ Version: 3 })
    },
  )

  it('no fault is recorded if the provider still accepts the previous refresh token', async () => {
    const service = await connected()
    await refresh(service)
    provider.knobs.graceMs = 60_000
    provider.script({ status: 400, body: '{"error":"invalid_grant"}' })
    expect((await refresh(service)).body).toMatchObject({ Version: 3, Status: 'active' })
  })

  it('a credential without a refresh token gets the fault no_refresh_token after its access token has expired', async () => {
    const service = await start()
    provider.script({ members: { refresh_token: undefined } })
    await service.connect('1')
    await expire()
    expect(await token(service)).toMatchObject({
      status: 424,
      body: { Fault: { Code: 'no_refresh_token' } },
    })
    expect(refreshes()).toHaveLength(0)
  })
})

describe('a provider that rejects the client credentials', () => {
  it('while the provider rejects the client credentials, no realm gets a fault, and only probes are sent', async () => {
    const service = await start()
    for (const realm of ['1', '2', '3']) await service.connect(realm)
    provider.knobs.secrets = ['rotated at the provider']
    for (const realm of ['1', '2', '3']) await expire(`ACC-${realm}`)
    // The breaker lets a probe through after one second, but the three requests may take longer on a loaded machine.
    // The clock therefore runs at a hundredth of its speed during these requests.
    const clock = performance.now.bind(performance)
    const from = clock()
    const slowClock = vi
      .spyOn(performance, 'now')
      .mockImplementation(() => from + (clock() - from) / 100)
    cleanup.defer(() => slowClock.mockRestore())
    for (const realm of ['1', '2', '3']) {
      const { status, body } = await service.ask(`/credentials/ACC-${realm}/token`)
      expect([status, body['code']]).toEqual([503, 'provider_client_rejected'])
      expect((await service.ask(`/credentials/ACC-${realm}`)).body).toMatchObject({
        Status: 'active',
        Version: 1,
      })
    }
    slowClock.mockRestore()
    expect(refreshes()).toHaveLength(1)
    // Valid access tokens can still be issued, so the service stays ready.
    expect(await service.ask('/health/ready')).toMatchObject({
      status: 200,
      body: {
        dependencies: {
          'provider-client': {
            status: 'down',
            reason: 'the provider rejects CLIENT_ID and CLIENT_SECRET',
          },
        },
      },
    })
    // After a restart with the new client secret in first place, every realm is refreshed.
    const next = await start({ env: { CLIENT_SECRET: `rotated at the provider,${CLIENT_SECRET}` } })
    for (const realm of ['1', '2', '3']) {
      expect(
        (await next.ask(`/credentials/ACC-${realm}/refresh`, { method: 'POST' })).body,
      ).toMatchObject({ Version: 2 })
    }
  })

  it('all realms are refreshed within seconds after the provider accepts the client credentials again', async () => {
    const service = await start()
    for (const realm of ['1', '2', '3']) await service.connect(realm)
    provider.script({ status: 401, body: '{"error":"invalid_client"}' })
    for (const realm of ['1', '2', '3']) {
      await expire(`ACC-${realm}`)
      expect((await token(service, `ACC-${realm}`)).status).toBe(503)
    }
    const startedAt = performance.now()
    for (const realm of ['2', '3', '1'])
      await eventually(async () => expect((await token(service, `ACC-${realm}`)).status).toBe(200))
    expect((await service.ask('/health/ready')).body).toMatchObject({
      dependencies: { 'provider-client': { status: 'up' } },
    })
    // The first probe is sent after 1 s. The limit here is higher, because refreshes take seconds on a loaded machine.
    // It is below 60 s, the longest interval between two probes.
    expect(performance.now() - startedAt).toBeLessThan(30_000)
  })
})

describe('the service while Redis is unavailable', () => {
  let relay: Relay
  let far: TestRedis
  let service: TestService

  beforeEach(async () => {
    relay = cleanup.use(await startRelay(process.env['TEST_REDIS_URL'] ?? '', 6379))
    far = await useTestRedis(cleanup, { keys, prefix: redis.prefix, url: relay.url })
  })

  it('while Redis is unavailable, valid access tokens are issued but expired ones are not, and no refresh token is sent', async () => {
    service = await start({ store: far.store, authorizations: far.authorizations })
    await service.connect('1')
    await service.connect('2')
    const issued = (await token(service)).body['Authenticator']
    await expire('ACC-2')
    relay.away()
    await eventually(() => expect(far.redis.status).not.toBe('ready'))
    expect(await token(service)).toMatchObject({
      status: 200,
      body: { Authenticator: issued },
    })
    expect(await token(service, 'ACC-2')).toMatchObject({
      status: 503,
      body: { code: 'store_unavailable' },
    })
    expect(await service.ask(`/credentials/${NAME}/refresh`, json({ Version: 1 }))).toMatchObject({
      status: 503,
      body: { code: 'store_unavailable' },
    })
    expect(refreshes()).toHaveLength(0)
    relay.restore()
    await usable(far)
    expect((await token(service, 'ACC-2')).status).toBe(200)
  })

  it.each([
    ['unreachable', 'away'],
    ['unresponsive', 'stall'],
  ] as const)(
    'while Redis is %s, the access token of a new token pair is issued from memory, and the token pair is stored later',
    async (_, trouble) => {
      service = await start({
        store: far.store,
        authorizations: far.authorizations,
        failpoint: (at) => (at === 'before commit' ? relay[trouble]() : undefined),
      })
      await service.connect('1')
      await expire()
      const fresh = await token(service)
      expect([fresh.status, fresh.body['Version']]).toEqual([200, 2])
      expect(await redis.redis.hget(NAME, 'Version')).toBe('1')
      expect((await token(service)).body['Authenticator']).toBe(fresh.body['Authenticator'])
      relay.restore()
      await eventually(async () => expect(await redis.redis.hget(NAME, 'Version')).toBe('2'))
      await usable(far)
      expect((await token(service)).body['Authenticator']).toBe(fresh.body['Authenticator'])
      expect(refreshes()).toHaveLength(1)
    },
  )
})

describe('a replica whose clock is ahead', () => {
  it('a replica whose clock is ahead cannot delay a refresh for longer than the longest back-off', async () => {
    const service = await expired()
    const ahead = new Date(Date.now() + 3_600_000).toISOString()
    await redis.redis.hset(NAME, 'NextTryAt', ahead)
    expect((await token(service)).status).toBe(200)
  })
})

describe('the refresh schedule after a restart', () => {
  it('the refresh schedule finds due credentials by reading a range of the due index, without reading other records', async () => {
    const before = await start()
    for (const realm of ['1', '2', '3']) await before.connect(realm)
    await before[Symbol.asyncDispose]()
    for (const realm of ['1', '2']) {
      await expire(`ACC-${realm}`)
      await redis.redis.zadd('credentials:due', 1, `ACC-${realm}`)
    }
    const reads: string[] = []
    const counted = new Proxy(redis.store, {
      get:
        (target, method: keyof CredentialStore) =>
        (...args: never[]) => {
          reads.push(method)
          return (target[method] as (...given: never[]) => unknown)(...args)
        },
    })
    const after = await start({ store: counted })
    await eventually(async () => {
      const versions = await Promise.all(
        ['1', '2', '3'].map((realm) => redis.redis.hget(`ACC-${realm}`, 'Version')),
      )
      expect(versions).toEqual(['2', '2', '1'])
    })
    expect(reads.filter((method) => method === 'list' || method === 'get')).toEqual([])
    await after[Symbol.asyncDispose]()
  })
})
