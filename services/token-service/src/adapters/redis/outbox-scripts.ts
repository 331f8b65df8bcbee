/** Lua scripts, and a fragment of scripts, for the outbox and the audit log (outbox.ts). */
import { define } from './define-script.ts'

/**
 * Lua: adds an outbox entry. Its events get the labels that are stored when the script runs (outbox.ts), because the
 * labels may have changed since the caller read the record.
 */
export const ADD_ENTRY = `
redis.call('XADD', K.outbox, '*', 'entry', a.entry,
  'labels', redis.call('HGET', K.credential, 'Labels') or '')
`

/**
 * Lua: copies the entries of weight. Entries that were copied before are skipped: `Kept` is lost together with the key
 * that has the newest hash.
 */
const KEEP = `
local newest = redis.call('XREVRANGE', K.auditKept, '+', '-', 'COUNT', 1)[1]
local copied = newest and tonumber(string.match(newest[1], '^%d+')) or 0
for index, entry in ipairs(a.kept) do
  if tonumber(a.keptSeqs[index]) > copied then
    redis.call('XADD', K.auditKept, a.keptSeqs[index] .. '-0', 'entry', entry)
  end
end
`

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

// Appends entries to the audit log if the newest entry still has the expected hash. Two replicas that append
// concurrently therefore build a single hash chain.
const appendAudit = define(
  ['auditHead', 'auditLog', 'auditKept'],
  `
if (redis.call('HGET', K.auditHead, 'Hash') or '') ~= a.previousHash then return 0 end
local first = tonumber(a.seq) - #a.entries
for index, entry in ipairs(a.entries) do
  redis.call('XADD', K.auditLog, 'MAXLEN', '~', a.maxEntries, string.format('%.0f-0', first + index), 'entry', entry)
end
redis.call('HSET', K.auditHead, 'Seq', a.seq, 'Hash', a.hash, 'UpTo', a.upTo)
-- If entries before these were not copied yet, these are copied together with them (keepAudit).
if tonumber(redis.call('HGET', K.auditHead, 'Kept') or '0') == first then
  ${KEEP}
  redis.call('HSET', K.auditHead, 'Kept', a.seq)
end
return 1
`,
)

// Copies the entries of weight that replicas of an earlier release have appended.
const keepAudit = define(
  ['auditHead', 'auditKept'],
  `
if (redis.call('HGET', K.auditHead, 'Kept') or '0') ~= a.from then return 0 end
${KEEP}
redis.call('HSET', K.auditHead, 'Kept', a.upTo)
return 1
`,
)

// The key `recordedMarker` records that the call was executed. If the caller repeats the call after a lost reply, no
// second outbox entry is added.
const record = define(
  ['recordedMarker', 'outbox'],
  `
if redis.call('SET', K.recordedMarker, '', 'NX', 'PX', a.markerMs) then
  redis.call('XADD', K.outbox, '*', 'entry', a.entry)
end
return 'recorded'
`,
)

const takeActions = define(
  ['actions'],
  `
local used = tonumber(redis.call('GET', K.actions) or '0')
if used + tonumber(a.count) > tonumber(a.limit) then return 0 end
redis.call('SET', K.actions, string.format('%.0f', used + tonumber(a.count)), 'EX', 172800)
return 1
`,
)

const claimAuditSink = define(
  ['lease', 'position'],
  `
local holder = redis.call('GET', K.lease)
if holder and holder ~= a.owner then return false end
redis.call('SET', K.lease, a.owner, 'PX', a.leaseMs)
return redis.call('GET', K.position) or ''
`,
)

const advanceAuditSink = define(
  ['lease', 'position'],
  `
if redis.call('GET', K.lease) == a.owner then redis.call('SET', K.position, a.position) end
`,
)

export const outboxScripts = {
  readOutbox,
  appendAudit,
  keepAudit,
  record,
  takeActions,
  claimAuditSink,
  advanceAuditSink,
}
