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

export const outboxScripts = { readOutbox, appendAudit, record }
