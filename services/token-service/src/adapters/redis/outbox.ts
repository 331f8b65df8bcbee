/** The outbox and the audit log of the credential store, each a stream in Redis. */
import { randomUUID } from 'node:crypto'
import type { ChainableCommander } from 'ioredis'
import {
  AuditEntry,
  type AuditFact,
  AuditHead,
  auditStart,
  chain,
} from '@integration-host/shared/contracts/audit'
import { OWN_TEXT, parseJsonAs } from '@integration-host/shared/json'
import { hasWeight, KEPT_MS } from '../../credential/audit-retention.ts'
import type { OutboxStore } from '../../credential/credential-store.ts'
import { parseLabels } from '../../credential/labels.ts'
import { OutboxEntry, withLabels } from '../../credential/outbox.ts'
import { define, type StoreCommands } from './commands.ts'
import { release } from './credential-leases.ts'
import { KEYS, sinkKeysOf } from './key-names.ts'

/**
 * The number of audit entries after which a batch ends. A batch may be longer, because all audit entries of one outbox
 * entry are written in the same call.
 */
const FACTS_PER_CALL = 10_000
/** How long `record` recognizes a repeated call, in milliseconds. A caller repeats a call if its reply was lost. */
const MARKER_MS = 600_000

/**
 * Lua: adds an outbox entry. Its events get the labels that are stored when the script runs, because the
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
  'readOutbox',
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
  'appendAudit',
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
  'keepAudit',
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
  'record',
  ['recordedMarker', 'outbox'],
  `
if redis.call('SET', K.recordedMarker, '', 'NX', 'PX', a.markerMs) then
  redis.call('XADD', K.outbox, '*', 'entry', a.entry)
end
return 'recorded'
`,
)

const takeActions = define(
  'takeActions',
  ['actions'],
  `
local used = tonumber(redis.call('GET', K.actions) or '0')
if used + tonumber(a.count) > tonumber(a.limit) then return 0 end
redis.call('SET', K.actions, string.format('%.0f', used + tonumber(a.count)), 'EX', 172800)
return 1
`,
)

const claimAuditSink = define(
  'claimAuditSink',
  ['lease', 'position'],
  `
local holder = redis.call('GET', K.lease)
if holder and holder ~= a.owner then return false end
redis.call('SET', K.lease, a.owner, 'PX', a.leaseMs)
return redis.call('GET', K.position) or ''
`,
)

const advanceAuditSink = define(
  'advanceAuditSink',
  ['lease', 'position'],
  `
if redis.call('GET', K.lease) == a.owner then redis.call('SET', K.position, a.position) end
`,
)

/**
 * Returns the store methods for the outbox and the audit log. `auditEntries` is the approximate number of newest audit
 * entries that are kept.
 */
export function createRedisOutbox(commands: StoreCommands, auditEntries: number): OutboxStore {
  const { redis, using, script, replicated } = commands

  /**
   * Returns the number and the hash of the newest audit entry. Reads them from the audit log instead of from the key
   * that also stores them, because that key may have been lost.
   */
  async function newestEntry(): Promise<AuditHead> {
    const [newest] = await using(() => redis.xrevrange(KEYS.auditLog, '+', '-', 'COUNT', 1))
    return newest === undefined ? auditStart : AuditHead.parse(JSON.parse(newest[1][1] ?? ''))
  }

  /** Reads audit entries with `command`. Also reads the number and the hash of the newest entry of the audit log. */
  async function auditPage(command: ChainableCommander) {
    const [entries, head] = (await commands.pipelined(
      command.hmget(KEYS.auditHead, 'Seq', 'Hash'),
    )) as [StreamEntry[], [string | null, string | null]]
    return {
      items: entries.map(([, pairs]) => AuditEntry.parse(JSON.parse(pairs[1] ?? ''))),
      head: head[1] === null ? auditStart : { Seq: Number(head[0]), Hash: head[1] },
    }
  }

  /** Returns the arguments with which a script copies the entries of weight. */
  const keptOf = (entries: readonly AuditEntry[]) => {
    const kept = entries.filter(hasWeight)
    return {
      kept: kept.map((entry) => JSON.stringify(entry)),
      keptSeqs: kept.map(({ Seq }) => String(Seq)),
    }
  }

  /**
   * Copies the entries of weight between `from` and the newest entry `upTo`. Replicas of an earlier release have
   * appended these entries, or this process runs on their store for the first time.
   */
  async function catchUp(from: number, upTo: number): Promise<void> {
    for (let last = from; last < upTo;) {
      const page = await auditPage(
        redis.pipeline().xrange(KEYS.auditLog, `${last + 1}-0`, `${upTo}-0`, 'COUNT', 1_000),
      )
      const next = page.items.at(-1)?.Seq ?? upTo
      const args = { from: String(last), upTo: String(next), ...keptOf(page.items) }
      // Another replica has copied them meanwhile; the next call continues.
      if ((await script(keepAudit, KEYS, args)) === 0) return
      last = next
    }
  }

  /**
   * Removes entries of weight that are older than `KEPT_MS`, at most a batch for each call, and never one of the newest
   * `auditEntries`.
   */
  async function trimKept(now: number): Promise<void> {
    const extra = (await using(() => redis.xlen(KEYS.auditKept))) - auditEntries
    if (extra <= 0) return
    const oldest = (await using(() =>
      redis.xrange(KEYS.auditKept, '-', '+', 'COUNT', Math.min(extra, 1_000)),
    )) as StreamEntry[]
    const expired = oldest.filter(
      ([, pairs]) => Date.parse(AuditEntry.parse(JSON.parse(pairs[1] ?? '')).At) < now - KEPT_MS,
    )
    if (expired.length > 0)
      await using(() => redis.xdel(KEYS.auditKept, ...expired.map(([id]) => id)))
  }

  return {
    async readOutbox(owner, leaseMs, limit) {
      const args = { owner, leaseMs: String(leaseMs), limit: String(limit) }
      // Outbox entries are published only after Redis replicas have acknowledged them. Otherwise a failover could undo
      // a change that was already published.
      const entries = (await replicated(readOutbox, KEYS, args)) as StreamEntry[] | null
      return entries === null
        ? null
        : entries.map(([id, pairs]) => ({ id, events: parseOutboxEntry(pairs)?.events ?? [] }))
    },

    async releaseOutbox(relayOwner) {
      await script(release, { lease: KEYS.relayLease }, { holder: relayOwner })
    },

    async trimOutbox(ids) {
      if (ids.length > 0) await using(() => redis.xdel(KEYS.outbox, ...ids))
    },

    async record(facts, id = randomUUID()) {
      const entry: OutboxEntry = { facts, events: [] }
      const recordKeys = { outbox: KEYS.outbox, recordedMarker: `recorded:${id}` }
      const args = { markerMs: String(MARKER_MS), entry: JSON.stringify(entry) }
      await script(record, recordKeys, args)
    },

    async takeActions(keyId, day, count, limit) {
      const actionKeys = { actions: `credentials:actions:${day}:${keyId}` }
      const args = { count: String(count), limit: String(limit) }
      return (await script(takeActions, actionKeys, args)) === 1
    },

    async audit(limit) {
      const [seq, hash, upTo, kept] = await using(() =>
        redis.hmget(KEYS.auditHead, 'Seq', 'Hash', 'UpTo', 'Kept'),
      )
      const after = upTo ? `(${upTo}` : '-'
      const unaudited = await using(() => redis.xrange(KEYS.outbox, after, '+', 'COUNT', limit))
      const batch: StreamEntry[] = []
      const facts: AuditFact[] = []
      // The batch is limited by its number of audit entries, because the arguments of a script are limited in size. A
      // single outbox entry for token issuances can contain thousands of audit entries.
      for (const entry of unaudited) {
        if (facts.length >= FACTS_PER_CALL) break
        batch.push(entry)
        facts.push(...factsOf(entry))
      }
      const last = batch.at(-1)
      if (last === undefined) return 0
      const head = seq && hash ? { Seq: Number(seq), Hash: hash } : await newestEntry()
      if (Number(kept ?? 0) < head.Seq) await catchUp(Number(kept ?? 0), head.Seq)
      const entries = chain(head, facts)
      const { Seq, Hash } = entries.at(-1) ?? head
      // The script changes nothing if another replica has already appended the same entries.
      await script(appendAudit, KEYS, {
        previousHash: hash ?? '',
        seq: String(Seq),
        hash: Hash,
        upTo: last[0],
        maxEntries: String(auditEntries),
        entries: entries.map((entry) => JSON.stringify(entry)),
        ...keptOf(entries),
      })
      await trimKept(Date.now())
      return batch.length
    },

    async claimAuditSink(sink, owner, leaseMs) {
      const args = { owner, leaseMs: String(leaseMs) }
      const position = (await script(claimAuditSink, sinkKeysOf(sink), args)) as string | null
      if (position === null) return null
      return parseJsonAs(AuditHead, position) ?? auditStart
    },

    async advanceAuditSink(sink, owner, position) {
      const args = { owner, position: JSON.stringify(position) }
      await script(advanceAuditSink, sinkKeysOf(sink), args)
    },

    async releaseAuditSink(sink, holder) {
      await script(release, { lease: sinkKeysOf(sink).lease }, { holder })
    },

    readAudit: (after, limit) =>
      auditPage(redis.pipeline().xrange(KEYS.auditLog, `${after + 1}-0`, '+', 'COUNT', limit)),

    async readAuditBackwards(before, limit) {
      const newest = await auditPage(
        redis.pipeline().xrevrange(KEYS.auditLog, `${before - 1}-0`, '-', 'COUNT', limit),
      )
      if (newest.items.length === limit) return newest
      // The log ends here. Entries of weight before its oldest entry are in the stream of their own.
      const from = newest.items.at(-1)?.Seq ?? before
      const kept = await auditPage(
        redis
          .pipeline()
          .xrevrange(KEYS.auditKept, `${from - 1}-0`, '-', 'COUNT', limit - newest.items.length),
      )
      return { items: [...newest.items, ...kept.items], head: newest.head }
    },
  }
}

type StreamEntry = [id: string, pairs: string[]]

/**
 * Parses an outbox entry. `labels` is the text that the scripts have stored with the entry, or absent if an earlier
 * release stored the entry.
 */
function parseOutboxEntry([, entry = '', , labels = '']: readonly string[]): OutboxEntry | null {
  const parsed = parseJsonAs(OutboxEntry, entry, OWN_TEXT)
  return parsed === null ? null : withLabels(parsed, parseLabels(labels))
}

/**
 * Returns the audit entries of an outbox entry. For an outbox entry that cannot be parsed, this is a single audit
 * entry, so that later outbox entries are still audited.
 */
const factsOf = ([id, pairs]: StreamEntry): readonly AuditFact[] =>
  parseOutboxEntry(pairs)?.facts ?? [
    {
      At: new Date(Number(id.split('-')[0])).toISOString(),
      Who: 'unknown',
      What: 'unreadable',
      Name: '',
      Version: 0,
      Outcome: `journal entry ${id}`,
    },
  ]
