import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  createRedisServers,
  type RedisServer,
  type RedisServers,
} from '../../../../tests/support/backends/redis-servers.ts'
import { eventually } from '../../test-support/eventually.ts'
import { openRedis, type TestConnection } from '../../test-support/redis-client.ts'
import { findPrimary } from './connector.ts'

/** A port on which no server listens. */
const DEAD = '127.0.0.1:1'

let servers: RedisServers
beforeAll(async () => {
  servers = await createRedisServers()
})
afterAll(() => servers[Symbol.asyncDispose]())

const listed = (...all: readonly (RedisServer | string)[]): string =>
  `redis://:${servers.password}@${all.map((one) => (typeof one === 'string' ? one : one.address)).join()}`

/** Runs one command on a server. */
async function run(server: RedisServer, ...command: [string, ...string[]]): Promise<unknown> {
  const client = new Redis(server.port, '127.0.0.1', { password: servers.password })
  try {
    return await client.call(...command)
  } finally {
    client.disconnect()
  }
}

const replicaOf = (primary: RedisServer): Promise<RedisServer> =>
  servers.start(`replicaof 127.0.0.1 ${primary.port}`)

const expectUp = (connection: TestConnection) =>
  eventually(() => expect(connection.state()).toMatchObject({ status: 'up' }))

/** Waits until the connection leads to the server and writes succeed there. */
const expectWritesTo = (connection: TestConnection, server: RedisServer) =>
  eventually(
    async () => {
      await connection.redis.set('key', 'value')
      expect(await connection.redis.info('server')).toContain(`tcp_port:${server.port}\r`)
    },
    { everyMs: 50 },
  )

describe('a list of Redis servers', () => {
  it('the client uses the primary of the listed Redis servers, although the first is dead and the second is a replica', async () => {
    const primary = await servers.start()
    const replica = await replicaOf(primary)
    await using connection = openRedis(listed(DEAD, replica, primary))
    await expectUp(connection)
    await expectWritesTo(connection, primary)
  })

  it('the client uses the new Redis primary after the previous one has become a replica', async () => {
    const first = await servers.start()
    const second = await replicaOf(first)
    await using connection = openRedis(listed(first, second))
    await expectUp(connection)
    await run(second, 'REPLICAOF', 'NO', 'ONE')
    await run(first, 'REPLICAOF', '127.0.0.1', String(second.port))
    await expectWritesTo(connection, second)
  })

  it('the client uses the new Redis primary while the previous primary rejects writes because it lost its replicas', async () => {
    const isolated = await servers.start()
    const promoted = await replicaOf(isolated)
    await using connection = openRedis(listed(isolated, promoted))
    await expectUp(connection)
    await run(promoted, 'REPLICAOF', 'NO', 'ONE')
    await run(isolated, 'CONFIG', 'SET', 'min-replicas-to-write', '1')
    await expectWritesTo(connection, promoted)
    await expectUp(connection)
  })

  it('the client reads from a Redis primary with too few replicas if no other listed server is a primary', async () => {
    const primary = await servers.start('min-replicas-to-write 1')
    await run(primary, 'CONFIG', 'SET', 'min-replicas-to-write', '0')
    await run(primary, 'SET', 'key', 'stored')
    await run(primary, 'CONFIG', 'SET', 'min-replicas-to-write', '1')
    await using connection = openRedis(listed(primary, DEAD))
    await eventually(() => expect(connection.reason()).toContain('too few replicas'))
    await eventually(async () => expect(await connection.redis.get('key')).toBe('stored'))
    await run(primary, 'CONFIG', 'SET', 'min-replicas-to-write', '0')
    await expectUp(connection)
  })

  it('the client logs only once why none of the listed Redis servers can be used, although it retries', async () => {
    const primary = await servers.start()
    const replica = await replicaOf(primary)
    const url = listed(DEAD, replica)
    await using connection = openRedis(url)
    const reason = `${DEAD}: ECONNREFUSED; ${replica.address}: the server is a replica and rejects writes`
    await eventually(() => expect(connection.reason()).toBe(reason))
    // This pause is long enough for further rounds of connection attempts.
    let closes = 0
    connection.redis.on('close', () => (closes += 1))
    await eventually(() => expect(closes).toBeGreaterThan(5))
    expect(connection.lines.filter(({ msg }) => msg === 'dependency is down')).toHaveLength(1)
    expect(JSON.stringify(connection.lines)).not.toContain(servers.password)
  })
})

describe('a Redis server that cannot be used', () => {
  it('the client reads from a replica that is the only listed Redis server, and reports Redis as down until the promotion', async () => {
    const primary = await servers.start()
    const replica = await replicaOf(primary)
    await using connection = openRedis(listed(replica))
    await eventually(() =>
      expect(connection.reason()).toMatch(/^role: the server is a replica and rejects writes\./),
    )
    await eventually(async () => expect(await connection.redis.get('none')).toBeNull())
    await run(replica, 'REPLICAOF', 'NO', 'ONE')
    await expectUp(connection)
  })

  it('the client reports that a node of a Redis Cluster is not supported', async () => {
    const node = await servers.start('cluster-enabled yes')
    await using connection = openRedis(listed(node))
    await eventually(() =>
      expect(connection.reason()).toContain(
        'Redis Cluster is not supported; use Sentinel or a single primary',
      ),
    )
  })

  it('if REDIS_URL lists a Sentinel as a Redis server, the client reports the mistake and the correct form of the URL', async () => {
    const sentinel = await servers.startSentinel()
    await using connection = openRedis(listed(sentinel))
    await eventually(() =>
      expect(connection.reason()).toBe(
        'kind: the server is a Sentinel. Set REDIS_URL to redis+sentinel://host:26379/name.',
      ),
    )
  })

  it.each(['wrong', ''])(
    'the client reports the reason if a Redis server rejects the password %j',
    async (password) => {
      const server = await servers.start()
      await using connection = openRedis(`redis://:${password}@${server.address}`)
      await eventually(() =>
        expect(connection.reason()).toBe(
          password === '' ? 'needs a password' : 'rejects the user or the password',
        ),
      )
    },
  )
})

describe('an address that lists Sentinels', () => {
  const sentinelOf = (primary: RedisServer, ...lines: string[]) =>
    servers.startSentinel(
      `sentinel monitor main 127.0.0.1 ${primary.port} ${lines.length > 0 ? '1' : '2'}`,
      `sentinel auth-pass main ${servers.password}`,
      'sentinel down-after-milliseconds main 1000',
      'sentinel failover-timeout main 10000',
      ...lines,
    )
  const addressOf = (sentinels: readonly (RedisServer | string)[], name = 'main') =>
    `${listed(...sentinels).replace('redis:', 'redis+sentinel:')}/${name}?sentinel_password=${servers.password}`

  it('the client uses the Redis primary that the Sentinels name, and uses the promoted replica after the primary has died', async () => {
    const primary = await servers.start()
    const replicas = [await replicaOf(primary), await replicaOf(primary)]
    const sentinels = [
      DEAD,
      await sentinelOf(primary),
      await sentinelOf(primary),
      await sentinelOf(primary),
    ]
    await using connection = openRedis(addressOf(sentinels))
    await expectUp(connection)
    await expectWritesTo(connection, primary)
    // A failover needs Sentinels that know each other and the replicas.
    await eventually(async () => {
      for (const sentinel of sentinels.filter((one) => typeof one !== 'string')) {
        const reply = (await run(sentinel, 'SENTINEL', 'MASTER', 'main')) as string[]
        expect(reply[reply.indexOf('num-slaves') + 1]).toBe('2')
        expect(reply[reply.indexOf('num-other-sentinels') + 1]).toBe('2')
      }
    })
    await primary.kill()
    await eventually(() => connection.redis.set('after', 'failover'), { everyMs: 50, seconds: 60 })
    const info = await connection.redis.info('server')
    expect(replicas.some(({ port }) => info.includes(`tcp_port:${port}\r`))).toBe(true)
    await expectUp(connection)
  })

  it('the client disconnects from a Redis primary as soon as a Sentinel announces another primary', async () => {
    const [previous, next] = [await servers.start(), await servers.start()]
    const sentinel = await sentinelOf(previous, 'sentinel config-epoch main 0')
    await using connection = openRedis(addressOf([sentinel]))
    await expectWritesTo(connection, previous)
    // A Sentinel that has performed a failover sends this message to the other Sentinels.
    const id = 'a'.repeat(40)
    const hello = ['127.0.0.1', '2', id, '9', 'main', '127.0.0.1', String(next.port), '9'].join()
    await run(sentinel, 'PUBLISH', '__sentinel__:hello', hello)
    await expectWritesTo(connection, next)
    // The Sentinel also demotes the previous primary, which ends the connection, but only after ten seconds.
    expect(await run(previous, 'ROLE')).toContain('master')
  })

  it('the client disconnects from a Redis primary if its replacement was announced while the client was connecting', async () => {
    const [previous, next] = [await servers.start(), await servers.start()]
    const sentinel = await sentinelOf(previous, 'sentinel config-epoch main 0')
    await run(previous, 'CLIENT', 'PAUSE', '1000', 'ALL')
    await using connection = openRedis(addressOf([sentinel]))
    await eventually(async () => {
      expect(await run(sentinel, 'CLIENT', 'LIST')).toContain(' sub=1 ')
      expect(connection.redis.status).toBe('connect')
    })
    const id = 'a'.repeat(40)
    const hello = ['127.0.0.1', '2', id, '9', 'main', '127.0.0.1', String(next.port), '9'].join()
    await run(sentinel, 'PUBLISH', '__sentinel__:hello', hello)
    await expectWritesTo(connection, next)
    expect(await run(previous, 'ROLE')).toContain('master')
  })

  it('the client uses the Redis primary with the newest configuration if the Sentinels name different primaries', async () => {
    const [previous, next] = [await servers.start(), await servers.start()]
    const stale = await sentinelOf(previous, 'sentinel config-epoch main 3')
    const current = await sentinelOf(next, 'sentinel config-epoch main 4')
    const primary = await findPrimary(
      {
        servers: [stale, current].map(({ port }) => ({ host: '127.0.0.1', port })) as never,
        password: servers.password,
        name: 'main',
        usesTls: false,
      },
      undefined,
    )
    expect(primary).toMatchObject({ port: next.port })
  })

  it('the client reports a reason for each Sentinel if none of them names the primary', async () => {
    const server = await servers.start()
    const sentinel = await sentinelOf(server)
    await using unknown = openRedis(addressOf([sentinel, server, DEAD], 'other'))
    await eventually(() =>
      expect(unknown.reason()).toBe(
        [
          `Sentinel ${sentinel.address}: knows no primary of this name`,
          `Sentinel ${server.address}: is not a Sentinel`,
          `Sentinel ${DEAD}: ECONNREFUSED`,
        ].join('; '),
      ),
    )
    await using anonymous = openRedis(addressOf([sentinel]).split('?')[0] ?? '')
    await eventually(() =>
      expect(anonymous.reason()).toBe(`Sentinel ${sentinel.address}: needs a password`),
    )
  })
})
