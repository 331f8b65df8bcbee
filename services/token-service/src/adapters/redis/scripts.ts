/**
 * The writes of the credential store as Lua scripts, each of which Redis executes atomically. The port,
 * credential/credential-store.ts, specifies what each script does.
 *
 * A script declares the names of its keys. It gets the keys as the table `K`, and through KEYS, so that the driver can
 * add a key prefix. Its arguments are one JSON object, which Lua reads as the table `a`:
 *
 * - Numbers are passed as text, because cjson decodes every number to a double, and Lua converts doubles from 1e14 on
 *   to text with an exponent. Versions and fencing tokens are also compared with stored text.
 * - An absent value is left out of the object and is `nil` in Lua. A `null` would become `cjson.null`, which counts as
 *   true in a condition.
 * - An outbox entry is passed as JSON text and stored without being decoded, because cjson would encode an empty
 *   array as an empty object.
 *
 * `commit` and `put` must succeed when Redis has reached `maxmemory`, because the provider has already rotated the
 * token and the new token pair is stored nowhere else. With the policy `noeviction` Redis rejects commands that need
 * memory (OOM). Redis makes an exception for a script that has already executed a write command, because aborting the
 * script would leave its writes incomplete. So the first write of both scripts is HDEL, which needs no memory and is
 * never rejected. HDEL must stay the first write; out-of-memory.integration.test.ts fails otherwise.
 *
 * WAIT covers only writes of its own connection (replicated-writes.ts). So the scripts that `replicated` runs
 * (commands.ts) execute a write command on every path whose outcome is final for the caller. If nothing has to change,
 * the script writes a stored value once more with HSET. `commit` does this also when it reports a newer version or no
 * credential, because at a primary that was cut off this state may be lost in the failover.
 */
import type { Redis } from 'ioredis'
import { define } from './define-script.ts'
import { INDEX_LABELS, LIST_STATE, listScripts } from './list-scripts.ts'

/** The arguments of a script in addition to its keys: strings, booleans and lists. */
export type ScriptArguments = Readonly<
  Record<string, string | boolean | readonly string[] | readonly string[][] | undefined>
>

/** Lua: sets `ms` to the epoch milliseconds of the Redis server. */
const NOW_MS = `
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
`

/**
 * Lua: sets `fence` to the next fencing token, which is greater than every earlier token of this credential. The token
 * is also at least the server's time. A failover may lose the newest tokens together with their leases, and a new lease
 * must not get the token of a lost lease.
 */
const NEXT_FENCE = `${NOW_MS}
local last = tonumber(redis.call('HGET', K.credential, 'Fence') or '0')
local fence = math.max(redis.call('INCR', K.fence), last + 1, ms)
redis.call('SET', K.fence, fence)
`

/**
 * Lua: sets `server` to the run id of this Redis server; it is empty if the Redis account may not run INFO. Every server
 * has its own run id, and a restarted server has a new one. Sets `changedAt` to the epoch milliseconds, by the clock of
 * this server, at which a script first ran on it; it is `false` if scripts never ran on an earlier server. `ms` must be
 * set.
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
  -- A new primary without replicas may reject writes. The next call stores the change then.
  redis.pcall('HSET', K.server, unpack(change))
end
`

/** Lua: deletes the lease if the caller still holds it. */
const RELEASE_OWN_LEASE = `
if redis.call('GET', K.lease) == a.holder then redis.call('DEL', K.lease) end
`

/**
 * Lua: removes fault, intent and retry time of the previous token pair, and stores the new pair. HDEL must be the first
 * write of the script; the comment at the top of this file gives the reason.
 */
const REPLACE_PAIR = `
redis.call('HDEL', K.credential, unpack(a.overlayFields))
redis.call('HSET', K.credential, unpack(a.fields))
`

/** Lua: a condition that is true if the stored labels differ from the labels that the caller has read. */
const HAS_OTHER_LABELS = `
if a.lastLabels and (redis.call('HGET', K.credential, 'Labels') or '') ~= a.lastLabels`

/**
 * Lua: adds an outbox entry. Its events get the labels that are stored when the script runs (outbox.ts), because labels
 * may have changed since the caller read the record.
 */
const ADD_ENTRY = `
redis.call('XADD', K.outbox, '*', 'entry', a.entry,
  'labels', redis.call('HGET', K.credential, 'Labels') or '')
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

/**
 * Stores the intent with the run id of the server. So a later call on another server detects the failover, even if the
 * calling process has just started or the clocks of the servers differ. If this server stored the intent, but another
 * server was the primary in between, the time of the intent is before `changedAt`, and both times are from the clock of
 * this server. An intent without a run id, which an earlier release has stored, counts as stored after the failover.
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

// Restores the intent that was stored before `recordIntent` was called. A request may have been sent under that earlier
// intent, so it must not be lost. Also releases the lease, because the refresh has failed.
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

/**
 * `CommitFence` is the fence of the lease whose commit stored the version. If no replica acknowledged a commit, the
 * caller repeats it, and must recognize its own pair in the store. `Fence` cannot show this, because another process
 * may have acquired and released the lease in between. A caller that mistook its own pair for a newer pair would drop
 * the only copy that survives a failover.
 */
const commit = define(
  ['credential', 'lease', 'due', 'faulted', 'outbox', 'expiry', 'index'],
  `
local now = redis.call('HMGET', K.credential, 'Fence', 'Version', 'CommitFence')
if not now[2] then
  -- There is no stored value to write again, so the script writes a lease that expires at once.
  redis.call('SET', K.lease, a.holder, 'PX', 1)
  return 'superseded'
end
if now[2] == a.newVersion and now[3] == a.fence then
  redis.call('HSET', K.credential, 'CommitFence', a.fence)
  return 'committed'
end
if tonumber(now[2]) > tonumber(a.version) then
  redis.call('HSET', K.credential, 'Version', now[2])
  return 'superseded'
end
if now[2] ~= a.version or now[1] ~= a.fence then return 'fenced' end
${REPLACE_PAIR}
redis.call('HSET', K.credential, 'CommitFence', a.fence)
redis.call('ZADD', K.due, a.dueAt, a.name)
redis.call('ZADD', K.expiry, a.expiresAt, a.name)
redis.call('SREM', K.faulted, a.name)
${LIST_STATE}
${ADD_ENTRY}
${RELEASE_OWN_LEASE}
return 'committed'
`,
)

const put = define(
  [
    'credential',
    'lease',
    'due',
    'faulted',
    'outbox',
    'names',
    'removed',
    'fence',
    'expiry',
    'index',
  ],
  `
if a.putId ~= '' and redis.call('HGET', K.credential, 'PutId') == a.putId then
  redis.call('HSET', K.credential, 'PutId', a.putId)
  return 'stored before'
end
local version = redis.call('HGET', K.credential, 'Version') or redis.call('HGET', K.removed, a.name) or '0'
if version ~= a.lastVersion then return version end
${HAS_OTHER_LABELS} then return 'labelled' end
${REPLACE_PAIR}
${NEXT_FENCE}
redis.call('HSET', K.credential, 'Fence', fence, 'PutId', a.putId)
redis.call('DEL', K.lease)
redis.call('ZADD', K.due, a.dueAt, a.name)
redis.call('ZADD', K.expiry, a.expiresAt, a.name)
redis.call('SREM', K.faulted, a.name)
redis.call('ZADD', K.names, 0, a.name)
redis.call('HDEL', K.removed, a.name)
${LIST_STATE}
${INDEX_LABELS}
${ADD_ENTRY}
return 'stored'
`,
)

const settle = define(
  ['credential', 'lease', 'due', 'faulted', 'outbox', 'expiry', 'index'],
  `
local now = redis.call('HMGET', K.credential, 'Fence', 'Version')
if now[1] ~= a.fence or now[2] ~= a.version then return 'lost' end
redis.call('HSET', K.credential, 'Attempts', a.attempts, 'NextTryAt', a.nextTryAt or '')
if not a.keepsIntent then redis.call('HDEL', K.credential, 'Intent') end
if a.dueAt then redis.call('ZADD', K.due, a.dueAt, a.name) else redis.call('ZREM', K.due, a.name) end
if not a.dueAt or a.isGrantRejected then redis.call('ZREM', K.expiry, a.name) end
if a.faultFields then
  redis.call('HSET', K.credential, unpack(a.faultFields))
  redis.call('SADD', K.faulted, a.name)
  ${LIST_STATE}
end
${ADD_ENTRY}
${RELEASE_OWN_LEASE}
return 'settled'
`,
)

const label = define(
  ['credential', 'outbox', 'index'],
  `
if redis.call('HGET', K.credential, 'Version') ~= a.version then return 'moved' end
${HAS_OTHER_LABELS} then return 'moved' end
redis.call('HSET', K.credential, unpack(a.fields))
${INDEX_LABELS}
${ADD_ENTRY}
return 'labelled'
`,
)

const remove = define(
  ['credential', 'lease', 'due', 'faulted', 'outbox', 'names', 'removed', 'expiry', 'index'],
  `
local version = redis.call('HGET', K.credential, 'Version')
if not version then return 'absent' end
if version ~= a.version then return 'changed' end
${HAS_OTHER_LABELS} then return 'changed' end
${LIST_STATE}
${INDEX_LABELS}
${ADD_ENTRY}
redis.call('DEL', K.credential, K.lease)
redis.call('ZREM', K.due, a.name)
redis.call('ZREM', K.expiry, a.name)
redis.call('SREM', K.faulted, a.name)
redis.call('ZREM', K.names, a.name)
redis.call('HSET', K.removed, a.name, version)
return 'removed'
`,
)

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

const takeDue = define(
  ['due'],
  `
local names = redis.call('ZRANGEBYSCORE', K.due, '-inf', a.now, 'LIMIT', 0, a.limit)
for _, name in ipairs(names) do redis.call('ZADD', K.due, a.postponedUntil, name) end
return {names, redis.call('ZRANGE', K.due, 0, 0, 'WITHSCORES')[2] or ''}
`,
)

const readOutbox = define(
  ['relayLease', 'outbox', 'auditHead'],
  `
local holder = redis.call('GET', K.relayLease)
if holder and holder ~= a.owner then return false end
redis.call('SET', K.relayLease, a.owner, 'PX', a.leaseMs)
local audited = redis.call('HGET', K.auditHead, 'UpTo')
if not audited then return {} end
return redis.call('XRANGE', K.outbox, '-', audited, 'COUNT', a.limit)
`,
)

// Appends entries to the audit log after comparing the hash of the newest audit entry. So two replicas that append
// concurrently build a single hash chain.
const appendAudit = define(
  ['auditHead', 'auditLog'],
  `
if (redis.call('HGET', K.auditHead, 'Hash') or '') ~= a.previousHash then return 0 end
local first = tonumber(a.seq) - #a.entries
for index, entry in ipairs(a.entries) do
  redis.call('XADD', K.auditLog, 'MAXLEN', '~', a.maxEntries, string.format('%.0f-0', first + index), 'entry', entry)
end
redis.call('HSET', K.auditHead, 'Seq', a.seq, 'Hash', a.hash, 'UpTo', a.upTo)
return 1
`,
)

// Re-encrypts fields of a record. `changes` is a flat list with three elements for each field: its name, the envelope
// that was read, and the new envelope.
const reseal = define(
  ['credential'],
  `
if redis.call('HGET', K.credential, 'Version') ~= a.version then return 'changed' end
for index = 1, #a.changes, 3 do
  if (redis.call('HGET', K.credential, a.changes[index]) or '') ~= a.changes[index + 1] then return 'changed' end
end
for index = 1, #a.changes, 3 do redis.call('HSET', K.credential, a.changes[index], a.changes[index + 2]) end
return 'resealed'
`,
)

// A key marks the call as executed. It prevents a second outbox entry when a caller repeats the call because the reply
// was lost.
const record = define(
  ['recordedMarker', 'outbox'],
  `
if redis.call('SET', K.recordedMarker, '', 'NX', 'PX', a.markerMs) then
  redis.call('XADD', K.outbox, '*', 'entry', a.entry)
end
return 'recorded'
`,
)

const scripts = {
  acquire,
  renew,
  release,
  recordIntent,
  observeServer,
  withdrawIntent,
  commit,
  put,
  settle,
  label,
  remove,
  claimAdoption,
  endAdoption,
  ...listScripts,
  takeDue,
  readOutbox,
  record,
  appendAudit,
  reseal,
}

export type ScriptName = keyof typeof scripts
/** The names of a script's keys. */
export type KeyOf<Name extends ScriptName> = (typeof scripts)[Name]['keys'][number]
export type RunScript = <Name extends ScriptName>(
  name: Name,
  keys: Readonly<Record<KeyOf<Name>, string>>,
  args: ScriptArguments,
) => Promise<unknown>

/** Registers the scripts with a connection. The driver sends each script once and then calls it by its digest. */
export function defineScripts(redis: Redis): RunScript {
  for (const [name, { keys, lua }] of Object.entries(scripts)) {
    redis.defineCommand(`credential:${name}`, { numberOfKeys: keys.length, lua })
  }
  // The connection's type does not include the commands that defineCommand adds.
  const commands = redis as unknown as Record<string, (...args: string[]) => Promise<unknown>>
  return async (name, keys, args) => {
    const named: Readonly<Record<string, string>> = keys
    const inOrder = scripts[name].keys.map((key) => named[key] ?? '')
    return commands[`credential:${name}`]?.(...inOrder, encoded(args))
  }
}

/**
 * Encodes the arguments of a script as JSON. Replaces unpaired surrogates, which an import may contain, because cjson
 * fails on them.
 */
const encoded = (args: ScriptArguments): string =>
  JSON.stringify(args, (_, value: unknown) =>
    typeof value === 'string' ? value.toWellFormed() : value,
  )
