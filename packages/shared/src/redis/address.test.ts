import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { parseConfig } from '../process/config.ts'
import { parseRedisUrl, redisUrl } from './address.ts'

describe('parsing REDIS_URL', () => {
  it('parseRedisUrl reads a single server with user, password and database', () => {
    expect(parseRedisUrl('redis://user:p%40ss+word@host:7000/3')).toEqual({
      kind: 'servers',
      username: 'user',
      password: 'p@ss+word',
      usesTls: false,
      db: 3,
      servers: [{ host: 'host', port: 7_000 }],
    })
  })

  it('parseRedisUrl applies the default port and database, and reads a password without a user', () => {
    expect(parseRedisUrl('rediss://:a:b@host')).toEqual({
      kind: 'servers',
      password: 'a:b',
      usesTls: true,
      db: 0,
      servers: [{ host: 'host', port: 6_379 }],
    })
  })

  it('parseRedisUrl reads several servers, with IPv6 addresses in brackets', () => {
    expect(parseRedisUrl('redis://:p,w@a,b:7001,[::1]:7002/0')).toMatchObject({
      password: 'p,w',
      servers: [
        { host: 'a', port: 6_379 },
        { host: 'b', port: 7_001 },
        { host: '::1', port: 7_002 },
      ],
    })
  })

  it('parseRedisUrl reads Sentinels, the name of the primary, and the login for the Sentinels', () => {
    const query = 'sentinel_user=watcher&sentinel_password=a%26b+c'
    expect(parseRedisUrl(`redis+sentinel://:pw@a,b:5000/mymaster/2?${query}`)).toEqual({
      kind: 'sentinels',
      password: 'pw',
      usesTls: false,
      db: 2,
      sentinels: {
        servers: [
          { host: 'a', port: 26_379 },
          { host: 'b', port: 5_000 },
        ],
        name: 'mymaster',
        username: 'watcher',
        password: 'a&b+c',
        usesTls: false,
      },
    })
  })

  it('a rediss+sentinel URL requires TLS for Redis and for the Sentinels, unless the URL switches TLS off for the Sentinels', () => {
    expect(parseRedisUrl('rediss+sentinel://a/name')).toMatchObject({
      usesTls: true,
      sentinels: { usesTls: true },
    })
    expect(parseRedisUrl('rediss+sentinel://a/name?sentinel_tls=off')).toMatchObject({
      usesTls: true,
      sentinels: { usesTls: false },
    })
  })

  it.each([
    ['hush', 'is not a URL'],
    ['http://:hush@host', 'must begin with redis, rediss, redis+sentinel or rediss+sentinel'],
    ['redis-cluster://:hush@host', 'is not a URL'],
    ['redis://:hush@', 'has an empty host'],
    ['redis://:hush@a,,b', 'has an empty host'],
    ['redis://:hush@a,:6379', 'has an empty host'],
    ['redis://:hush@a, b', 'has a host that is not a name'],
    ['redis://:hush@[zz]', 'has a host that is not a name'],
    ['redis://:hush@::1', 'has an empty host'],
    ['redis://:hush@a,A:6379', 'names a server twice'],
    ['redis://:hush@a:0', 'has a port that is not 1 to 65535'],
    ['redis://:hush@a:65536', 'has a port that is not 1 to 65535'],
    ['redis://:hush@a/name', 'has a path that is not the number of a database'],
    ['redis://:hush@a/0/1', 'has a path that is not the number of a database'],
    ['redis://:hush@a?db=3', 'has an unknown parameter after the ?'],
    ['redis://:hush%zz@a', 'has a malformed percent-encoding'],
    ['redis+sentinel://:hush@a', 'lacks the name of the primary'],
    ['redis+sentinel://:hush@a/', 'lacks the name of the primary'],
    ['redis+sentinel://:hush@a/n?sentinel_tls=maybe', 'has a sentinel_tls that is not on or off'],
  ])('the Redis URL %s is rejected, because it %s', (REDIS_URL, problem) => {
    const read = () => parseConfig(z.object({ REDIS_URL: redisUrl() }), { REDIS_URL })
    expect(read).toThrow(`  REDIS_URL: ${problem}`)
    expect(read).not.toThrow(/hush/)
  })
})
