/**
 * The Lua scripts for the intent, which is stored before a refresh token is sent. The scripts detect a failover that
 * may have lost an intent.
 */
import { define } from './define-script.ts'
import { NOW_MS, RELEASE_OWN_LEASE } from './lease-scripts.ts'

/**
 * Lua: sets the variables `server` and `changedAt`. The variable `ms` must be set (NOW_MS).
 *
 * `server` is the run id of this Redis server; empty if the Redis account may not run INFO. Every server has its own
 * run id, and a restarted server has a new one. `changedAt` is the time at which a script first ran on this server, in
 * epoch milliseconds by the clock of this server; `false` if scripts never ran on another server.
 */
const OBSERVE_SERVER = `
local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
local observed = redis.call('HMGET', K.server, 'RunId', 'ChangedAt')
local changedAt = observed[2]
if server ~= '' and observed[1] ~= server then
  local change = {'RunId', server}
  if observed[1] then
    changedAt = string.format('%.0f', ms)
    change = {'RunId', server, 'ChangedAt', changedAt}
  end
  -- A new primary without replicas may reject this write. The next call then finds the change again and stores it.
  redis.pcall('HSET', K.server, unpack(change))
end
`

/**
 * Stores the intent with the run id of the server. A later call on another server thus detects the failover, even if
 * the calling process has just started or the clocks of the servers differ.
 *
 * Two failovers may lead back to the server that stored the intent. The run ids are then equal, but the time of the
 * intent is before `changedAt`. Both times are from the clock of this server. An intent without a run id was stored by
 * an earlier release, or while the Redis account could not run INFO. Such an intent counts as stored after the last
 * failover, so it is replaced at once.
 */
const recordIntent = define(
  ['credential', 'lease', 'server'],
  `
if redis.call('GET', K.lease) ~= a.holder then return {'lost'} end
local now = redis.call('HMGET', K.credential, 'Fence', 'Version', 'Intent')
if now[1] ~= a.fence or now[2] ~= a.version then return {'lost'} end
${NOW_MS}
${OBSERVE_SERVER}
local previous = now[3] or ''
local version, fence, at, place = string.match(previous, '^(%d+):(%d+):(%d+):(%w+)$')
if version == a.version and fence ~= a.fence and server ~= '' and changedAt then
  local isEarlier = place ~= server or tonumber(at) < tonumber(changedAt)
  local left = changedAt + a.deferralMs - ms
  -- If the clock of this server was set back, the age of the failover is unknown.
  if isEarlier and ms >= tonumber(changedAt) and left > 0 then return {'deferred', left} end
end
local intent = {a.version, a.fence, string.format('%.0f', ms), server}
redis.call('HSET', K.credential, 'Intent', table.concat(intent, ':'))
return {'recorded', previous}
`,
)

const observeServer = define(
  ['server'],
  `
${NOW_MS}
${OBSERVE_SERVER}
return changedAt
`,
)

// Restores the intent that was stored before `recordIntent` was called. The earlier intent must not be lost, because
// its process may have sent the refresh token. Also releases the lease, because the refresh has failed.
const withdrawIntent = define(
  ['credential', 'lease'],
  `
local own = a.version .. ':' .. a.fence .. ':'
local intent = redis.call('HGET', K.credential, 'Intent') or ''
if string.sub(intent, 1, #own) == own then
  if a.previous == '' then redis.call('HDEL', K.credential, 'Intent')
  else redis.call('HSET', K.credential, 'Intent', a.previous) end
end
${RELEASE_OWN_LEASE}
`,
)

export const intentScripts = { recordIntent, observeServer, withdrawIntent }
