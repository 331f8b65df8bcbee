import type { Logger } from '@integration-host/shared/logger'
import type { Redis, Result } from 'ioredis'
import { createProcessLedger } from '../../realm/process-ledger.ts'
import type { Claim, Ledger, RealmRates } from '../../realm/throttle.ts'

/**
 * The ledger that all replicas share: sliding windows and places per realm in Redis, one script a claim.
 *
 * I1  The clock is Redis's own, so replicas need not agree on the time.
 * I2  A place is a lease, renewed while the call runs: those of a dead replica come back.
 * I3  Without Redis this process counts alone; what it has sent before counts. No call is refused for it.
 */

// calls: zset of permits by the time they were given, one minute long; open: zset of places by the end of
// their lease; hold: exists while the realm is held.
const CLAIM = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local perSecond, perMinute, concurrent = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local held = redis.call('PTTL', KEYS[3])
if held > 0 then return {'held', held} end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if redis.call('ZCARD', KEYS[2]) >= concurrent then return {'concurrency', 0} end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 60000)
local function wait(limit, window)
  local nth = redis.call('ZRANGE', KEYS[1], -limit, -limit, 'WITHSCORES')
  if nth[2] == nil then return 0 end
  return math.max(0, tonumber(nth[2]) + window - now)
end
local ms = math.max(wait(perSecond, 1000), wait(perMinute, 60000))
if ms > 0 then return {'rate', ms} end
redis.call('ZADD', KEYS[1], now, ARGV[4])
redis.call('PEXPIRE', KEYS[1], 60000)
redis.call('ZADD', KEYS[2], now + ARGV[5], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return {'granted', 0}
`

const RENEW = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', now + ARGV[1], ARGV[i]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
`

// Never shortens: two replicas can hear of different times.
const HOLD = `
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], '1', 'PX', ARGV[1]) end
return 1
`

declare module 'ioredis' {
  interface RedisCommander<Context> {
    claimPermit(
      calls: string,
      open: string,
      hold: string,
      perSecond: number,
      perMinute: number,
      concurrent: number,
      id: string,
      leaseMs: number,
    ): Result<[string, number], Context>
    renewPermits(open: string, leaseMs: number, ...ids: string[]): Result<number, Context>
    holdRealm(hold: string, ms: number): Result<number, Context>
  }
}

const LEASE_MS = 30_000
const RENEW_EVERY_MS = 10_000
const CONCURRENCY_POLL_MS = 50
/** After a failure Redis is left alone, so that not every call pays its timeout. */
const AWAY_MS = 1_000

export interface RedisLedgerDeps {
  readonly redis: Redis
  readonly rates: RealmRates
  readonly logger: Logger
  readonly now?: () => number
}

export interface RedisLedger extends Ledger, Disposable {}

export function createRedisLedger(deps: RedisLedgerDeps): RedisLedger {
  const { redis, rates, logger, now = Date.now } = deps
  redis.defineCommand('claimPermit', { numberOfKeys: 3, lua: CLAIM })
  redis.defineCommand('renewPermits', { numberOfKeys: 1, lua: RENEW })
  redis.defineCommand('holdRealm', { numberOfKeys: 1, lua: HOLD })
  const own = createProcessLedger(rates, now)
  const replica = crypto.randomUUID()
  const open = new Map<string, Set<string>>()
  let count = 0
  let awayUntil = 0
  let isAlone = false

  // Braces: the three keys of a realm live in one slot of a cluster.
  const key = (realm: string, what: string): string => `throttle:{${realm}}:${what}`

  function away(error: unknown): void {
    awayUntil = now() + AWAY_MS
    if (!isAlone) logger.warn({ err: error }, 'Redis is away: this replica counts its calls alone')
    isAlone = true
  }

  function back(): void {
    if (isAlone) logger.info('Redis is back: calls are counted over all replicas')
    isAlone = false
  }

  async function claimShared(realm: string): Promise<Claim> {
    const id = `${replica}:${(count += 1)}`
    let reply: [string, number]
    try {
      reply = await redis.claimPermit(
        key(realm, 'calls'),
        key(realm, 'open'),
        key(realm, 'hold'),
        rates.perSecond,
        rates.perMinute,
        rates.concurrent,
        id,
        LEASE_MS,
      )
    } catch (error) {
      away(error)
      return own.claim(realm)
    }
    back()
    const [verdict, waitMs] = reply
    switch (verdict) {
      case 'granted':
        own.record(realm)
        return { permit: { release: taken(realm, id) } }
      case 'held':
      case 'rate':
        return { denial: { reason: verdict, waitMs } }
      default:
        return { denial: { reason: 'concurrency', waitMs: CONCURRENCY_POLL_MS } }
    }
  }

  function taken(realm: string, id: string): () => void {
    const ids = open.get(realm) ?? new Set()
    open.set(realm, ids.add(id))
    return () => {
      if (!ids.delete(id)) return
      if (ids.size === 0 && open.get(realm) === ids) open.delete(realm)
      // Lost, the lease ends by itself.
      redis.zrem(key(realm, 'open'), id).catch(away)
    }
  }

  // I2
  const renewing = setInterval(() => {
    for (const [realm, ids] of open)
      redis.renewPermits(key(realm, 'open'), LEASE_MS, ...ids).catch(away)
  }, RENEW_EVERY_MS)
  renewing.unref()

  return {
    claim(realm) {
      const heldMs = own.heldMs(realm)
      if (heldMs > 0) return { denial: { reason: 'held', waitMs: heldMs } }
      if (redis.status === 'ready' && now() >= awayUntil) return claimShared(realm)
      if (redis.status !== 'ready') away(new Error('not connected'))
      return own.claim(realm) // I3
    },
    hold(realm, ms) {
      own.hold(realm, ms)
      if (ms > 0) redis.holdRealm(key(realm, 'hold'), Math.ceil(ms)).catch(away)
    },
    [Symbol.dispose]() {
      clearInterval(renewing)
    },
  }
}
