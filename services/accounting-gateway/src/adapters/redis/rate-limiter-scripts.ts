/**
 * The Lua scripts of the rate limiter.
 *
 * KEYS of a realm: `calls` is a sorted set of permits, scored by the latest time (epoch ms of Redis) at which each
 * permit may be used. `open` is a sorted set of gateway replicas, scored by the end of their lease. `places` is a hash
 * with the number of concurrency slots of each gateway replica. `hold` exists during a cool-down of the realm.
 *
 * ARGV 1–3: calls per second, calls per minute, concurrent calls. 4–6: id of the gateway replica, length of its lease
 * in ms, lifetime of a prefetched permit in ms. 7–9: number of slots in use, number of idle slots that the gateway
 * replica keeps, number of permits that waiting calls need. 10: 1 if permits are to be prefetched. 11: prefix for the
 * ids of new permits. From 12 on in pairs: id of a prefetched permit, and the number of ms since its use (-1 if the
 * permit expired unused).
 *
 * Returns the verdict (`granted`, or why calls have to wait: `cool-down`, `concurrency` or `rate`), the ms until the
 * next attempt, the number of granted permits, the number of prefetched permits, the number of slots of the gateway
 * replica, and 1 if the realm is far from its limit per second.
 */
export const RESERVE_PERMITS = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local perSecond, perMinute, concurrent = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local replica, leaseMs, prefetchTtlMs = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local slice = 64
local inFlight, idleSlots, needed = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local mayPrefetch, id = tonumber(ARGV[10]), ARGV[11]

-- Applies the usage reports: sets the score of a used permit to the time of its use, and removes an unused permit.
local used, unused = {}, {}
for i = 12, #ARGV, 2 do
  local ago = tonumber(ARGV[i + 1])
  if ago < 0 then table.insert(unused, ARGV[i])
  else
    table.insert(used, now - ago)
    table.insert(used, ARGV[i])
  end
end
if #used > 0 then redis.call('ZADD', KEYS[1], 'XX', unpack(used)) end
if #unused > 0 then redis.call('ZREM', KEYS[1], unpack(unused)) end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do redis.call('HDEL', KEYS[3], dead) end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 60000)
local slotsOfOthers = 0
local slots = redis.call('HGETALL', KEYS[3])
for i = 1, #slots, 2 do
  if slots[i] ~= replica then slotsOfOthers = slotsOfOthers + tonumber(slots[i + 1]) end
end

-- Records the gateway replica's slots, renews its lease on them, and returns the reply.
local function reply(verdict, ms, granted, prefetched, ownSlots, isFar)
  if ownSlots > 0 then
    redis.call('ZADD', KEYS[2], now + leaseMs, replica)
    redis.call('HSET', KEYS[3], replica, ownSlots)
    redis.call('PEXPIRE', KEYS[2], leaseMs)
    redis.call('PEXPIRE', KEYS[3], leaseMs)
  else
    redis.call('ZREM', KEYS[2], replica)
    redis.call('HDEL', KEYS[3], replica)
  end
  return {verdict, ms, granted, prefetched, ownSlots, isFar}
end
-- Returns the milliseconds until the window has room for one more call, which is when the oldest of the last <limit>
-- calls has left the window.
local function wait(limit, window)
  local nth = redis.call('ZRANGE', KEYS[1], -limit, -limit, 'WITHSCORES')
  if nth[2] == nil then return 0 end
  return math.max(0, tonumber(nth[2]) + window - now)
end

local coolDown = redis.call('PTTL', KEYS[4])
if coolDown > 0 then return reply('cool-down', coolDown, 0, 0, inFlight + idleSlots, 0) end
local freeSlots = concurrent - slotsOfOthers - inFlight - idleSlots
local freeInSecond = perSecond - redis.call('ZCOUNT', KEYS[1], '(' .. (now - 1000), '+inf')
local freeCalls = math.min(freeInSecond, perMinute - redis.call('ZCARD', KEYS[1]))
local granted = math.max(0, math.min(needed, freeSlots, freeCalls))
-- Prefetches a quarter of the remaining permits, but at most a full slice, so that most of them stay available to the other
-- replicas. Prefetches none if fewer than four permits or slots remain.
local prefetched, spareSlots = 0, 0
if mayPrefetch == 1 and granted == needed then
  local slotShare = math.floor((freeSlots + idleSlots - granted) / 4)
  prefetched = math.min(math.floor((freeCalls - granted) / 4), slice)
  if slotShare < 1 then prefetched = 0 end
  spareSlots = math.max(0, math.min(slotShare, prefetched) - idleSlots)
end
-- A realm is far from its limit per second if a full slice was prefetched and three quarters of the limit remain free.
-- Its gateway replicas need not report when they use permits: such a permit counts for up to two seconds longer, so the
-- window contains the calls of three seconds, and these are still only a quarter of the limit.
local isFar = 0
if prefetched == slice and (perSecond - freeInSecond + granted + prefetched) * 4 <= perSecond then isFar = 1 end
-- The scores are texts, because Lua would format each number again.
local grantedAt, prefetchedUntil = string.format('%.0f', now), string.format('%.0f', now + prefetchTtlMs)
local permits = {}
for n = 1, granted + prefetched do
  permits[2 * n - 1] = n <= granted and grantedAt or prefetchedUntil
  permits[2 * n] = id .. ':' .. n
end
if #permits > 0 then
  redis.call('ZADD', KEYS[1], unpack(permits))
  redis.call('PEXPIRE', KEYS[1], 60000 + prefetchTtlMs)
end
local verdict, ms = 'granted', 0
if granted < needed then
  if freeSlots <= granted then verdict = 'concurrency'
  else verdict, ms = 'rate', math.max(1, wait(perSecond, 1000), wait(perMinute, 60000)) end
end
return reply(verdict, ms, granted, prefetched, inFlight + idleSlots + granted + spareSlots, isFar)
`

/**
 * Starts a cool-down of a realm. KEYS[1] is the `hold` key; ARGV[1] is the length of the cool-down in ms. A running
 * cool-down is never shortened, because two gateway replicas can receive different `Retry-After` values for the same
 * realm.
 */
export const START_COOL_DOWN = `
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], '1', 'PX', ARGV[1]) end
return 1
`
