/**
 * Redis fails over to a replica while token-service refreshes the tokens of companies, or Redis is unresponsive while
 * token-service shuts down. The provider rotates the refresh token at every refresh and accepts only the newest one.
 */
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { startRelay } from '@integration-host/shared/test-support/relay'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type RedisPair, startRedisPair } from '../support/backends/redis-pair.ts'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { tokenServiceClient } from '../support/clients/token-service.ts'
import { connectCompany } from '../support/clients/user-actions.ts'
import { startRedisFaultProxy } from '../support/fakes/redis-fault-proxy.ts'
import { backend, startSystem, type System } from '../support/system.ts'

const realms = Array.from({ length: 12 }, (_, index) => String(9_341_470_000 + index))
let pair: RedisPair
let system: System
const opened = new AsyncDisposableStack()

beforeAll(async () => {
  pair = opened.use(await startRedisPair())
  for (const server of [pair.primary, pair.replica])
    await server.config('SET', 'min-replicas-to-write', '1')
  system = opened.use(await startSystem(['sandbox-provider'], { personality: 'strict' }))
  start()
  await system.ready('token-service')
}, 120_000)
afterAll(() => opened.disposeAsync())

const start = () => system.start('token-service', { REDIS_URL: pair.address.url })
const refreshAll = () => {
  const service = tokenServiceClient(system)
  return Promise.all(realms.map((realm) => service.refresh(realm, {})))
}

describe('a Redis failover at a provider that accepts each refresh token once', () => {
  it('no company loses its grant in a Redis failover, although refreshes were in flight and token-service was killed', async () => {
    for (const realm of realms) await connectCompany(system, realm)
    for (const { status, Version } of await refreshAll())
      expect([status, Version]).toEqual([200, 2])

    // The primary still accepts writes after this point, but no replica receives them.
    pair.link.stall()
    for (const { status, code } of await refreshAll())
      expect([status, code]).toEqual([503, 'store_unavailable'])
    await system.service('token-service').stop('SIGKILL')
    await pair.promote('cut')
    await pair.rejoin()
    start()
    await system.ready('token-service')

    const service = tokenServiceClient(system)
    await Promise.all(
      realms.map((realm) =>
        eventually(
          async () => expect(await service.refresh(realm, {})).toMatchObject({ status: 200 }),
          // A refresh succeeds only after the lease of the killed process has expired.
          { seconds: 60, everyMs: 500 },
        ),
      ),
    )
    const calls = await sandboxClient(system).allCalls()
    for (const realm of realms) {
      expect(calls.get(realm)).toMatchObject({ rejected: 0, reused: 0 })
      expect((await service.credential(realm)).Status).toBe('active')
    }
  }, 180_000)
})

describe('a token-service that is stopped while Redis is unresponsive', () => {
  it('token-service writes a new token pair to RESCUE_DIR if Redis is unresponsive, and its next process stores the pair', async () => {
    await using own = new AsyncDisposableStack()
    const folder = own.adopt(await mkdtemp(join(tmpdir(), 'rescue-')), (path) =>
      rm(path, { recursive: true }),
    )
    const relay = own.use(await startRelay(backend('TEST_REDIS_URL'), 6379))
    const proxy = own.use(await startRedisFaultProxy(relay))
    const rescuing = own.use(await startSystem(['sandbox-provider'], { personality: 'strict' }))
    const restart = async (): Promise<void> => {
      rescuing.start('token-service', { REDIS_URL: proxy.url, RESCUE_DIR: folder })
      await rescuing.ready('token-service')
    }
    const [realm = ''] = realms
    const service = tokenServiceClient(rescuing)
    await restart()
    await connectCompany(rescuing, realm)
    proxy.failNext('commit', `${rescuing.redisKeyPrefix}ACC-${realm}`, 'request')
    expect(await service.refresh(realm, {})).toMatchObject({ status: 200, Version: 2 })
    // An exit code other than 0 means that the process did not shut down in time.
    expect(await rescuing.service('token-service').stop('SIGTERM')).toBe(0)
    expect(await readdir(folder)).toEqual([`ACC-${realm}.2.rescue.json`])

    proxy.restore()
    await restart()
    await eventually(async () => expect(await readdir(folder)).toEqual([]))
    expect(await service.refresh(realm, {})).toMatchObject({ status: 200, Version: 3 })
    expect(await sandboxClient(rescuing).calls(realm)).toMatchObject({ rejected: 0, reused: 0 })
  }, 180_000)
})
