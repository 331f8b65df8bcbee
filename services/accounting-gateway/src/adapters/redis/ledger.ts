import type { Logger } from '@integration-host/shared/observability/logger'
import type { Redis, Result } from 'ioredis'
import { createProcessLedger } from '../../realm/process-ledger.ts'
import type { Claim, Denial, Ledger, RealmRates } from '../../realm/throttle.ts'

/**
 * The ledger that all replicas share: sliding windows and places per realm in Redis, one script.
 *
 * I1  The clock is Redis's own, so replicas need not agree on the time.
 * I2  A replica's places are a lease, declared anew while it has them: those of a dead replica come back.
 * I3  Without Redis this process counts alone; what it has sent before counts. No call is refused for it.
 * I4  Far from its limits a realm's calls are permitted from a slice that the replica has borrowed ahead,
 *     without asking Redis. A borrowed permit counts as if it were used at the last moment it may be, until
 *     Redis hears when it was; so no window of any length, over all replicas, has more calls than allowed.
 * I5  One command at a time per realm and replica: it declares how many places the replica has in use, and
 *     two that crossed each other would each leave out the other's.
 */

// calls: zset of permits by the time they are used at the latest; leases: zset of replicas by the end of
// their lease; places: hash of how many each of them has; hold: exists while the realm is held.
const BORROW = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local perSecond, perMinute, concurrent = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local replica, leaseMs, sliceMs = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local used, kept, need = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local ahead, id = tonumber(ARGV[10]), ARGV[11]

local moved, unused = {}, {}
for i = 12, #ARGV, 2 do
  local ago = tonumber(ARGV[i + 1])
  if ago < 0 then table.insert(unused, ARGV[i])
  else
    table.insert(moved, now - ago)
    table.insert(moved, ARGV[i])
  end
end
if #moved > 0 then redis.call('ZADD', KEYS[1], 'XX', unpack(moved)) end
if #unused > 0 then redis.call('ZREM', KEYS[1], unpack(unused)) end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do redis.call('HDEL', KEYS[3], dead) end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 60000)
local others = 0
local counts = redis.call('HGETALL', KEYS[3])
for i = 1, #counts, 2 do
  if counts[i] ~= replica then others = others + tonumber(counts[i + 1]) end
end

local function reply(verdict, ms, granted, lent, places)
  if places > 0 then
    redis.call('ZADD', KEYS[2], now + leaseMs, replica)
    redis.call('HSET', KEYS[3], replica, places)
    redis.call('PEXPIRE', KEYS[2], leaseMs)
    redis.call('PEXPIRE', KEYS[3], leaseMs)
  else
    redis.call('ZREM', KEYS[2], replica)
    redis.call('HDEL', KEYS[3], replica)
  end
  return {verdict, ms, granted, lent, places}
end
local function wait(limit, window)
  local nth = redis.call('ZRANGE', KEYS[1], -limit, -limit, 'WITHSCORES')
  if nth[2] == nil then return 0 end
  return math.max(0, tonumber(nth[2]) + window - now)
end

local held = redis.call('PTTL', KEYS[4])
if held > 0 then return reply('held', held, 0, 0, used + kept) end
local places = concurrent - others - used - kept
local calls = math.min(
  perSecond - redis.call('ZCOUNT', KEYS[1], '(' .. (now - 1000), '+inf'),
  perMinute - redis.call('ZCARD', KEYS[1]))
local granted = math.max(0, math.min(need, places, calls))
-- A quarter of what is left, so that another replica finds the most of it; nothing when that is little.
local lent, spare = 0, 0
if ahead == 1 and granted == need then
  local idle = math.floor((places + kept - granted) / 4)
  lent = math.min(math.floor((calls - granted) / 4), 64)
  if idle < 1 then lent = 0 end
  spare = math.max(0, math.min(idle, lent) - kept)
end
local given = {}
for n = 1, granted + lent do
  table.insert(given, n <= granted and now or now + sliceMs)
  table.insert(given, id .. ':' .. n)
end
if #given > 0 then
  redis.call('ZADD', KEYS[1], unpack(given))
  redis.call('PEXPIRE', KEYS[1], 60000 + sliceMs)
end
local verdict, ms = 'granted', 0
if granted < need then
  if places <= granted then verdict = 'concurrency'
  else verdict, ms = 'rate', math.max(1, wait(perSecond, 1000), wait(perMinute, 60000)) end
end
return reply(verdict, ms, granted, lent, used + kept + granted + spare)
`

// Never shortens: two replicas can hear of different times.
const HOLD = `
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], '1', 'PX', ARGV[1]) end
return 1
`

type Verdict = 'granted' | Denial['reason']
type Reply = [verdict: Verdict, waitMs: number, granted: number, lent: number, places: number]

declare module 'ioredis' {
  interface RedisCommander<Context> {
    borrowPermits(
      calls: string,
      leases: string,
      places: string,
      hold: string,
      ...args: (string | number)[]
    ): Result<Reply, Context>
    holdRealm(hold: string, ms: number): Result<number, Context>
  }
}

const LEASE_MS = 30_000
const RENEW_EVERY_MS = 10_000
/** How long a borrowed permit is good for; what one replica has in stock, the others lack for so long. */
const SLICE_MS = 2_000
const SWEEP_EVERY_MS = 1_000
const CONCURRENCY_POLL_MS = 50
/** After a failure Redis is left alone, so that not every call pays its timeout. */
const AWAY_MS = 1_000

/** Whether Redis can be asked: one answer for all ledgers in it, told to the log once each way. */
export interface RedisPresence {
  isAway(): boolean
  away(error: unknown): void
  back(): void
}

export function createRedisPresence(logger: Logger, now: () => number = Date.now): RedisPresence {
  let awayUntil = 0
  let isAlone = false
  return {
    isAway: () => now() < awayUntil,
    away(error) {
      awayUntil = now() + AWAY_MS
      if (!isAlone)
        logger.warn({ err: error }, 'Redis is away: this replica counts its calls alone')
      isAlone = true
    },
    back() {
      if (isAlone) logger.info('Redis is back: calls are counted over all replicas')
      isAlone = false
    },
  }
}

export interface RedisLedgerDeps {
  readonly redis: Redis
  /** Goes before its keys. */
  readonly name: string
  readonly rates: RealmRates
  readonly presence: RedisPresence
  readonly now?: () => number
}

/** Disposing gives back what is in stock; permits that are out end by themselves. */
export interface RedisLedger extends Ledger, AsyncDisposable {}

/** What this replica has of a realm. Times are of the monotonic clock. */
interface Account {
  /** Borrowed permits that are not used, and until when they may be. */
  stock: { readonly id: string; readonly until: number }[]
  /** Half of what was lent last: with fewer in stock more is borrowed. */
  lowWater: number
  /** Permits that Redis counts as used later than they were; `at` is null for one that was not used. */
  settled: { readonly id: string; readonly at: number | null }[]
  /** Places that Redis has this replica down for, and those of them that calls are in. */
  places: number
  used: number
  /** Claims that the next command asks for. */
  waiting: ((claim: Claim) => void)[]
  isAsking: boolean
  /** What Redis has of this replica is more than it needs. */
  isOutdated: boolean
  usedAt: number
  declaredAt: number
}

export function createRedisLedger(deps: RedisLedgerDeps): RedisLedger {
  const { redis, name, rates, presence, now = Date.now } = deps
  redis.defineCommand('borrowPermits', { numberOfKeys: 4, lua: BORROW })
  redis.defineCommand('holdRealm', { numberOfKeys: 1, lua: HOLD })
  const own = createProcessLedger(rates, now)
  const replica = crypto.randomUUID()
  const accounts = new Map<string, Account>()
  let count = 0

  // Braces: the keys of a realm live in one slot of a cluster.
  const key = (realm: string, what: string): string => `${name}:{${realm}}:${what}`

  function accountOf(realm: string): Account {
    const known = accounts.get(realm)
    if (known !== undefined) return known
    const account: Account = {
      stock: [],
      lowWater: 0,
      settled: [],
      places: 0,
      used: 0,
      waiting: [],
      isAsking: false,
      isOutdated: false,
      usedAt: 0,
      declaredAt: 0,
    }
    accounts.set(realm, account)
    return account
  }

  function borrow(realm: string, account: Account, ahead: boolean): Promise<Reply> {
    const at = performance.now()
    const settled = account.settled.flatMap(({ id, at: usedAt }) => [
      id,
      usedAt === null ? -1 : Math.floor(at - usedAt),
    ])
    account.settled = []
    account.isOutdated = false
    account.declaredAt = at
    // Until Redis has answered, only the places that it is told of here are this replica's.
    const kept = ahead ? Math.min(account.places - account.used, account.stock.length) : 0
    account.places = account.used + kept
    return redis.borrowPermits(
      key(realm, 'calls'),
      key(realm, 'open'),
      key(realm, 'places'),
      key(realm, 'hold'),
      rates.perSecond,
      rates.perMinute,
      rates.concurrent,
      replica,
      LEASE_MS,
      SLICE_MS,
      account.used,
      kept,
      account.waiting.length,
      ahead ? 1 : 0,
      `${replica}:${(count += 1)}`,
      ...settled,
    )
  }

  // I5
  async function ask(realm: string, account: Account, ahead: boolean): Promise<void> {
    if (account.isAsking) return
    account.isAsking = true
    do {
      const asking = account.waiting.length
      const id = `${replica}:${count + 1}`
      const until = performance.now() + SLICE_MS
      try {
        const [verdict, waitMs, granted, lent, places] = await borrow(realm, account, ahead)
        presence.back()
        account.places = places
        for (let n = granted + 1; n <= granted + lent; n += 1)
          account.stock.push({ id: `${id}:${n}`, until })
        account.lowWater = Math.floor(lent / 2)
        if (verdict === 'held') own.hold(realm, waitMs)
        account.waiting.splice(0, asking).forEach((settle, index) => {
          settle(index < granted ? enter(realm, account) : { denial: denialOf(verdict, waitMs) })
        })
      } catch (error) {
        presence.away(error)
        for (const settle of account.waiting.splice(0)) settle(own.claim(realm))
        break
      }
    } while (account.waiting.length > 0 || account.isOutdated)
    account.isAsking = false
  }

  /** One of the account's places, for a call that has its permit. */
  function enter(realm: string, account: Account): Claim {
    own.record(realm)
    account.used += 1
    account.usedAt = performance.now()
    let isOpen = true
    return {
      permit: {
        release() {
          if (!isOpen) return
          isOpen = false
          account.used -= 1
          // Kept for the next call while there is a permit in stock for it; else somebody may wait for it.
          if (account.stock.length === 0) giveBack(realm, account)
        },
      },
    }
  }

  /** Lets Redis know what this replica has no use for. Lost, its lease ends by itself. */
  function giveBack(realm: string, account: Account): void {
    account.isOutdated = true
    if (isThere()) void ask(realm, account, false)
  }

  function fromStock(realm: string, account: Account): Claim | null {
    discardExpired(account)
    const permit = account.used < account.places ? account.stock.shift() : undefined
    if (permit === undefined) return null
    account.settled.push({ id: permit.id, at: performance.now() })
    const claim = enter(realm, account)
    if (account.stock.length <= account.lowWater) void ask(realm, account, true)
    return claim
  }

  function discardExpired(account: Account): void {
    const at = performance.now()
    for (let [oldest] = account.stock; oldest !== undefined && oldest.until <= at;) {
      account.settled.push({ id: oldest.id, at: null })
      account.stock.shift()
      ;[oldest] = account.stock
    }
  }

  const isThere = (): boolean => redis.status === 'ready' && !presence.isAway()

  // I2, and what is not used goes back to where others find it.
  const sweeping = setInterval(() => {
    const at = performance.now()
    for (const [realm, account] of accounts) {
      discardExpired(account)
      const { stock, settled, places, used, waiting, isAsking, usedAt, declaredAt } = account
      const isIdle = places > used && at - usedAt > SLICE_MS
      if (isIdle || (places > 0 && at - declaredAt > RENEW_EVERY_MS)) giveBack(realm, account)
      else if (places + used + stock.length + waiting.length === 0 && !isAsking) {
        if (settled.length > 0) giveBack(realm, account)
        else accounts.delete(realm)
      }
    }
  }, SWEEP_EVERY_MS)
  sweeping.unref()

  return {
    claim(realm) {
      const heldMs = own.heldMs(realm)
      if (heldMs > 0) return { denial: { reason: 'held', waitMs: heldMs } }
      if (!isThere()) {
        if (redis.status !== 'ready') presence.away(new Error('not connected'))
        return own.claim(realm) // I3
      }
      const account = accountOf(realm)
      const claim = fromStock(realm, account) // I4
      if (claim !== null) return claim
      return new Promise((resolve) => {
        account.waiting.push(resolve)
        void ask(realm, account, true)
      })
    },
    hold(realm, ms) {
      own.hold(realm, ms)
      if (ms > 0)
        redis.holdRealm(key(realm, 'hold'), Math.ceil(ms)).catch((error: unknown) => {
          presence.away(error)
        })
    },
    async [Symbol.asyncDispose]() {
      clearInterval(sweeping)
      if (!isThere()) return
      const leaving = [...accounts].map(([realm, account]) => {
        for (const { id } of account.stock.splice(0)) account.settled.push({ id, at: null })
        return ask(realm, account, false)
      })
      await Promise.all(leaving)
    },
  }
}

const denialOf = (verdict: Verdict, waitMs: number): Denial =>
  verdict === 'held' || verdict === 'rate'
    ? { reason: verdict, waitMs }
    : { reason: 'concurrency', waitMs: CONCURRENCY_POLL_MS }
