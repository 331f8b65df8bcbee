/**
 * The writes of the credential store, each one atomic in Redis. They say the same in Lua as
 * credential-store.ts says in words. Keys come through KEYS, so that a key prefix applies.
 */
import type { Redis } from 'ioredis'

// KEYS: credential, lease, fence. ARGV: owner, lease ms.
// The fence stays above every one this credential has seen, and above the clock: a failover may have lost a
// lease with its fence, and the one who holds it must not be taken for the next.
const acquire = `
if redis.call('EXISTS', KEYS[1]) == 0 then return {'absent'} end
if redis.call('EXISTS', KEYS[2]) == 1 then return {'busy'} end
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local seen = tonumber(redis.call('HGET', KEYS[1], 'Fence') or '0')
local fence = math.max(redis.call('INCR', KEYS[3]), seen + 1, ms)
redis.call('SET', KEYS[3], fence)
redis.call('SET', KEYS[2], ARGV[1] .. ':' .. fence, 'PX', ARGV[2])
redis.call('HSET', KEYS[1], 'Fence', fence)
return {'acquired', fence, ms, redis.call('HGETALL', KEYS[1])}
`

// KEYS: lease. ARGV: holder, lease ms.
const renew = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
`

// KEYS: lease. ARGV: holder.
const release = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
`

// KEYS: credential, lease. ARGV: holder, fence, version.
const recordIntent = `
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 'lost' end
local now = redis.call('HMGET', KEYS[1], 'Fence', 'Version')
if now[1] ~= ARGV[2] or now[2] ~= ARGV[3] then return 'lost' end
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], 'Intent', ARGV[3] .. ':' .. ARGV[2] .. ':' .. string.format('%.0f', ms))
return 'recorded'
`

// KEYS: credential, lease, due, faulted, outbox, expiry.
// ARGV: holder, fence, version, name, due at, expires at, journal entry, overlay field count, overlay fields…, fields and values…
const commit = `
local now = redis.call('HMGET', KEYS[1], 'Fence', 'Version')
if not now[2] then return 'superseded' end
if tonumber(now[2]) == tonumber(ARGV[3]) + 1 and now[1] == ARGV[2] then return 'committed' end
if now[2] ~= ARGV[3] then return 'superseded' end
if now[1] ~= ARGV[2] then return 'fenced' end
local overlays = tonumber(ARGV[8])
redis.call('HDEL', KEYS[1], unpack(ARGV, 9, 8 + overlays))
redis.call('HSET', KEYS[1], unpack(ARGV, 9 + overlays))
redis.call('ZADD', KEYS[3], ARGV[5], ARGV[4])
redis.call('ZADD', KEYS[6], ARGV[6], ARGV[4])
redis.call('SREM', KEYS[4], ARGV[4])
redis.call('XADD', KEYS[5], '*', 'entry', ARGV[7])
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
return 'committed'
`

// KEYS: credential, lease, due, faulted, outbox, names, removed, fence, expiry.
// ARGV: last version, name, due at, expires at, journal entry, put id or '', overlay field count, overlay fields…, fields and values…
const put = `
if ARGV[6] ~= '' and redis.call('HGET', KEYS[1], 'PutId') == ARGV[6] then return 'stored before' end
local last = redis.call('HGET', KEYS[1], 'Version') or redis.call('HGET', KEYS[7], ARGV[2]) or '0'
if last ~= ARGV[1] then return last end
local overlays = tonumber(ARGV[7])
redis.call('HDEL', KEYS[1], unpack(ARGV, 8, 7 + overlays))
redis.call('HSET', KEYS[1], unpack(ARGV, 8 + overlays))
local time = redis.call('TIME')
local seen = tonumber(redis.call('HGET', KEYS[1], 'Fence') or '0')
local fence = math.max(redis.call('INCR', KEYS[8]), seen + 1, time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('SET', KEYS[8], fence)
redis.call('HSET', KEYS[1], 'Fence', fence, 'PutId', ARGV[6])
redis.call('DEL', KEYS[2])
redis.call('ZADD', KEYS[3], ARGV[3], ARGV[2])
redis.call('ZADD', KEYS[9], ARGV[4], ARGV[2])
redis.call('SREM', KEYS[4], ARGV[2])
redis.call('ZADD', KEYS[6], 0, ARGV[2])
redis.call('HDEL', KEYS[7], ARGV[2])
redis.call('XADD', KEYS[5], '*', 'entry', ARGV[5])
return 'stored'
`

// KEYS: credential, lease, due, faulted, outbox, expiry.
// ARGV: holder, fence, version, name, next try (ms or ''), next try (ISO or ''), attempts, keeps intent, fault,
//       journal entry, whether the grant is rejected
const settle = `
local now = redis.call('HMGET', KEYS[1], 'Fence', 'Version')
if now[1] ~= ARGV[2] or now[2] ~= ARGV[3] then return 'lost' end
redis.call('HSET', KEYS[1], 'Attempts', ARGV[7], 'NextTryAt', ARGV[6])
if ARGV[8] == '0' then redis.call('HDEL', KEYS[1], 'Intent') end
if ARGV[5] == '' then redis.call('ZREM', KEYS[3], ARGV[4]) else redis.call('ZADD', KEYS[3], ARGV[5], ARGV[4]) end
if ARGV[5] == '' or ARGV[11] == '1' then redis.call('ZREM', KEYS[6], ARGV[4]) end
if ARGV[9] ~= '' then
  redis.call('HSET', KEYS[1], 'Fault', ARGV[9], 'Status', 'faulted')
  redis.call('SADD', KEYS[4], ARGV[4])
end
redis.call('XADD', KEYS[5], '*', 'entry', ARGV[10])
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
return 'settled'
`

// KEYS: credential, lease, due, faulted, outbox, names, removed, expiry. ARGV: version, name, journal entry.
const remove = `
local version = redis.call('HGET', KEYS[1], 'Version')
if not version then return 'absent' end
if version ~= ARGV[1] then return 'changed' end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[2])
redis.call('ZREM', KEYS[8], ARGV[2])
redis.call('SREM', KEYS[4], ARGV[2])
redis.call('ZREM', KEYS[6], ARGV[2])
redis.call('HSET', KEYS[7], ARGV[2], version)
redis.call('XADD', KEYS[5], '*', 'entry', ARGV[3])
return 'removed'
`

// KEYS: due. ARGV: now, limit, held until.
const takeDue = `
local names = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, name in ipairs(names) do redis.call('ZADD', KEYS[1], ARGV[3], name) end
return {names, redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or ''}
`

// KEYS: relay lease, outbox, audit head. ARGV: owner, lease ms, limit.
const readOutbox = `
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return false end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local audited = redis.call('HGET', KEYS[3], 'UpTo')
if not audited then return {} end
return redis.call('XRANGE', KEYS[2], '-', audited, 'COUNT', ARGV[3])
`

// Compare-and-set on the head, so that two replicas that audit at once make one chain.
// KEYS: audit head, audit log. ARGV: hash of the head ('' before the first), seq, hash, up to, kept, entries…
const appendAudit = `
if (redis.call('HGET', KEYS[1], 'Hash') or '') ~= ARGV[1] then return 0 end
local first = tonumber(ARGV[2]) - (#ARGV - 5)
for index = 6, #ARGV do
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], (first + index - 5) .. '-0', 'entry', ARGV[index])
end
redis.call('HSET', KEYS[1], 'Seq', ARGV[2], 'Hash', ARGV[3], 'UpTo', ARGV[4])
return 1
`

// KEYS: credential. ARGV: version, then field, sealed before, sealed now…
const reseal = `
if redis.call('HGET', KEYS[1], 'Version') ~= ARGV[1] then return 'changed' end
for index = 2, #ARGV, 3 do
  if redis.call('HGET', KEYS[1], ARGV[index]) ~= ARGV[index + 1] then return 'changed' end
end
for index = 2, #ARGV, 3 do redis.call('HSET', KEYS[1], ARGV[index], ARGV[index + 2]) end
return 'resealed'
`

// KEYS: mark of this record, outbox. ARGV: ms that the mark is kept, journal entry.
const record = `
if redis.call('SET', KEYS[1], '', 'NX', 'PX', ARGV[1]) then redis.call('XADD', KEYS[2], '*', 'entry', ARGV[2]) end
return 'recorded'
`

const scripts = {
  acquire: { keys: 3, lua: acquire },
  renew: { keys: 1, lua: renew },
  release: { keys: 1, lua: release },
  recordIntent: { keys: 2, lua: recordIntent },
  commit: { keys: 6, lua: commit },
  put: { keys: 9, lua: put },
  settle: { keys: 6, lua: settle },
  remove: { keys: 8, lua: remove },
  takeDue: { keys: 1, lua: takeDue },
  readOutbox: { keys: 3, lua: readOutbox },
  record: { keys: 2, lua: record },
  appendAudit: { keys: 2, lua: appendAudit },
  reseal: { keys: 1, lua: reseal },
} as const

export type ScriptName = keyof typeof scripts
export type RunScript = (
  name: ScriptName,
  keys: readonly string[],
  args: readonly (string | number)[],
) => Promise<unknown>

/** Makes the scripts known to a connection (sent once, called by digest). */
export function defineScripts(redis: Redis): RunScript {
  for (const [name, { keys, lua }] of Object.entries(scripts)) {
    redis.defineCommand(`credential:${name}`, { numberOfKeys: keys, lua })
  }
  // What defineCommand adds is not in the type of the connection.
  const commands = redis as unknown as Record<
    string,
    (...args: (string | number)[]) => Promise<unknown>
  >
  return async (name, keys, args) => commands[`credential:${name}`]?.(...keys, ...args)
}
