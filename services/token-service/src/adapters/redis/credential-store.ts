/**
 * Credentials in Redis: one hash `ACC-<realm>` each, with these keys beside them.
 *
 *   credentials:names    zset, score 0: names in order     credentials:faulted  set of faulted names
 *   credentials:due      zset: name → next refresh, ms     credentials:removed  hash: name → last version
 *   credentials:expiry   zset: name → expiry, ms, of those whose grant is not rejected
 *   credentials:outbox   stream: the journal               credentials:fence    counter of leases given
 *   credentials:audit    stream: the audit log, ids <Seq>-0
 *   credentials:audit-head  hash: Seq and Hash of the newest entry, UpTo: the last journal entry in the log
 *   lease:<name>         holder, with expiry               lease:credentials:outbox  the relaying replica
 */
import { randomUUID } from 'node:crypto'
import type { Redis } from 'ioredis'
import {
  AuditEntry,
  type AuditFact,
  AuditHead,
  auditStart,
  chain,
} from '@integration-host/shared/contracts/audit'
import { type KeyRing, DecryptionError } from '@integration-host/shared/secrets/envelope'
import { IntegrationError } from '@integration-host/shared/errors'
import {
  openCredential,
  openGrantSecrets,
  intentOf,
  isOpenable,
  overlayFields,
  resealed,
  secretFields,
  type StoredFields,
  sealGrant,
  summaryFields,
  summaryOf,
} from '../../credential/credential-record.ts'
import { credentialOf, type CredentialSummary } from '../../credential/credential.ts'
import {
  type CredentialStore,
  type Lease,
  VersionConflict,
} from '../../credential/credential-store.ts'
import { isGrantRejected } from '../../credential/fault.ts'
import { OutboxEntry, outboxEntryOf, removalEntryOf } from '../../credential/outbox.ts'
import { retireKeyCheckValues } from './key-check-value.ts'
import { defineScripts, type ScriptName } from './scripts.ts'

const NAMES = 'credentials:names'
const DUE = 'credentials:due'
const EXPIRY = 'credentials:expiry'
const FAULTED = 'credentials:faulted'
const OUTBOX = 'credentials:outbox'
const REMOVED = 'credentials:removed'
const AUDIT = 'credentials:audit'
const AUDIT_HEAD = 'credentials:audit-head'
const FENCE = 'credentials:fence'
const leaseKey = (name: string): string => `lease:${name}`
const RELAY = leaseKey(OUTBOX)
/** Facts that go into the audit log in one step, and the rest of the entry that reaches the number. */
const AUDIT_FACTS = 10_000
/** How long a record is known that is said again. */
const RECORDED_MS = 600_000

const CREDENTIAL_FIELDS = [...summaryFields, 'Authenticator'] as const

export interface RedisCredentialStoreOptions {
  readonly redis: Redis
  readonly keys: KeyRing
  /** Throws while the store must not be used: not connected, or its records are not for these keys. */
  readonly ensureUsable: () => void
  /** The newest audit entries that are kept, about. */
  readonly auditEntries: number
}

export function createRedisCredentialStore(options: RedisCredentialStoreOptions): CredentialStore {
  const { redis, keys, ensureUsable } = options
  const runScript = defineScripts(redis)

  // The one door where the driver's errors become ours.
  async function using<T>(call: () => Promise<T>): Promise<T> {
    ensureUsable()
    try {
      return await call()
    } catch (error) {
      if (error instanceof IntegrationError || error instanceof DecryptionError) throw error
      throw unavailable(error)
    }
  }
  const script = (
    name: ScriptName,
    scriptKeys: readonly string[],
    args: readonly (string | number)[],
  ): Promise<unknown> => using(() => runScript(name, scriptKeys, args))

  async function read(name: string, fields: readonly string[]): Promise<StoredFields | null> {
    const values = await using(() => redis.hmget(name, ...fields))
    return toFields(fields, values)
  }

  /** Where the chain ends when its head is gone. */
  async function newestEntry(): Promise<AuditHead> {
    const [newest] = await using(() => redis.xrevrange(AUDIT, '+', '-', 'COUNT', 1))
    return newest === undefined ? auditStart : AuditHead.parse(JSON.parse(newest[1][1] ?? ''))
  }

  return {
    async get(name) {
      const fields = await read(name, CREDENTIAL_FIELDS)
      return fields === null ? null : openCredential(keys, fields)
    },

    async list({ after, limit }) {
      const found: CredentialSummary[] = []
      // A name without its record was removed in between. Its page is filled up: a short one is the last.
      for (let from = after === '' ? '-' : `(${after}`; found.length < limit;) {
        const names = await using(() =>
          redis.zrangebylex(NAMES, from, '+', 'LIMIT', 0, limit - found.length),
        )
        if (names.length === 0) break
        from = `(${names.at(-1)}`
        const batch = redis.pipeline()
        for (const name of names) batch.hmget(name, ...summaryFields)
        for (const [error, values] of (await using(() => batch.exec())) ?? []) {
          if (error !== null) throw unavailable(error)
          const fields = toFields(summaryFields, values as (string | null)[])
          if (fields !== null) found.push(summaryOf(fields))
        }
      }
      return found
    },

    async counts() {
      const [stored, faulted, [, nearest]] = await using(() =>
        Promise.all([
          redis.zcard(NAMES),
          redis.scard(FAULTED),
          redis.zrange(EXPIRY, '0', '0', 'WITHSCORES'),
        ]),
      )
      return { stored, faulted, nextExpiryAt: nearest === undefined ? null : Number(nearest) }
    },

    async put(grant, dueAt, context, { atLeast = 0, id = '', over } = {}) {
      const { name } = grant
      const here = (await read(name, ['Version', 'Name']))?.['Version']
      if (over !== undefined && here !== over?.toString()) throw new VersionConflict()
      let last = here ?? (await using(() => redis.hget(REMOVED, name))) ?? '0'
      for (;;) {
        const version = Math.max(Number(last), atLeast) + 1
        const credential = credentialOf(grant, version)
        const entry = outboxEntryOf(credential, context, 'stored', grant.expiryNoticeDays !== null)
        const outcome = await script(
          'put',
          [name, leaseKey(name), DUE, FAULTED, OUTBOX, NAMES, REMOVED, FENCE, EXPIRY],
          [
            last,
            name,
            dueAt,
            grant.expiresAt,
            JSON.stringify(entry),
            id,
            overlayFields.length,
            ...overlayFields,
            ...flat(sealGrant(keys, grant, version)),
          ],
        )
        if (outcome === 'stored') return credential
        if (outcome === 'stored before') {
          const fields = await read(name, CREDENTIAL_FIELDS)
          return fields === null ? credential : openCredential(keys, fields)
        }
        if (over !== undefined) throw new VersionConflict()
        // Somebody wrote in between: this grant is the newer one all the same, one version further on.
        last = String(outcome)
      }
    },

    async acquire(name, owner, leaseMs) {
      const answer = (await script('acquire', [name, leaseKey(name), FENCE], [owner, leaseMs])) as
        | ['absent']
        | ['busy']
        | ['acquired', number, number, string[]]
      if (answer[0] !== 'acquired') return { kind: answer[0] }
      const [, fence, storeNow, pairs] = answer
      const fields = pairsToFields(pairs)
      const lease: Lease = { name, owner, fence, version: Number(fields['Version']) }
      try {
        return {
          kind: 'acquired',
          leased: {
            lease,
            credential: openCredential(keys, fields),
            ...openGrantSecrets(keys, fields),
            intent: intentOf(fields, storeNow),
          },
        }
      } catch (error) {
        // What does not open stays as it is; the next one to look must not wait for our lease to end.
        await script('release', [leaseKey(name)], [holder(lease)])
        throw error
      }
    },

    async renew(lease, leaseMs) {
      return (await script('renew', [leaseKey(lease.name)], [holder(lease), leaseMs])) === 1
    },

    async release(lease) {
      await script('release', [leaseKey(lease.name)], [holder(lease)])
    },

    async recordIntent(lease) {
      const args = [holder(lease), lease.fence, lease.version]
      return (await script('recordIntent', [lease.name, leaseKey(lease.name)], args)) as
        | 'recorded'
        | 'lost'
    },

    async commit(lease, grant, dueAt, context, isNoticeNew) {
      const version = lease.version + 1
      const entry = outboxEntryOf(credentialOf(grant, version), context, 'refreshed', isNoticeNew)
      return (await script(
        'commit',
        [lease.name, leaseKey(lease.name), DUE, FAULTED, OUTBOX, EXPIRY],
        [
          holder(lease),
          lease.fence,
          lease.version,
          lease.name,
          dueAt,
          grant.expiresAt,
          JSON.stringify(entry),
          overlayFields.length,
          ...overlayFields,
          ...flat(sealGrant(keys, grant, version)),
        ],
      )) as 'committed' | 'fenced' | 'superseded'
    },

    async settle(lease, settlement, context) {
      const { nextTryAt, fault, isPublished } = settlement
      const fields = await read(lease.name, summaryFields)
      if (fields === null) return 'lost'
      const told = { ...summaryOf(fields), fault }
      const entry = outboxEntryOf(told, context, isPublished ? 'faulted' : null)
      return (await script(
        'settle',
        [lease.name, leaseKey(lease.name), DUE, FAULTED, OUTBOX, EXPIRY],
        [
          holder(lease),
          lease.fence,
          lease.version,
          lease.name,
          nextTryAt ?? '',
          nextTryAt === null ? '' : new Date(nextTryAt).toISOString(),
          settlement.attempts,
          settlement.keepsIntent ? 1 : 0,
          fault === null ? '' : JSON.stringify(fault),
          JSON.stringify(entry),
          isGrantRejected(fault) ? 1 : 0,
        ],
      )) as 'settled' | 'lost'
    },

    async remove(name, revoked, context, version) {
      for (;;) {
        const fields = await read(name, summaryFields)
        if (fields === null) return 'absent'
        if (version !== undefined && fields['Version'] !== String(version)) return 'changed'
        const entry = removalEntryOf(summaryOf(fields), context, revoked)
        const outcome = await script(
          'remove',
          [name, leaseKey(name), DUE, FAULTED, OUTBOX, NAMES, REMOVED, EXPIRY],
          [fields['Version'] ?? '', name, JSON.stringify(entry)],
        )
        if (outcome !== 'changed') return outcome as 'removed' | 'absent'
      }
    },

    async takeDue(now, limit, holdMs) {
      const [names, nextAt] = (await script('takeDue', [DUE], [now, limit, now + holdMs])) as [
        string[],
        string,
      ]
      return { names, nextAt: nextAt === '' ? null : Number(nextAt) }
    },

    async readOutbox(owner, leaseMs, limit) {
      const keysOf = [RELAY, OUTBOX, AUDIT_HEAD]
      const entries = (await script('readOutbox', keysOf, [owner, leaseMs, limit])) as
        | StreamEntry[]
        | null
      return entries === null
        ? null
        : entries.map(([id, pairs]) => ({ id, events: parseOutboxEntry(pairs)?.events ?? [] }))
    },

    async releaseOutbox(relayOwner) {
      await script('release', [RELAY], [relayOwner])
    },

    async trimOutbox(ids) {
      if (ids.length > 0) await using(() => redis.xdel(OUTBOX, ...ids))
    },

    async record(facts, id = randomUUID()) {
      const entry: OutboxEntry = { facts, events: [] }
      await script('record', [`recorded:${id}`, OUTBOX], [RECORDED_MS, JSON.stringify(entry)])
    },

    async audit(limit) {
      const [seq, hash, upTo] = await using(() => redis.hmget(AUDIT_HEAD, 'Seq', 'Hash', 'UpTo'))
      const after = upTo ? `(${upTo}` : '-'
      const unaudited = await using(() => redis.xrange(OUTBOX, after, '+', 'COUNT', limit))
      const found: StreamEntry[] = []
      const facts: AuditFact[] = []
      // Bounded by facts: an entry of hand-outs has thousands, and a command takes only so many arguments.
      for (const entry of unaudited) {
        if (facts.length >= AUDIT_FACTS) break
        found.push(entry)
        facts.push(...factsOf(entry))
      }
      const last = found.at(-1)
      if (last === undefined) return 0
      const head = seq && hash ? { Seq: Number(seq), Hash: hash } : await newestEntry()
      const entries = chain(head, facts)
      const { Seq, Hash } = entries.at(-1) ?? head
      // Another replica was faster: its entries are these.
      await script(
        'appendAudit',
        [AUDIT_HEAD, AUDIT],
        [
          hash ?? '',
          Seq,
          Hash,
          last[0],
          options.auditEntries,
          ...entries.map((e) => JSON.stringify(e)),
        ],
      )
      return found.length
    },

    async readAudit(after, limit) {
      const batch = redis
        .pipeline()
        .xrange(AUDIT, `${after + 1}-0`, '+', 'COUNT', limit)
        .hmget(AUDIT_HEAD, 'Seq', 'Hash')
      const [entries, head] = ((await using(() => batch.exec())) ?? []).map(([error, value]) => {
        if (error !== null) throw unavailable(error)
        return value
      }) as [StreamEntry[], [string | null, string | null]]
      return {
        items: entries.map(([, pairs]) => AuditEntry.parse(JSON.parse(pairs[1] ?? ''))),
        head: head[1] === null ? auditStart : { Seq: Number(head[0]), Hash: head[1] },
      }
    },

    async reseal(name) {
      for (;;) {
        const fields = await read(name, ['Name', 'Version', ...secretFields])
        if (fields === null) return 'absent'
        try {
          const renewed = resealed(keys, fields)
          if (renewed === null) return 'current'
          const triples = Object.entries(renewed).flatMap(([field, sealed]) => [
            field,
            fields[field] ?? '',
            sealed,
          ])
          const outcome = await script('reseal', [name], [fields['Version'] ?? '', ...triples])
          if (outcome === 'resealed') return 'resealed'
        } catch (error) {
          if (error instanceof DecryptionError) return 'refused'
          throw error
        }
      }
    },

    async opens(name) {
      const fields = await read(name, ['Name', 'Version', ...secretFields])
      if (fields === null) return 'absent'
      return isOpenable(keys, fields) ? 'opens' : 'refused'
    },

    retireKeys: () => using(() => retireKeyCheckValues(redis, keys)),
  }
}

const holder = (lease: Lease): string => `${lease.owner}:${lease.fence}`

const flat = (fields: StoredFields): string[] => Object.entries(fields).flat()

const unavailable = (cause: unknown): IntegrationError =>
  new IntegrationError('store_unavailable', 'the credential store is not available', {
    cause,
    retryAfterSeconds: 1,
  })

// A hash that does not exist has no fields: all of them come as null.
function toFields(
  names: readonly string[],
  values: readonly (string | null)[],
): StoredFields | null {
  if (values[names.indexOf('Name')] === null) return null
  return Object.fromEntries(names.map((name, index) => [name, values[index] ?? '']))
}

function pairsToFields(pairs: readonly string[]): StoredFields {
  const fields: Record<string, string> = {}
  for (let index = 0; index + 1 < pairs.length; index += 2) {
    fields[pairs[index] ?? ''] = pairs[index + 1] ?? ''
  }
  return fields
}

type StreamEntry = [id: string, pairs: string[]]

const parseOutboxEntry = (pairs: readonly string[]): OutboxEntry | null => {
  try {
    return OutboxEntry.parse(JSON.parse(pairs[1] ?? ''))
  } catch {
    return null
  }
}

/** An entry that cannot be read stops nobody: that there was one is the fact. */
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
