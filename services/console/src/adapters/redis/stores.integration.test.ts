import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { connectRedis } from '@integration-host/shared/redis/connection'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import {
  CLIENT_ID,
  CLIENT_SECRET,
  startTestProvider,
} from '@integration-host/shared/test-support/openid-provider'
import { describe, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../../test-support/console-fixture.ts'
import { startFakeService } from '../../../test-support/fake-service.ts'
import { OPERATION } from '../../../test-support/operation.ts'
import { describeSessionStore } from '../../session/session-store.contract.ts'
import {
  createRedisActionCounter,
  createRedisRequestStore,
  createRedisSessionStore,
} from './stores.ts'

async function open() {
  const keyPrefix = `test-${crypto.randomUUID().slice(0, 8)}:`
  const connection = connectRedis(new Secret(process.env['TEST_REDIS_URL'] ?? ''), {
    name: 'test',
    dependency: createHealth(createLogger('test', 'silent')).dependency('redis'),
    keyPrefix,
    commandTimeoutMs: 10_000,
  })
  const { redis } = connection
  await eventually(() => expect(redis.status).toBe('ready'))
  const keys = async (): Promise<readonly string[]> =>
    (await redis.keys(`${keyPrefix}*`)).map((key) => key.slice(keyPrefix.length))
  return {
    redis,
    keys,
    store: createRedisSessionStore(redis),
    stores: {
      sessions: createRedisSessionStore(redis),
      actions: createRedisActionCounter(redis),
      requests: createRedisRequestStore(redis),
    },
    async [Symbol.asyncDispose]() {
      for (const key of await keys()) await redis.del(key)
      await connection[Symbol.asyncDispose]()
    },
  }
}

describeSessionStore('in Redis', open)

it('a sign-in that one console has begun is completed once at any console that uses the same Redis, which gets a key only then', async () => {
  await using opened = await open()
  await using provider = await startTestProvider()
  const settings = (url: string) => ({
    CONSOLE_URL: url,
    SIGN_IN: 'oidc',
    OIDC_ISSUER: provider.issuer,
    OIDC_CLIENT_ID: CLIENT_ID,
    OIDC_CLIENT_SECRET: CLIENT_SECRET,
    OIDC_OPERATORS: 'ada@example.com',
  })
  // Browsers reach both replicas at one address.
  const url = `http://console.localhost:9`
  await using one = await startConsoleFixture(settings(url), opened.stores)
  await using two = await startConsoleFixture(settings(url), opened.stores)
  provider.signInAs({ email: 'ada@example.com', email_verified: true })
  const get = async (at: ConsoleFixture, path: string, Cookie = '') => {
    const outgoing = request(at.url + path, { headers: { Host: 'console.localhost:9', Cookie } })
    const [response] = (await once(outgoing.end(), 'response')) as [IncomingMessage]
    response.resume()
    return response
  }
  const start = await get(one, '/sign-in/oidc?to=/runs')
  const Cookie = start.headers['set-cookie']?.[0]?.split(';')[0] ?? ''
  const back = await fetch(start.headers.location ?? '', { redirect: 'manual' })
  const { pathname, search } = new URL(back.headers.get('Location') ?? '')
  expect(await opened.keys()).toEqual([])
  expect((await get(two, pathname + search, Cookie)).statusCode).toBe(200)
  const stored = await opened.keys()
  expect(stored.filter((key) => key.startsWith('console:request:sign-in:'))).toHaveLength(1)
  expect((await get(one, pathname + search, Cookie)).statusCode).toBe(401)
  expect(await opened.keys()).toEqual(stored)
})

it('consoles that share Redis count their actions together', async () => {
  await using opened = await open()
  const other = createRedisActionCounter(opened.redis)
  expect(await other.read()).toBe(0)
  expect(await opened.stores.actions.increment()).toBe(1)
  expect(await other.increment()).toBe(2)
  expect(await opened.stores.actions.read()).toBe(2)
})

it('consoles that share Redis know the requests of each other, for ten minutes', async () => {
  await using opened = await open()
  const { requests } = opened.stores
  const other = createRedisRequestStore(opened.redis)
  expect(await requests.begin('one', 'begun')).toBeNull()
  expect(await other.begin('one', 'begun again')).toBe('begun')
  await requests.end('one', 'the response')
  expect(await other.begin('one', 'begun again')).toBe('the response')
  const [key = ''] = await opened.keys()
  expect(await opened.redis.ttl(key)).toBeGreaterThan(590)
  expect(await opened.redis.ttl(key)).toBeLessThanOrEqual(600)
  await other.forget('one')
  // A response that arrives after its request was forgotten is not stored.
  await requests.end('one', 'too late')
  expect(await other.begin('one', 'begun again')).toBeNull()
})

describe('two consoles that share Redis', () => {
  it('an action that a browser repeats at the other console is executed only once, and Redis stores its response encrypted', async () => {
    await using opened = await open()
    const { stores } = opened
    await using coordinator = await startFakeService(({ url }) =>
      url.pathname === '/operations' ? { body: OPERATION } : undefined,
    )
    const env = { COORDINATOR_URL: coordinator.url }
    await using one = await startConsoleFixture(env, stores)
    await using other = await startConsoleFixture(env, stores)
    const cookie = await one.signIn({ Link: one.signInLink().split('#')[1] })
    const before = await opened.keys()
    const start = (at: ConsoleFixture) =>
      at.request('/api/bulk', {
        method: 'POST',
        cookie,
        headers: { 'Idempotency-Key': 'a-key-of-one-dialog' },
        body: JSON.stringify({
          Action: 'resume',
          Process: 'OrderProcess',
          Filter: { status: ['Failed'] },
          Reason: 'the target is back',
        }),
      })
    const responses = [await start(one), await start(other)]
    expect(responses.map(({ status }) => status)).toEqual([202, 202])
    for (const response of responses) expect(await response.json()).toMatchObject({ ID: 'op-1' })
    expect(coordinator.requests.filter(({ method }) => method === 'POST')).toHaveLength(1)
    const [key = ''] = (await opened.keys()).filter((name) => name.startsWith('console:request:'))
    expect(before).not.toContain(key)
    const stored = (await opened.redis.get(key)) ?? ''
    expect(stored).toMatch(/^[0-9a-f]{64} \d+ 1\.session\.[\w-]{16}\.[\w-]{100,}$/)
    expect(Buffer.from(stored.split('.')[3] ?? '', 'base64url').toString('latin1')).not.toContain(
      'op-1',
    )
  })

  it('two consoles that share Redis accept the same sessions, and a sign-out at one console ends the session at both', async () => {
    await using opened = await open()
    const { stores } = opened
    let cookie = ''
    {
      await using before = await startConsoleFixture({}, stores)
      cookie = await before.signIn({ Link: before.signInLink().split('#')[1] })
    }
    await using one = await startConsoleFixture({}, stores)
    await using other = await startConsoleFixture({}, stores)
    expect((await other.request('/api/session', { cookie })).status).toBe(200)
    const stream = await other.request('/api/stream', { cookie })
    const begun = performance.now()
    expect((await one.request('/api/session', { method: 'DELETE', cookie })).status).toBe(204)
    expect(await stream.text()).toContain('"signed_out"')
    expect(performance.now() - begun).toBeLessThan(2_000)
    expect((await other.request('/api/session', { cookie })).status).toBe(401)
  })

  it('consoles store only the SHA-256 of the secret of a session in Redis, and no key outlives the session', async () => {
    await using opened = await open()
    await using at = await startConsoleFixture({ SESSION_HOURS: '2' }, opened.stores)
    const cookie = await at.signIn({ Link: at.signInLink().split('#')[1] })
    const secret = cookie.split('=')[1] ?? ''
    const keys = await opened.keys()
    expect(keys.length).toBe(2)
    for (const key of keys) {
      expect(await opened.redis.ttl(key)).toBeLessThanOrEqual(7_200)
      const values =
        (await opened.redis.type(key)) === 'hash'
          ? JSON.stringify(await opened.redis.hgetall(key))
          : JSON.stringify(await opened.redis.zrange(key, '0', '-1'))
      expect(key + values).not.toContain(secret)
    }
  })

  it('while Redis is unavailable, consoles respond with 503 but keep their streams, and later recover without a restart', async () => {
    await using opened = await open()
    const { redis, stores } = opened
    await using at = await startConsoleFixture({}, stores)
    const cookie = await at.signIn({ Link: at.signInLink().split('#')[1] })
    const stream = await at.request('/api/stream', { cookie })
    redis.disconnect()
    const unavailable = await at.request('/api/session', { cookie })
    expect([unavailable.status, unavailable.headers.get('Retry-After')]).toEqual([503, '2'])
    // The sessions of all streams are checked every second.
    await eventually(() =>
      expect(at.log()).toContain('sessions of the event streams could not be checked'),
    )
    await redis.connect()
    await eventually(async () =>
      expect((await at.request('/api/session', { cookie })).status).toBe(200),
    )
    await at.request('/api/session', { method: 'DELETE', cookie })
    expect(await stream.text()).toContain('"signed_out"')
  })
})
