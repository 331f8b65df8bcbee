import { describe, expect, it } from 'vitest'
import { checkRedisReplicas, checkSentinelDownAfter } from './server-check.ts'

/** Returns a reply of Redis 8 to `INFO replication` of a primary, with one replica for each lag in seconds. */
const info = (lags: readonly number[], state = 'online'): string =>
  [
    '# Replication',
    'role:master',
    `connected_slaves:${lags.length}`,
    ...lags.map(
      (lag, n) => `slave${n}:ip=10.0.0.${n},port=6379,state=${state},offset=42,lag=${lag}`,
    ),
    'master_replid:8371b4fb1155b71f4a04d3e1bc3e18c4a990aeeb',
    '',
  ].join('\r\n')

const check = (
  text: string,
  { required = 1, minToWrite = 0 }: { required?: number; minToWrite?: number } = {},
) => checkRedisReplicas({ info: text, required, minToWrite, maxLagSeconds: 2 })

describe('checking the replicas of a Redis primary', () => {
  it.each([
    ['a single server', info([]), 0, 'ok', 'none'],
    ['one replica more than a write needs', info([0, 1]), 1, 'ok', '2 connected; 1 must have each'],
    ['as many replicas as a write needs', info([1]), 1, 'warning', '1 connected; all of them'],
    ['no replica although a write needs one', info([]), 1, 'problem', '0 connected; 1 needed'],
    ['replicas that no write waits for', info([0, 0]), 0, 'problem', 'REDIS_REPLICAS is 0'],
    [
      'a replica with too long a lag',
      info([0, 3]),
      2,
      'problem',
      '1 connected, and 1 more than 2 s behind or not in sync; 2 needed',
    ],
    ['a replica in its first synchronisation', info([0], 'wait_bgsave'), 1, 'problem', '0 conn'],
  ])('the check of Redis replicas reports %s', (_, text, required, verdict, found) => {
    expect(check(text, { required })).toMatchObject({
      check: 'replicas',
      verdict,
      found: expect.stringContaining(found),
    })
  })

  it('the check of Redis replicas requires the greater of min-replicas-to-write and REDIS_REPLICAS', () => {
    expect(check(info([0]), { required: 1, minToWrite: 2 })).toMatchObject({
      verdict: 'problem',
      found: '1 connected; 2 needed',
    })
  })
})

describe("comparing min-replicas-max-lag with Sentinel's down-after", () => {
  it('the check of Redis replicas accepts a min-replicas-max-lag shorter than the time after which Sentinel replaces a primary', () => {
    expect(checkSentinelDownAfter({ minToWrite: 1, maxLagSeconds: 2 }, 5_000)).toMatchObject({
      verdict: 'ok',
    })
  })

  it('the check of Redis replicas warns if min-replicas-max-lag lets an isolated primary accept writes until Sentinel replaces it', () => {
    expect(checkSentinelDownAfter({ minToWrite: 1, maxLagSeconds: 10 }, 5_000)).toMatchObject({
      verdict: 'warning',
      found: '10 s, and Sentinel replaces a primary after 5 s',
    })
  })

  it('the check of Redis replicas does not compare min-replicas-max-lag with Sentinel if min-replicas-to-write is 0', () => {
    expect(checkSentinelDownAfter({ minToWrite: 0, maxLagSeconds: 10 }, 5_000)).toBeNull()
  })
})
