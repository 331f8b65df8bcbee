/**
 * Tests the credential store on a Redis that has reached `maxmemory` with the policy `noeviction`. Redis then rejects
 * every command that needs memory. The provider has already rotated the refresh token when the store commits a token
 * pair, so a rejected commit would lose the grant.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  type RestartableServer,
  startRestartableServer,
} from '../../../../../tests/support/backends/restartable-servers.ts'
import { auditContextOf, grantOf, START } from '../../../test-support/grants.ts'
import {
  openTestRedis,
  type TestRedis,
  testKeys,
  usable,
} from '../../../test-support/service-fixture.ts'
import type { LeasedCredential } from '../../credential/credential-store.ts'

const NAME = 'ACC-1'
let server: RestartableServer
let opened: TestRedis

beforeAll(async () => {
  server = await startRestartableServer('redis')
  opened = await openTestRedis({ keys: testKeys(), url: server.url })
  await usable(opened)
  await opened.redis.config('SET', 'maxmemory-policy', 'noeviction')
})
afterAll(async () => {
  await opened[Symbol.asyncDispose]()
  await server[Symbol.asyncDispose]()
})

beforeEach(async () => {
  await setMaxMemory('0')
  await opened.redis.flushall()
})

const setMaxMemory = (limit: string) => opened.redis.config('SET', 'maxmemory', limit)

/** Sets `maxmemory` below the memory that Redis already uses, and checks that Redis rejects a write. */
async function fillMemory(): Promise<void> {
  await setMaxMemory('512kb')
  await expect(opened.redis.set('any', 'value')).rejects.toThrow('OOM')
}

async function leased(): Promise<LeasedCredential> {
  const acquired = await opened.store.acquire(NAME, 'a', 60_000)
  if (acquired.kind !== 'acquired') throw new Error(`the lease of ${NAME} is ${acquired.kind}`)
  return acquired.leased
}

describe('credential store on a Redis that rejects writes because its memory is full', () => {
  it('a Redis with full memory still commits a rotated token pair with its audit entry, and clears intent and lease', async () => {
    const { store, redis } = opened
    await store.put(grantOf(NAME, 'one'), START, auditContextOf('granted'))
    const { lease } = await leased()
    await store.recordIntent(lease, 0)
    await fillMemory()
    const committed = store.commit(lease, grantOf(NAME, 'two'), START, auditContextOf('refreshed'))
    expect(await committed).toBe('committed')
    expect(await store.get(NAME)).toMatchObject({ version: 2, fault: null })
    expect(await redis.hexists(NAME, 'Intent')).toBe(0)
    expect(await redis.exists(`lease:${NAME}`)).toBe(0)
    expect(await redis.xlen('credentials:outbox')).toBe(2)
  })

  it('a Redis with full memory still stores a new grant, although it rejects other writes', async () => {
    const { store } = opened
    await fillMemory()
    const grant = grantOf(NAME, 'one')
    expect((await store.put(grant, START, auditContextOf('granted'))).version).toBe(1)
    const next = grantOf(NAME, 'two')
    expect((await store.put(next, START, auditContextOf('granted'))).version).toBe(2)
    expect((await store.get(NAME))?.accessToken?.reveal()).toBe('access two')
  })

  it('no refresh token is sent if Redis cannot store the intent of the refresh', async () => {
    const { store } = opened
    await store.put(grantOf(NAME, 'one'), START, auditContextOf('granted'))
    const { lease } = await leased()
    await fillMemory()
    await expect(store.recordIntent(lease, 0)).rejects.toMatchObject({ code: 'store_unavailable' })
    await expect(store.acquire('ACC-1', 'b', 1_000)).resolves.toEqual({ kind: 'busy' })
    await store.release(lease)
    await expect(store.acquire(NAME, 'b', 1_000)).rejects.toMatchObject({
      code: 'store_unavailable',
    })
  })
})
