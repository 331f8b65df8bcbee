/**
 * Credentials in Redis: one hash `ACC-<realm>` each, with these keys beside them.
 *
 *   credentials:names    zset, score 0: names in order     credentials:faulted  set of faulted names
 *   credentials:due      zset: name → next refresh, ms     credentials:removed  hash: name → last version
 *   credentials:expiry   zset: name → expiry, ms, of those whose grant is not rejected
 *   credentials:outbox   stream: outbox entries            credentials:fence    counter of fencing tokens
 *   credentials:audit    stream: the audit log, ids <Seq>-0
 *   credentials:audit-head  hash: Seq and Hash of the newest entry, UpTo: the last outbox entry in the log
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
  isDecryptable,
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
import { parseJson } from '@integration-host/shared/json'
import { retireKeyCheckValues } from './key-check-value.ts'
import { defineScripts, type RunScript } from './scripts.ts'

/** The keys of the store beside those of one credential, by the names that the scripts use. */
const KEYS = {
  names: 'credentials:names',
  due: 'credentials:due',
  expiry: 'credentials:expiry',
  faulted: 'credentials:faulted',
  outbox: 'credentials:outbox',
  removed: 'credentials:removed',
  fence: 'credentials:fence',
  auditLog: 'credentials:audit',
  auditHead: 'credentials:audit-head',
  relayLease: 'lease:credentials:outbox',
} as const
/** All keys that a script about the credential `name` may use. */
const keysOf = (name: string) => ({ ...KEYS, credential: name, lease: `lease:${name}` })

/** Facts that go into the audit log in one step; the outbox entry that reaches the number is included whole. */
const AUDIT_FACTS = 10_000
/** How long a record is recognised that is sent again because its reply was lost. */
const MARKER_MS = 600_000

const CREDENTIAL_FIELDS = [...summaryFields, 'Authenticator'] as const

export interface RedisCredentialStoreOptions {
  readonly redis: Redis
  readonly keys: KeyRing
  /** Throws while the store must not be used: not connected, or the keys do not match its records. */
  readonly ensureUsable: () => void
  /** About how many of the newest audit entries are kept. */
  readonly auditEntries: number
}

export function createRedisCredentialStore(options: RedisCredentialStoreOptions): CredentialStore {
  const { redis, keys, ensureUsable } = options
  const runScript = defineScripts(redis)

  // The only place where errors of the driver are mapped.
  async function using<T>(call: () => Promise<T>): Promise<T> {
    ensureUsable()
    try {
      return await call()
    } catch (error) {
      if (error instanceof IntegrationError || error instanceof DecryptionError) throw error
      throw unavailable(error)
    }
  }
  const script: RunScript = (name, scriptKeys, args) =>
    using(() => runScript(name, scriptKeys, args))

  async function read(name: string, fields: readonly string[]): Promise<StoredFields | null> {
    const values = await using(() => redis.hmget(name, ...fields))
    return toFields(fields, values)
  }

  /** The end of the chain according to the log itself, for a head that was lost. */
  async function newestEntry(): Promise<AuditHead> {
    const [newest] = await using(() => redis.xrevrange(KEYS.auditLog, '+', '-', 'COUNT', 1))
    return newest === undefined ? auditStart : AuditHead.parse(JSON.parse(newest[1][1] ?? ''))
  }

  return {
    async get(name) {
      const fields = await read(name, CREDENTIAL_FIELDS)
      return fields === null ? null : openCredential(keys, fields)
    },

    async list({ after, limit }) {
      const found: CredentialSummary[] = []
      // A name without its record was removed in between. The page is filled up: a shorter one is the last.
      for (let from = after === '' ? '-' : `(${after}`; found.length < limit;) {
        const names = await using(() =>
          redis.zrangebylex(KEYS.names, from, '+', 'LIMIT', 0, limit - found.length),
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
          redis.zcard(KEYS.names),
          redis.scard(KEYS.faulted),
          redis.zrange(KEYS.expiry, '0', '0', 'WITHSCORES'),
        ]),
      )
      return { stored, faulted, nextExpiryAt: nearest === undefined ? null : Number(nearest) }
    },

    async put(grant, dueAt, context, { atLeast = 0, id = '', over } = {}) {
      const { name } = grant
      const here = (await read(name, ['Version', 'Name']))?.['Version']
      if (over !== undefined && here !== over?.toString()) throw new VersionConflict()
      let last = here ?? (await using(() => redis.hget(KEYS.removed, name))) ?? '0'
      for (;;) {
        const version = Math.max(Number(last), atLeast) + 1
        const credential = credentialOf(grant, version)
        const entry = outboxEntryOf(credential, context, 'stored', grant.expiryNoticeDays !== null)
        const outcome = await script('put', keysOf(name), {
          name,
          lastVersion: last,
          dueAt: String(dueAt),
          expiresAt: String(grant.expiresAt),
          entry: JSON.stringify(entry),
          putId: id,
          overlayFields,
          fields: flat(sealGrant(keys, grant, version)),
        })
        if (outcome === 'stored') return credential
        if (outcome === 'stored before') {
          const fields = await read(name, CREDENTIAL_FIELDS)
          return fields === null ? credential : openCredential(keys, fields)
        }
        if (over !== undefined) throw new VersionConflict()
        // Another process wrote in between. This grant is the newer one nevertheless, with the version after that.
        last = String(outcome)
      }
    },

    async acquire(name, owner, leaseMs) {
      const reply = (await script('acquire', keysOf(name), { owner, leaseMs: String(leaseMs) })) as
        | ['absent']
        | ['busy']
        | ['acquired', number, number, string[]]
      if (reply[0] !== 'acquired') return { kind: reply[0] }
      const [, fence, storeNow, pairs] = reply
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
        // A record that cannot be decrypted stays as it is; the next caller must not wait for our lease to expire.
        await script('release', keysOf(name), { holder: holder(lease) })
        throw error
      }
    },

    async renew(lease, leaseMs) {
      const args = { holder: holder(lease), leaseMs: String(leaseMs) }
      return (await script('renew', keysOf(lease.name), args)) === 1
    },

    async release(lease) {
      await script('release', keysOf(lease.name), { holder: holder(lease) })
    },

    async recordIntent(lease) {
      return (await script('recordIntent', keysOf(lease.name), leaseArguments(lease))) as
        | 'recorded'
        | 'lost'
    },

    async commit(lease, grant, dueAt, context, isNoticeNew) {
      const version = lease.version + 1
      const entry = outboxEntryOf(credentialOf(grant, version), context, 'refreshed', isNoticeNew)
      return (await script('commit', keysOf(lease.name), {
        ...leaseArguments(lease),
        dueAt: String(dueAt),
        expiresAt: String(grant.expiresAt),
        entry: JSON.stringify(entry),
        overlayFields,
        fields: flat(sealGrant(keys, grant, version)),
      })) as 'committed' | 'fenced' | 'superseded'
    },

    async settle(lease, settlement, context) {
      const { nextTryAt, fault, isPublished } = settlement
      const fields = await read(lease.name, summaryFields)
      if (fields === null) return 'lost'
      const source = { ...summaryOf(fields), fault }
      const entry = outboxEntryOf(source, context, isPublished ? 'faulted' : null)
      return (await script('settle', keysOf(lease.name), {
        ...leaseArguments(lease),
        attempts: String(settlement.attempts),
        ...(nextTryAt !== null && {
          dueAt: String(nextTryAt),
          nextTryAt: new Date(nextTryAt).toISOString(),
        }),
        ...(fault !== null && { fault: JSON.stringify(fault) }),
        keepsIntent: settlement.keepsIntent,
        isGrantRejected: isGrantRejected(fault),
        entry: JSON.stringify(entry),
      })) as 'settled' | 'lost'
    },

    async remove(name, revoked, context, version) {
      for (;;) {
        const fields = await read(name, summaryFields)
        if (fields === null) return 'absent'
        if (version !== undefined && fields['Version'] !== String(version)) return 'changed'
        const entry = removalEntryOf(summaryOf(fields), context, revoked)
        const outcome = await script('remove', keysOf(name), {
          name,
          version: fields['Version'] ?? '',
          entry: JSON.stringify(entry),
        })
        if (outcome !== 'changed') return outcome as 'removed' | 'absent'
      }
    },

    async takeDue(now, limit, postponeMs) {
      const [names, nextAt] = (await script('takeDue', KEYS, {
        now: String(now),
        limit: String(limit),
        postponedUntil: String(now + postponeMs),
      })) as [string[], string]
      return { names, nextAt: nextAt === '' ? null : Number(nextAt) }
    },

    async readOutbox(owner, leaseMs, limit) {
      const args = { owner, leaseMs: String(leaseMs), limit: String(limit) }
      const entries = (await script('readOutbox', KEYS, args)) as StreamEntry[] | null
      return entries === null
        ? null
        : entries.map(([id, pairs]) => ({ id, events: parseOutboxEntry(pairs)?.events ?? [] }))
    },

    async releaseOutbox(relayOwner) {
      await script('release', { lease: KEYS.relayLease }, { holder: relayOwner })
    },

    async trimOutbox(ids) {
      if (ids.length > 0) await using(() => redis.xdel(KEYS.outbox, ...ids))
    },

    async record(facts, id = randomUUID()) {
      const entry: OutboxEntry = { facts, events: [] }
      const recordKeys = { outbox: KEYS.outbox, recordedMarker: `recorded:${id}` }
      const args = { markerMs: String(MARKER_MS), entry: JSON.stringify(entry) }
      await script('record', recordKeys, args)
    },

    async audit(limit) {
      const [seq, hash, upTo] = await using(() =>
        redis.hmget(KEYS.auditHead, 'Seq', 'Hash', 'UpTo'),
      )
      const after = upTo ? `(${upTo}` : '-'
      const unaudited = await using(() => redis.xrange(KEYS.outbox, after, '+', 'COUNT', limit))
      const found: StreamEntry[] = []
      const facts: AuditFact[] = []
      // Bounded by facts: one entry of token issuances has thousands, and all go into one script call.
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
      // No effect if another replica was faster: it has appended the same entries.
      await script('appendAudit', KEYS, {
        previousHash: hash ?? '',
        seq: String(Seq),
        hash: Hash,
        upTo: last[0],
        maxEntries: String(options.auditEntries),
        entries: entries.map((entry) => JSON.stringify(entry)),
      })
      return found.length
    },

    async readAudit(after, limit) {
      const batch = redis
        .pipeline()
        .xrange(KEYS.auditLog, `${after + 1}-0`, '+', 'COUNT', limit)
        .hmget(KEYS.auditHead, 'Seq', 'Hash')
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
          const changes = Object.entries(renewed).flatMap(([field, sealed]) => [
            field,
            fields[field] ?? '',
            sealed,
          ])
          const args = { version: fields['Version'] ?? '', changes }
          const outcome = await script('reseal', keysOf(name), args)
          if (outcome === 'resealed') return 'resealed'
        } catch (error) {
          if (error instanceof DecryptionError) return 'refused'
          throw error
        }
      }
    },

    async checkDecryption(name) {
      const fields = await read(name, ['Name', 'Version', ...secretFields])
      if (fields === null) return 'absent'
      return isDecryptable(keys, fields) ? 'decryptable' : 'refused'
    },

    retireKeys: () => using(() => retireKeyCheckValues(redis, keys)),
  }
}

const holder = (lease: Lease): string => `${lease.owner}:${lease.fence}`

/** What a script needs to know of the lease under which it writes. */
const leaseArguments = (lease: Lease) => ({
  name: lease.name,
  holder: holder(lease),
  fence: String(lease.fence),
  version: String(lease.version),
})

const flat = (fields: StoredFields): string[] => Object.entries(fields).flat()

const unavailable = (cause: unknown): IntegrationError =>
  new IntegrationError('store_unavailable', 'the credential store is not available', {
    cause,
    retryAfterSeconds: 1,
  })

// HMGET of a hash that does not exist returns null for every field.
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

const parseOutboxEntry = (pairs: readonly string[]): OutboxEntry | null =>
  OutboxEntry.safeParse(parseJson(pairs[1] ?? '')).data ?? null

/** An entry that cannot be parsed must not stop the audit: the fact that it existed is audited. */
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
