/**
 * Tests of Redis failovers between the writes of a refresh. The provider rotates the refresh token at every refresh and
 * accepts only the newest one, so a company whose newest token pair is lost is locked out.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { CREDENTIALS_EXCHANGE } from '@integration-host/shared/contracts/credential'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { createMetrics } from '@integration-host/shared/observability/metrics'
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type RedisPair, startRedisPair } from '../../../../tests/support/backends/redis-pair.ts'
import { startRestartableServer } from '../../../../tests/support/backends/restartable-servers.ts'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import {
  json,
  openTestRedis,
  type ServiceOptions,
  silent,
  startTestService,
  type TestRedis,
  type TestService,
  testKeys,
  usable,
} from '../../test-support/service-fixture.ts'

const NAME = 'ACC-1'
let keys: KeyRing
let pair: RedisPair
let provider: ScriptedProvider
let cleanup: AsyncDisposableStack

beforeEach(async () => {
  cleanup = new AsyncDisposableStack()
  keys = testKeys()
  provider = cleanup.use(await startScriptedProvider())
  pair = cleanup.use(await startRedisPair())
})
afterEach(() => cleanup.disposeAsync())

/** Opens the Redis adapters of one process. `replicas` is its setting REDIS_REPLICAS. */
async function open(
  replicas: number,
  { logger = silent, url = pair.address.url } = {},
): Promise<TestRedis> {
  const redis = await openTestRedis({ keys, prefix: '', url, replicas, logger })
  cleanup.use(redis)
  await usable(redis)
  return redis
}

const start = async (
  { store, authorizations, connection }: TestRedis,
  options: Partial<ServiceOptions> = {},
): Promise<TestService> =>
  cleanup.use(
    await startTestService({ provider, store, authorizations, connection, keys, ...options }),
  )

const refreshes = () => provider.requests.filter(({ grant }) => grant === 'refresh_token')
const sentTokens = () => refreshes().map(({ form }) => form.get('refresh_token'))
const refresh = (service: TestService, name = NAME) =>
  service.ask(`/credentials/${name}/refresh`, json({}))
const refreshed = (service: TestService, name = NAME) =>
  eventually(async () => {
    const response = await refresh(service, name)
    expect(response.status, JSON.stringify(response.body)).toBe(200)
    return response
  })

describe('a failover to a replica that lacks the newest writes', () => {
  const realms = Array.from({ length: 20 }, (_, index) => String(index + 1))

  /**
   * Refreshes every company at a primary that is cut off from its replica, promotes the replica, and refreshes every
   * company again.
   */
  async function failOver(service: TestService, connections: 'cut' | 'kept') {
    for (const realm of realms) expect((await service.connect(realm)).status).toBe(201)
    await eventually(async () => expect(await pair.replica.exists(`ACC-${realms.at(-1)}`)).toBe(1))
    pair.link.stall()
    await Promise.all(realms.map((realm) => refresh(service, `ACC-${realm}`)))
    const usedBefore = refreshes().length
    await pair.promote(connections)
    // The service finds the new primary while the old primary is still cut off.
    await eventually(async () =>
      expect(await pair.replica.client('LIST')).toContain('name=token-service'),
    )
    await pair.rejoin()
    const results = await Promise.all(
      realms.map((realm) =>
        eventually(async () => {
          const { status, body } = await refresh(service, `ACC-${realm}`)
          expect(status).not.toBe(503)
          return { status, body }
        }),
      ),
    )
    return {
      usedBefore,
      lockedOut: results.filter(({ status }) => status !== 200).length,
      tokens: sentTokens(),
    }
  }

  it('if no replica must acknowledge writes and no process keeps token pairs, a failover locks out recently refreshed companies', async () => {
    const { store, authorizations } = await open(0)
    const service = cleanup.use(
      await startTestService({
        provider,
        store,
        authorizations,
        keys,
        timing: { rejectedGrantRetryDelaysMs: [] },
      }),
    )
    const { usedBefore, lockedOut } = await failOver(service, 'cut')
    expect([usedBefore, lockedOut]).toEqual([20, 20])
  })

  it.each(['cut', 'kept'] as const)(
    'with REDIS_REPLICAS=1, a failover locks out no company, because no token is used at a cut-off primary (connections %s)',
    async (connections) => {
      const service = await start(await open(1))
      const { usedBefore, lockedOut, tokens } = await failOver(service, connections)
      expect([usedBefore, lockedOut]).toEqual([0, 0])
      expect(new Set(tokens).size).toBe(20)
      expect(tokens).toHaveLength(20)
    },
  )

  it('with REDIS_REPLICAS=0, a failover locks out no company whose newest token pair is in the memory of a running process', async () => {
    const metrics = createMetrics('token-service')
    const service = await start(await open(0), { metrics })
    const { usedBefore, lockedOut, tokens } = await failOver(service, 'cut')
    expect([usedBefore, lockedOut]).toEqual([20, 0])
    expect(new Set(tokens).size).toBe(tokens.length)
    expect(await metricsOf(service)).toMatch(
      /^credential_pairs_restored_total\{source="memory",[^}]*\} 20$/m,
    )
  })

  const metricsOf = async ({ url }: TestService): Promise<string> =>
    (await fetch(`${url}/metrics`)).text()

  it('the newest token pair of a company is restored after a failover to a replica that lacks two rotations', async () => {
    const service = await start(await open(0))
    await service.connect('1')
    await eventually(async () => expect(await pair.replica.exists(NAME)).toBe(1))
    pair.link.stall()
    await refreshed(service)
    const { body } = await refreshed(service)
    await pair.promote('cut')
    await eventually(async () => expect(await pair.replica.hget(NAME, 'Version')).toBe('3'))
    expect((await refreshed(service)).body['Version']).toBe(Number(body['Version']) + 1)
    expect(new Set(sentTokens()).size).toBe(3)
  })

  it('a token pair in memory is committed even if the new Redis primary lacks the previous token pair as well', async () => {
    let refreshCount = 0
    const lost = Promise.withResolvers<void>()
    const service = await start(await open(0), {
      failpoint: (at) =>
        at === 'before commit' && ++refreshCount === 2 ? lost.promise : undefined,
    })
    await service.connect('1')
    await eventually(async () => expect(await pair.replica.exists(NAME)).toBe(1))
    pair.link.stall()
    await refreshed(service)
    const last = refresh(service)
    await eventually(() => expect(refreshCount).toBe(2))
    await pair.promote('cut')
    lost.resolve()
    expect((await last).body).toMatchObject({ Version: 3 })
    await eventually(async () => expect(await pair.replica.hget(NAME, 'Version')).toBe('3'))
    await refreshed(service)
    expect(new Set(sentTokens()).size).toBe(3)
  })

  it('a credential that was stored shortly before a failover is restored', async () => {
    const service = await start(await open(0))
    pair.link.stall()
    expect((await service.connect('1')).status).toBe(201)
    await refreshed(service)
    await pair.promote('cut')
    await eventually(async () => expect(await pair.replica.hget(NAME, 'Version')).toBe('2'))
    await refreshed(service)
    expect(new Set(sentTokens()).size).toBe(2)
  })

  it.each([
    ['one warning', 0, 1],
    ['no warning', 1, 0],
  ])(
    'token-service logs %s about possibly lost rotations with REDIS_REPLICAS=%i, however often it reconnects to Redis',
    async (_, replicas, count) => {
      const warnings: string[] = []
      const warn = (_data: object, message = '') => warnings.push(message)
      const { redis, health } = await open(replicas, { logger: { ...silent, warn } })
      const announced = () => warnings.filter((text) => text.startsWith('Redis has replicas'))
      await eventually(() => expect(announced()).toHaveLength(count))
      redis.disconnect(true)
      await usable({ health })
      expect(announced()).toHaveLength(count)
    },
  )

  it('if a refresh token is rejected after a failover, its fault names a lost token pair and an ended grant as possible causes', async () => {
    const redis = await open(0)
    const service = await start(redis, { timing: { rejectedGrantRetryDelaysMs: [] } })
    await service.connect('1')
    await service.connect('2')
    await eventually(async () => expect(await pair.replica.exists('ACC-2')).toBe(1))
    await pair.promote('cut')
    await eventually(() => expect(redis.connection.serverChangedAt()).not.toBeNull())
    // A process that starts later reads the time of the failover from Redis.
    const { connection: later } = await open(0)
    await eventually(() => expect(later.serverChangedAt()).toBe(redis.connection.serverChangedAt()))
    provider.revokeAll()
    const { body } = await eventually(async () => {
      const response = await refresh(service)
      expect(response.status).toBe(424)
      return response
    })
    expect(body).toMatchObject({
      Fault: {
        Code: 'invalid_grant',
        Remedy: expect.stringMatching(/lost a newer token pair.+ended the grant/),
      },
    })
    // The failover cannot have lost a newer token pair of this company, because the company was connected afterwards.
    await service.connect('2')
    provider.revokeAll()
    const rejected = await refresh(service, 'ACC-2')
    expect(rejected.body).toMatchObject({
      Fault: { Remedy: expect.not.stringContaining('newer token pair') },
    })
  })
})

describe('a failover while a process has a new token pair that it could not commit (I5 of refresh.ts)', () => {
  const LONG = { failoverDeferralMs: 60_000 }

  /**
   * Starts a process that refreshes the company and is suspended when it has received the new token pair. The process
   * does not renew its lease. `resume` lets the process commit the token pair.
   */
  async function suspendedBeforeCommit(adapters: TestRedis) {
    const { promise, resolve: resume } = Promise.withResolvers<void>()
    const hasPair = Promise.withResolvers<void>()
    const store = { ...adapters.store, renew: async () => false }
    const service = await start(
      { ...adapters, store },
      {
        failpoint(at) {
          if (at !== 'before commit') return
          hasPair.resolve()
          return promise
        },
      },
    )
    cleanup.defer(resume)
    await service.connect('1')
    const refreshing = refresh(service)
    await hasPair.promise
    return { refreshing, resume }
  }

  const failOver = async (): Promise<void> => {
    await pair.promote('cut')
    await pair.rejoin()
  }
  /** Requests a refresh until its response is 503 `provider_unavailable`. Returns its Retry-After in seconds. */
  const deferred = (service: TestService): Promise<number> =>
    eventually(async () => {
      const response = await service.call(`/credentials/${NAME}/refresh`, json({}))
      const { code } = (await response.json()) as { code?: string }
      expect([response.status, code]).toEqual([503, 'provider_unavailable'])
      return Number(response.headers.get('Retry-After'))
    })

  it.each([
    ['was started before the failover', 'before'],
    ['was started after the failover', 'after'],
  ])(
    'a process that %s does not send the old refresh token until another process has committed the new token pair',
    async (_, started) => {
      const startSecond = async () => start(await open(1), { timing: LONG })
      const early = started === 'before' ? await startSecond() : null
      const { refreshing, resume } = await suspendedBeforeCommit(await open(1))
      await failOver()
      const second = early ?? (await startSecond())
      expect(await deferred(second)).toBe(2)
      expect(await pair.replica.exists(`lease:${NAME}`)).toBe(0)
      expect(refreshes()).toHaveLength(1)
      resume()
      expect((await refreshing).body).toMatchObject({ Version: 2 })
      await eventually(async () => expect(await pair.replica.hget(NAME, 'Version')).toBe('2'))
      // The deferral ends as soon as the new token pair is committed.
      expect((await refresh(second)).body).toMatchObject({ Version: 3, Status: 'active' })
      expect(new Set(sentTokens()).size).toBe(2)
    },
  )

  it('the old refresh token is sent after the deferral if the process with the new token pair never reaches the new primary', async () => {
    await suspendedBeforeCommit(await open(1))
    provider.knobs.graceMs = 600_000
    const adapters = await open(1)
    const timing = { failoverDeferralMs: 1_500 }
    const second = await start(adapters, { timing })
    await failOver()
    await refreshed(second)
    const [first, repeated] = refreshes()
    expect(sentTokens()).toEqual([
      first?.form.get('refresh_token'),
      first?.form.get('refresh_token'),
    ])
    const changedAt = Number(await pair.replica.hget('credentials:server', 'ChangedAt'))
    expect((repeated?.at ?? 0) - changedAt).toBeGreaterThanOrEqual(timing.failoverDeferralMs)
  })

  it('a deferred refresh is allowed as soon as the other process withdraws its intent', async () => {
    await suspendedBeforeCommit(await open(1))
    provider.knobs.graceMs = 600_000
    const second = await start(await open(1), { timing: LONG })
    await failOver()
    await deferred(second)
    await pair.replica.hdel(NAME, 'Intent')
    expect((await refresh(second)).status).toBe(200)
  })

  it('a restart of a single Redis server defers a refresh, as a failover does', async () => {
    const server = cleanup.use(await startRestartableServer('redis'))
    const second = await start(await open(0, server), { timing: LONG })
    const { refreshing, resume } = await suspendedBeforeCommit(await open(0, server))
    await server.kill()
    await server.restart()
    await deferred(second)
    expect(refreshes()).toHaveLength(1)
    resume()
    expect((await refreshing).body).toMatchObject({ Version: 2 })
    await eventually(async () =>
      expect((await second.ask(`/credentials/${NAME}`)).body).toMatchObject({ Version: 2 }),
    )
    expect((await refresh(second)).body).toMatchObject({ Version: 3 })
    expect(new Set(sentTokens()).size).toBe(2)
  })
})

describe('a refresh while the Redis primary loses its replica, with REDIS_REPLICAS=1', () => {
  it('a refresh withdraws its intent if the Redis primary has lost its replica, so that the next refresh need not wait', async () => {
    // If the intent stayed stored, the next refresh would assume that the request of the first refresh is in flight,
    // and would wait 60 s. This is longer than a caller waits.
    const redis = await open(1)
    const service = await start(redis, { timing: { intentMaxAgeMs: 60_000 } })
    await service.connect('1')
    pair.link.stall()
    const rejected = await refresh(service)
    expect([rejected.status, rejected.body['code']]).toEqual([503, 'store_unavailable'])
    expect(refreshes()).toEqual([])
    expect(await pair.primary.hget(NAME, 'Intent')).toBeNull()
    expect(await pair.primary.exists(`lease:${NAME}`)).toBe(0)
    pair.link.restore()
    await refreshed(service)
    expect(refreshes()).toHaveLength(1)
  })

  it('the intent of another process is kept if the Redis primary loses its replica, because that process may have sent the token', async () => {
    const adapters = await open(1)
    const { store, redis } = adapters
    await (await start(adapters)).connect('1')
    const lease = async (owner: string) => {
      const acquired = await store.acquire(NAME, owner, 60_000)
      if (acquired.kind !== 'acquired') throw new Error(acquired.kind)
      return acquired.leased.lease
    }
    const first = await lease('a')
    await store.recordIntent(first, 0)
    const intent = await redis.hget(NAME, 'Intent')
    await store.release(first)
    const second = await lease('b')
    pair.link.stall()
    await expect(store.recordIntent(second, 0)).rejects.toMatchObject({ code: 'store_unavailable' })
    expect(await pair.primary.hget(NAME, 'Intent')).toBe(intent)
  })

  it('a refresh during a failover issues the access token from memory, commits at the new primary, and publishes one event', async () => {
    const bus = cleanup.use(createInProcessBus(silent))
    const ids = await collectEvents(bus)
    const redis = await open(1)
    const service = await start(redis, {
      bus,
      failpoint: (at) => (at === 'before commit' ? pair.link.stall() : undefined),
    })
    await service.connect('1')
    await eventually(() => expect(ids).toEqual([`${NAME}/1/stored`]))
    const { status, body } = await refresh(service)
    expect([status, body['Version']]).toEqual([200, 2])
    // On a loaded machine, the connection may be open again before the first commit.
    await eventually(async () => expect(await pair.primary.hget(NAME, 'Version')).toBe('2'))
    expect(await pair.replica.hget(NAME, 'Version')).toBe('1')
    const token = (await service.ask(`/credentials/${NAME}/token`)).body['Authenticator']
    await pair.promote('cut')
    await eventually(async () => expect(await pair.replica.hget(NAME, 'Version')).toBe('2'))
    expect((await service.ask(`/credentials/${NAME}/token`)).body['Authenticator']).toBe(token)
    // Until the new primary has a replica, no write is acknowledged, and no event is published.
    expect(ids).toEqual([`${NAME}/1/stored`])
    await pair.rejoin()
    await eventually(() => expect(ids).toContain(`${NAME}/2/refreshed`))
    // The new primary may lack the deletion of the first event. The event is then published again with the same id.
    expect([...new Set(ids)]).toEqual([`${NAME}/1/stored`, `${NAME}/2/refreshed`])
    expect(refreshes()).toHaveLength(1)
  })

  it('a token pair stays in memory if only an isolated primary has stored it, even after another process acquired the lease', async () => {
    const service = await start(await open(1), {
      failpoint: (at) => (at === 'before commit' ? pair.link.stall() : undefined),
    })
    await service.connect('1')
    expect((await refresh(service)).status).toBe(200)
    await eventually(async () => expect(await pair.primary.hget(NAME, 'Version')).toBe('2'))
    // Another process acquires the lease, so the fencing token is incremented.
    await pair.primary.hincrby(NAME, 'Fence', 1)
    // From now on, the primary rejects writes, although it still counts the replica as connected. A new connection has
    // written nothing, so WAIT succeeds on it.
    await pair.primary.config('SET', 'min-replicas-max-lag', '1')
    await pair.primary.config('SET', 'min-replicas-to-write', '1')
    const clientIds = async (): Promise<number[]> => {
      const clients = String(await pair.primary.client('LIST'))
      return [...clients.matchAll(/id=(\d+) .*name=token-service/g)].map(([, id]) => Number(id))
    }
    const scriptCalls = async (): Promise<number> => {
      const stats = await pair.primary.info('commandstats')
      return Number(/^cmdstat_evalsha:calls=(\d+)/m.exec(stats)?.[1])
    }
    await eventually(async () =>
      expect(await pair.primary.info('replication')).toContain('min_slaves_good_slaves:0'),
    )
    const newest = Math.max(...(await clientIds()))
    await eventually(async () => {
      const ids = await clientIds()
      expect(ids).toHaveLength(2)
      expect(Math.min(...ids)).toBeGreaterThan(newest)
    })
    // On the new connection, the process compares its token pair with the store.
    const calls = await scriptCalls()
    await eventually(async () => expect(await scriptCalls()).toBeGreaterThan(calls + 2))
    await pair.promote('cut')
    await pair.rejoin()
    await refreshed(service)
    expect(new Set(sentTokens()).size).toBe(sentTokens().length)
  })

  it('token-service responds 201 to the connection of a company only after a Redis replica has stored the credential', async () => {
    const redis = await open(1)
    const service = await start(redis)
    pair.link.stall()
    let isAnswered = false
    const connecting = service.connect('1').finally(() => (isAnswered = true))
    await eventually(async () => expect(await pair.primary.exists(NAME)).toBe(1))
    await eventually(() => expect(redis.health.report().status).toBe('waiting'))
    expect(isAnswered).toBe(false)
    await pair.promote('cut')
    await pair.rejoin()
    expect((await connecting).status).toBe(201)
    expect(await pair.replica.hget(NAME, 'Version')).toBe('1')
  })

  it('token-service responds 503 to the removal of a credential if no Redis replica has received the removal', async () => {
    const service = await start(await open(1))
    await service.connect('1')
    pair.link.stall()
    const { status, body } = await service.ask(`/credentials/${NAME}`, { method: 'DELETE' })
    expect([status, body['code']]).toEqual([503, 'store_unavailable'])
    expect(await pair.replica.exists(NAME)).toBe(1)
  })

  it('until the Redis replica is available again, the health check reports why writes fail', async () => {
    const { health } = await open(1)
    pair.link.stall()
    const writes = () => health.report().dependencies['redis-writes']
    await eventually(() =>
      expect(writes()).toMatchObject({
        status: 'down',
        reason: 'fewer replicas than REDIS_REPLICAS acknowledged a write',
      }),
    )
    pair.link.restore()
    await eventually(() => expect(writes()).toMatchObject({ status: 'up' }))
  })

  async function collectEvents(bus: MessageBus): Promise<string[]> {
    const ids: string[] = []
    await bus.declare({
      exchanges: [{ name: CREDENTIALS_EXCHANGE, type: 'topic' }],
      queues: [
        { name: 'all', bindings: [{ exchange: CREDENTIALS_EXCHANGE, routingKey: 'credential.#' }] },
      ],
    })
    bus.consume('all', { prefetch: 1, tag: 'test' }, async ({ messageId }) => {
      ids.push(messageId)
      return 'ack'
    })
    return ids
  }
})
