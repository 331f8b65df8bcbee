/** The credential store in Redis. Its key names are in key-names.ts, and its writes in record-scripts.ts. */
import type { Redis } from 'ioredis'
import { type KeyRing, DecryptionError } from '@integration-host/shared/secrets/envelope'
import {
  openCredential,
  openForList,
  isDecryptable,
  overlayFields,
  resealed,
  recordFields,
  sealFault,
  type StoredFields,
  sealGrant,
  summaryFields,
  summaryOf,
} from '../../credential/credential-record.ts'
import {
  labelFields,
  noLabels,
  parseLabels,
  type Relabelled,
  relabelled,
} from '../../credential/labels.ts'
import { credentialOf, type CredentialSummary } from '../../credential/credential.ts'
import { type CredentialStore, VersionConflict } from '../../credential/credential-store.ts'
import { hasEndedGrant } from '../../credential/fault.ts'
import { outboxEntryOf, removalEntryOf } from '../../credential/outbox.ts'
import { createStoreCommands } from './commands.ts'
import { retireKeyCheckValues } from './key-check-value.ts'
import { keysOf, KEYS } from './key-names.ts'
import { createRedisLeases, leaseArguments } from './credential-leases.ts'
import { createRedisLists } from './credential-lists.ts'
import { labelEntries, listedSets } from './list-index.ts'
import { completeIndex } from './list-index-upkeep.ts'
import { createRecordOpener, type FieldValues } from './opened-records.ts'
import { createRedisOutbox } from './outbox.ts'
import { recordScripts } from './record-scripts.ts'
import type { ReplicatedWrites } from './replicated-writes.ts'

const CREDENTIAL_FIELDS = [...summaryFields, 'Authenticator', 'RefreshToken'] as const

export interface RedisCredentialStoreOptions {
  readonly redis: Redis
  readonly writes: ReplicatedWrites
  readonly keys: KeyRing
  /** Throws while Redis is not connected, or while the key ring does not match the records in Redis. */
  readonly ensureUsable: () => void
  /** The approximate number of newest audit entries that are kept. */
  readonly auditEntries: number
}

export function createRedisCredentialStore(options: RedisCredentialStoreOptions): CredentialStore {
  const { redis, writes, keys, ensureUsable, auditEntries } = options
  const commands = createStoreCommands(redis, writes, ensureUsable)
  const { using, script, replicated } = commands

  const openRecord = createRecordOpener(keys, (values) => toFields(CREDENTIAL_FIELDS, values))

  async function read(name: string, fields: readonly string[]): Promise<StoredFields | null> {
    const values = await using(() => redis.hmget(name, ...fields))
    return toFields(fields, values)
  }

  /** Reads the records of `names`, and omits removed credentials. */
  async function readSummaries(names: readonly string[]): Promise<CredentialSummary[]> {
    const batch = redis.pipeline()
    for (const name of names) batch.hmget(name, ...CREDENTIAL_FIELDS)
    return (await commands.pipelined(batch)).flatMap((values, index) => {
      const fields = toFields(CREDENTIAL_FIELDS, values as (string | null)[])
      return fields === null ? [] : [openForList(keys, names[index] ?? '', fields)]
    })
  }

  return {
    ...createRedisOutbox(commands, auditEntries),
    ...createRedisLists(commands, readSummaries),
    ...createRedisLeases(commands, keys),

    async get(name) {
      return openRecord(name, await using(() => redis.hmget(name, ...CREDENTIAL_FIELDS)))
    },

    async list({ after, limit }) {
      const found: CredentialSummary[] = []
      // A credential may be removed between the read of its name and the read of its record. The page is then filled
      // with further names, because callers treat a page with fewer than `limit` entries as the last page.
      for (let from = after === '' ? '-' : `(${after}`; found.length < limit;) {
        const names = await using(() =>
          redis.zrangebylex(KEYS.names, from, '+', 'LIMIT', 0, limit - found.length),
        )
        if (names.length === 0) break
        from = `(${names.at(-1)}`
        found.push(...(await readSummaries(names)))
      }
      return found
    },

    completeIndex: (signal) => completeIndex(commands, signal),

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
      const stored = await read(name, ['Version', 'Name', 'PutId', ...labelFields])
      const here = stored?.['Version']
      const isRepeated = id !== '' && stored?.['PutId'] === id
      if (over !== undefined && !isRepeated && here !== over?.toString())
        throw new VersionConflict()
      let last = here ?? (await using(() => redis.hget(KEYS.removed, name))) ?? '0'
      let before = stored
      for (;;) {
        const version = Math.max(Number(last), atLeast) + 1
        const labelled = relabelled(keys, name, before, grant)
        const credential = credentialOf(grant, version, labelled.labels)
        const entry = outboxEntryOf(
          { ...credential, ...noLabels }, // the script adds the labels
          context,
          'stored',
          grant.expiryNoticeDays !== null,
        )
        const outcome = await replicated(recordScripts.put, keysOf(name), {
          name,
          lastVersion: last,
          dueAt: String(dueAt),
          expiresAt: String(grant.expiresAt),
          entry: JSON.stringify(entry),
          putId: id,
          overlayFields,
          fields: flat({ ...sealGrant(keys, grant, version), ...labelled.fields }),
          lastLabels: labelled.replaces,
          ...indexChange(name, labelled),
          listed: listedSets(credential),
        })
        if (outcome === 'stored') return credential
        if (outcome === 'labelled') {
          before = await read(name, ['Name', ...labelFields])
          continue
        }
        if (outcome === 'stored before') {
          const fields = await read(name, CREDENTIAL_FIELDS)
          return fields === null ? credential : openCredential(keys, name, fields)
        }
        if (over !== undefined) throw new VersionConflict()
        // Another process stored a newer version in the meantime. The company has just authorized the new grant, so the
        // new grant replaces this version as well. The new grant gets the next version number.
        last = String(outcome)
      }
    },

    async commit(lease, grant, dueAt, context, { isNoticeNew = false, version, grantId } = {}) {
      const newVersion = version ?? lease.version + 1
      const credential = credentialOf(grant, newVersion, noLabels)
      const entry = outboxEntryOf(credential, context, 'refreshed', isNoticeNew)
      return (await replicated(recordScripts.commit, keysOf(lease.name), {
        ...leaseArguments(lease),
        newVersion: String(newVersion),
        dueAt: String(dueAt),
        expiresAt: String(grant.expiresAt),
        entry: JSON.stringify(entry),
        overlayFields,
        fields: flat({
          ...sealGrant(keys, grant, newVersion),
          ...(grantId !== undefined && { PutId: grantId }),
        }),
        listed: listedSets(credential),
      })) as 'committed' | 'fenced' | 'superseded'
    },

    async settle(lease, settlement, context) {
      const { nextTryAt, fault, isPublished } = settlement
      const fields = await read(lease.name, summaryFields)
      if (fields === null) return 'lost'
      const source = { ...summaryOf(fields), fault }
      const entry = outboxEntryOf(source, context, isPublished ? 'faulted' : null)
      return (await replicated(recordScripts.settle, keysOf(lease.name), {
        ...leaseArguments(lease),
        attempts: String(settlement.attempts),
        ...(nextTryAt !== null && {
          dueAt: String(nextTryAt),
          nextTryAt: new Date(nextTryAt).toISOString(),
        }),
        ...(fault !== null && {
          faultFields: flat(sealFault(keys, lease.name, lease.version, fault)),
          listed: listedSets(source),
        }),
        keepsIntent: settlement.keepsIntent,
        hasEndedGrant: hasEndedGrant(fault),
        entry: JSON.stringify(entry),
      })) as 'settled' | 'lost'
    },

    async label(name, change, onChanged, version) {
      for (;;) {
        const stored = await read(name, summaryFields)
        if (stored === null) return 'absent'
        if (version !== undefined && stored['Version'] !== String(version)) return 'moved'
        const { labels, replaces, fields, changed } = relabelled(keys, name, stored, change)
        if (changed.length === 0) return labels
        const outcome = await replicated(recordScripts.label, keysOf(name), {
          name,
          version: stored['Version'] ?? '',
          lastLabels: replaces,
          ...indexChange(name, { replaces, labels }),
          fields: flat(fields),
        })
        if (outcome === 'labelled') {
          onChanged(changed, Number(stored['Version']))
          return labels
        }
      }
    },

    async remove(name, revoked, context, version) {
      for (;;) {
        const fields = await read(name, summaryFields)
        if (fields === null) return 'absent'
        if (version !== undefined && fields['Version'] !== String(version)) return 'changed'
        const entry = removalEntryOf(summaryOf(fields), context, revoked)
        const outcome = await replicated(recordScripts.remove, keysOf(name), {
          name,
          version: fields['Version'] ?? '',
          lastLabels: fields['Labels'] ?? '',
          ...indexChange(name, { replaces: fields['Labels'], labels: noLabels }),
          listed: '',
          entry: JSON.stringify(entry),
        })
        if (outcome !== 'changed') return outcome as 'removed' | 'absent'
      }
    },

    async takeDue(now, limit, postponeMs) {
      const [names, nextAt] = (await script(recordScripts.takeDue, KEYS, {
        now: String(now),
        limit: String(limit),
        postponedUntil: String(now + postponeMs),
      })) as [string[], string]
      return { names, nextAt: nextAt === '' ? null : Number(nextAt) }
    },

    async reseal(name) {
      for (;;) {
        const fields = await read(name, recordFields)
        if (fields === null) return 'absent'
        try {
          const renewed = resealed(keys, name, fields)
          if (renewed === null) return 'current'
          const changes = Object.entries(renewed).flatMap(([field, sealed]) => [
            field,
            fields[field] ?? '',
            sealed,
          ])
          const args = { version: fields['Version'] ?? '', changes }
          const outcome = await script(recordScripts.reseal, keysOf(name), args)
          if (outcome === 'resealed') return 'resealed'
        } catch (error) {
          if (error instanceof DecryptionError) return 'refused'
          throw error
        }
      }
    },

    async checkDecryption(name) {
      const fields = await read(name, recordFields)
      if (fields === null) return 'absent'
      return isDecryptable(keys, name, fields) ? 'decryptable' : 'refused'
    },

    retireKeys: () => using(() => retireKeyCheckValues(redis, keys)),
  }
}

/**
 * Returns the script arguments that replace the index entries of changed labels. The lists are empty if no label
 * changes.
 */
const indexChange = (name: string, { replaces, labels }: Pick<Relabelled, 'replaces' | 'labels'>) =>
  replaces === undefined
    ? { unindexed: [], indexed: [] }
    : {
        unindexed: labelEntries(name, parseLabels(replaces)),
        indexed: labelEntries(name, labels),
      }

const flat = (fields: StoredFields): string[] => Object.entries(fields).flat()

/**
 * Returns the fields of an HMGET reply; `null` if the hash does not exist. In that case every field of the reply is
 * null.
 */
function toFields(names: readonly string[], values: FieldValues): StoredFields | null {
  if (values[names.indexOf('Name')] === null) return null
  return Object.fromEntries(names.map((name, index) => [name, values[index] ?? '']))
}
