/**
 * Lua scripts, and fragments of scripts, for the lease of a credential (refresh.ts) and the claim of an adoption
 * (adoption.ts). The lease and the claim decide which process may use a refresh token.
 */
import { define } from './define-script.ts'

/** Lua: sets `ms` to the epoch milliseconds of the Redis server. */
export const NOW_MS = `
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
`

/**
 * Lua: sets `fence` to the next fencing token, which is greater than every earlier token of this credential. A failover
 * may lose the newest tokens together with their leases. The next token is therefore at least the server's time in
 * epoch milliseconds, so that a new lease cannot get the token of a lost lease.
 */
export const NEXT_FENCE = `${NOW_MS}
local last = tonumber(redis.call('HGET', K.credential, 'Fence') or '0')
local fence = math.max(redis.call('INCR', K.fence), last + 1, ms)
redis.call('SET', K.fence, fence)
`

/** Lua: deletes the lease if the caller still holds it. */
export const RELEASE_OWN_LEASE = `
if redis.call('GET', K.lease) == a.holder then redis.call('DEL', K.lease) end
`

const acquire = define(
  ['credential', 'lease', 'fence', 'removed'],
  `
if redis.call('EXISTS', K.credential) == 0 then
  return {'absent', redis.call('HGET', K.removed, a.name) or ''}
end
if redis.call('EXISTS', K.lease) == 1 then return {'busy'} end
${NEXT_FENCE}
redis.call('SET', K.lease, a.owner .. ':' .. string.format('%.0f', fence), 'PX', a.leaseMs)
redis.call('HSET', K.credential, 'Fence', fence)
return {'acquired', fence, ms, redis.call('HGETALL', K.credential)}
`,
)

const renew = define(
  ['lease'],
  `
if redis.call('GET', K.lease) ~= a.holder then return 0 end
return redis.call('PEXPIRE', K.lease, a.leaseMs)
`,
)

const release = define(['lease'], RELEASE_OWN_LEASE)

// The claim of another process is respected until the request of that process can no longer be in flight.
const claimAdoption = define(
  ['adoption'],
  `
local own = a.owner .. ' ' .. a.id
local claim = redis.call('GET', K.adoption) or ''
local at, holder = string.match(claim, '^(%d+) (.*)$')
${NOW_MS}
if holder and holder ~= own and ms - tonumber(at) < tonumber(a.holdMs) then
  return {'busy', tonumber(a.holdMs) - (ms - tonumber(at))}
end
redis.call('SET', K.adoption, string.format('%.0f', ms) .. ' ' .. own, 'PX', a.keepMs)
return {'claimed', claim}
`,
)

const endAdoption = define(
  ['adoption'],
  `
local holder = string.match(redis.call('GET', K.adoption) or '', '^%d+ (.*)$')
if holder == a.owner .. ' ' .. a.id then redis.call('DEL', K.adoption) end
`,
)

export const leaseScripts = { acquire, renew, release, claimAdoption, endAdoption }
