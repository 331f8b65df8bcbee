/**
 * The Lua scripts that change the record of a credential. They also update the list index, the schedule and the outbox.
 */
import { define } from './commands.ts'
import { NEXT_FENCE, RELEASE_OWN_LEASE } from './credential-leases.ts'
import { INDEX_LABELS, LIST_STATE } from './list-index.ts'
import { ADD_ENTRY } from './outbox.ts'

/**
 * Lua: removes the fault, the intent and the retry time of the previous token pair, and stores the new pair. HDEL must
 * be the first write of the script (see the comment at the top of commands.ts).
 */
const REPLACE_PAIR = `
redis.call('HDEL', K.credential, unpack(a.overlayFields))
redis.call('HSET', K.credential, unpack(a.fields))
`

/** Lua: a condition that is true if the stored labels differ from the labels that the caller has read. */
const HAS_OTHER_LABELS = `
if a.lastLabels and (redis.call('HGET', K.credential, 'Labels') or '') ~= a.lastLabels`

/**
 * `CommitFence` is the fence of the lease under which the version was committed. If too few replicas acknowledge a
 * commit, the caller repeats the commit. The caller must then recognize its own token pair in the store. Otherwise it
 * would consider this pair the newer pair of another process, and would drop its copy in memory, which may be the only
 * copy that survives a failover. `Fence` does not identify the pair, because another process may have acquired and
 * released the lease in the meantime.
 */
const commit = define(
  'commit',
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
  'put',
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
  'settle',
  ['credential', 'lease', 'due', 'faulted', 'outbox', 'expiry', 'index'],
  `
local now = redis.call('HMGET', K.credential, 'Fence', 'Version')
if now[1] ~= a.fence or now[2] ~= a.version then return 'lost' end
redis.call('HSET', K.credential, 'Attempts', a.attempts, 'NextTryAt', a.nextTryAt or '')
if not a.keepsIntent then redis.call('HDEL', K.credential, 'Intent') end
if a.dueAt then redis.call('ZADD', K.due, a.dueAt, a.name) else redis.call('ZREM', K.due, a.name) end
if not a.dueAt or a.hasEndedGrant then redis.call('ZREM', K.expiry, a.name) end
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
  'label',
  ['credential', 'index'],
  `
if redis.call('HGET', K.credential, 'Version') ~= a.version then return 'moved' end
${HAS_OTHER_LABELS} then return 'moved' end
redis.call('HSET', K.credential, unpack(a.fields))
${INDEX_LABELS}
return 'labelled'
`,
)

const remove = define(
  'remove',
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

// Re-encrypts fields of a record. `changes` is a flat list with three elements for each field: its name, the envelope
// that was read, and the new envelope.
const reseal = define(
  'reseal',
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

const takeDue = define(
  'takeDue',
  ['due'],
  `
local names = redis.call('ZRANGEBYSCORE', K.due, '-inf', a.now, 'LIMIT', 0, a.limit)
for _, name in ipairs(names) do redis.call('ZADD', K.due, a.postponedUntil, name) end
return {names, redis.call('ZRANGE', K.due, 0, 0, 'WITHSCORES')[2] or ''}
`,
)

export const recordScripts = { commit, put, settle, label, remove, reseal, takeDue }
