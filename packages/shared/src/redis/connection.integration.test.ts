import { randomUUID } from 'node:crypto'
import { Redis } from 'ioredis'
import { describe, expect, it } from 'vitest'
import { eventually } from '../../test-support/eventually.ts'
import { edited, startRelay } from '../../test-support/relay.ts'
import { openRedis } from '../../test-support/redis-client.ts'

function connect({ url }: { readonly url: string }) {
  const connection = openRedis(url)
  const remarks = () => connection.lines.filter(({ msg }) => msg === 'dependency is degraded')
  return Object.assign(connection, { remarks })
}
const redisRelay = () => startRelay(process.env['TEST_REDIS_URL'] ?? '', 6_379)

describe('checking a Redis server', () => {
  it('the client reports that the Redis server is down while its version is too old, and uses the server after an upgrade', async () => {
    await using relay = await redisRelay()
    relay.edit = (reply) => edited(reply, /redis_version:\d/, 'redis_version:5')
    await using connection = connect(relay)
    await eventually(() =>
      expect(connection.state()).toMatchObject({
        status: 'down',
        reason: expect.stringMatching(/^version: 5\.\S+ Upgrade to 6\.2 or newer\.$/),
      }),
    )
    relay.edit = null
    relay.cut() // an upgrade of a server closes its connections
    await eventually(() => expect(connection.state()).toMatchObject({ status: 'up' }))
    expect(connection.remarks()).toEqual([])
  })

  it('the client uses a Redis server even if the ACL forbids INFO, which returns the version of the server', async () => {
    const url = process.env['TEST_REDIS_URL'] ?? ''
    const user = `test-${randomUUID()}`
    const admin = new Redis(url)
    await admin.call('ACL', 'SETUSER', user, 'on', '>password', '~*', '+@all', '-@dangerous')
    try {
      const own = Object.assign(new URL(url), { username: user, password: 'password' })
      await using connection = connect({ url: own.href })
      await eventually(() => expect(connection.state()).toMatchObject({ status: 'up' }))
    } finally {
      await admin.call('ACL', 'DELUSER', user)
      admin.disconnect()
    }
  })

  it("the client uses a Redis server even if the server's clock differs by minutes, and logs the difference", async () => {
    await using relay = await redisRelay()
    // This function adds 1,000 to the seconds in Redis's reply to TIME.
    relay.edit = (reply) =>
      edited(
        reply,
        /(\$10\r\n)(\d{7})/,
        (_, length: string, front: string) => length + String(Number(front) + 1),
      )
    await using connection = connect(relay)
    await eventually(() => expect(connection.state()).toMatchObject({ status: 'up' }))
    expect(connection.remarks()).toEqual([
      expect.objectContaining({
        dependency: 'redis',
        check: 'clock',
        found: expect.stringMatching(/^\d+\.\d s ahead of this machine$/),
        remedy: expect.stringContaining('NTP'),
      }),
    ])
  })
})

describe('a connection to Redis', () => {
  it.each([
    "-READONLY You can't write against a read only replica.",
    "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "-ERR Error running script: -READONLY You can't write against a read only replica.",
    '-NOREPLICAS Not enough good replicas to write.',
  ])(
    'the client reconnects when a command fails because the Redis server is no longer the primary: %s',
    async (refusal) => {
      await using relay = await redisRelay()
      await using connection = connect(relay)
      await eventually(() => expect(connection.state()).toMatchObject({ status: 'up' }))
      // The old primary still serves its open connections. A new connection leads to the new primary.
      relay.edit = () => Buffer.from(`${refusal}\r\n`)
      const lines = relay.connections
      await expect(connection.redis.ping()).rejects.toThrow(refusal.slice(1))
      relay.edit = null
      await eventually(async () => expect(await connection.redis.ping()).toBe('PONG'))
      expect(relay.connections).toBe(lines + 1)
    },
  )

  it('the client does not reconnect after each failed command while no Redis primary is available', async () => {
    await using relay = await redisRelay()
    await using connection = connect(relay)
    await eventually(() => expect(connection.state()).toMatchObject({ status: 'up' }))
    const refusal = "READONLY You can't write against a read only replica."
    // Only the reply to PING is replaced, because the bytes may contain other replies as well.
    relay.edit = (reply) => edited(reply, /^\+PONG(?=\r\n)/m, `-${refusal}`)
    const lines = relay.connections
    await expect(connection.redis.ping()).rejects.toThrow(refusal)
    await eventually(() => expect(connection.redis.ping()).rejects.toThrow(refusal))
    await expect(connection.redis.ping()).rejects.toThrow(refusal)
    expect(relay.connections).toBe(lines + 1)
  })

  it('the client replaces an unresponsive connection to Redis', async () => {
    await using relay = await redisRelay()
    await using connection = connect(relay)
    await eventually(() => expect(connection.state()).toMatchObject({ status: 'up' }))
    relay.silence()
    await expect(connection.redis.ping()).rejects.toThrow('timed out')
    await eventually(() =>
      expect(connection.lines).toContainEqual(
        expect.objectContaining({ msg: 'dependency is down', reason: 'does not respond' }),
      ),
    )
    await eventually(async () => expect(await connection.redis.ping()).toBe('PONG'))
  })

  it('the client repeats the check of a Redis server if the first check fails', async () => {
    await using relay = await redisRelay()
    // This error reply is sent in place of the first reply to TIME.
    const busy = Buffer.from('-BUSY Redis is busy running a script.\r\n')
    let looks = 0
    relay.edit = (reply) =>
      reply.toString('latin1').startsWith('*2\r\n$10') && (looks += 1) === 1 ? busy : reply
    await using connection = connect(relay)
    await eventually(() => expect(connection.state()).toMatchObject({ status: 'up' }))
    expect([looks, relay.connections]).toEqual([2, 1])
  })
})
