import { describe, expect, it } from 'vitest'
import { checkServer, checkDefaultUser } from './redis.ts'

/** Returns a reply of Redis 7.0 to INFO, reduced to the checked lines, with `changes` applied. */
const info = (changes: Readonly<Record<string, string>> = {}): string =>
  Object.entries({
    redis_version: '7.0.15',
    role: 'master',
    used_memory: '1000',
    maxmemory: '0',
    total_system_memory: '8000',
    maxmemory_policy: 'noeviction',
    aof_enabled: '1',
    aof_last_write_status: 'ok',
    ...changes,
  })
    .map(([key, value]) => `${key}:${value}\r\n`)
    .join('# Section\r\n')

const amiss = (changes: Readonly<Record<string, string>>, appendfsync: string | undefined) =>
  checkServer(info(changes), appendfsync)
    .filter(({ verdict }) => verdict !== 'ok')
    .map(({ check, verdict, found }) => `${verdict} ${check}: ${found}`)

describe('the check of the INFO reply of Redis', () => {
  it('doctor reports Redis as ok if Redis evicts no keys and flushes every write to disk', () => {
    expect(amiss({}, 'always')).toEqual([])
  })

  it.each([
    [{ redis_version: '6.0.16' }, 'problem version: 6.0.16'],
    [{ redis_version: '10.0.0' }, undefined],
    [{ role: 'slave' }, 'problem role: slave'],
    [{ maxmemory_policy: 'allkeys-lru' }, 'problem maxmemory-policy: allkeys-lru'],
    [{ maxmemory: '1040' }, 'problem memory: 96 % of maxmemory is used'],
    [{ maxmemory: '1200' }, 'warning memory: 83 % of maxmemory is used'],
    [{ maxmemory: '2000' }, undefined],
    [{ used_memory: '7000' }, "warning memory: 88 % of the machine's memory is used"],
    [{ used_memory: '7900' }, "problem memory: 99 % of the machine's memory is used"],
    [{ aof_enabled: '0' }, 'problem appendonly: no'],
    [{ aof_last_write_status: 'err' }, 'problem appendonly: its last write failed'],
  ])('an INFO reply of Redis with %j leads to the check result: %s', (changes, expected) => {
    expect(amiss(changes, 'always')).toEqual(expected === undefined ? [] : [expected])
  })

  it('doctor warns if appendfsync is not `always`, and skips this check if Redis rejects CONFIG GET', () => {
    expect(amiss({}, 'everysec')).toEqual(['warning appendfsync: everysec'])
    expect(amiss({}, undefined)).toEqual(['skipped appendfsync: CONFIG GET is not allowed'])
  })
})

describe('the check of the permissions of the Redis user `default`', () => {
  /** Returns a reply of Redis to ACL GETUSER. */
  const user = (commands: string, keys: string): unknown[] => [
    'flags',
    ['off'],
    'passwords',
    [],
    'commands',
    commands,
    'keys',
    keys,
    'channels',
    '&*',
  ]

  it.each([
    [user('+@all', '~*'), 'ok'],
    [user('-@all', ''), 'problem'],
    [user('+@all', ''), 'problem'],
    [user('-@all +get', '~*'), 'problem'],
    [[], 'skipped'],
  ])(
    'the check of the Redis user `default` turns the ACL GETUSER reply %j into the verdict %s',
    (replayer, verdict) => {
      expect(checkDefaultUser(replayer)).toMatchObject({ check: 'default-user', verdict })
    },
  )
})
