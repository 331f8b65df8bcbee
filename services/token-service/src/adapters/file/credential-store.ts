/** The credential store of the embedded host, which keeps all credentials in one file (credential-file.ts). */
import { join } from 'node:path'
import { lockFolder } from '@integration-host/shared/files/durable-file'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import {
  openCredential,
  openForList,
  openGrantSecrets,
  intentOf,
  isDecryptable,
  overlayFields,
  resealed,
  sealFault,
  type StoredFields,
  sealGrant,
  summaryOf,
} from '../../credential/credential-record.ts'
import { type Labels, labelFields, openLabels, relabelled } from '../../credential/labels.ts'
import { credentialOf } from '../../credential/credential.ts'
import {
  type Acquired,
  type AdoptionClaim,
  type CredentialStore,
  type Lease,
  type IntentRecorded,
  type OutboxStore,
  VersionConflict,
} from '../../credential/credential-store.ts'
import { countsOf, isListed } from '../../credential/listing.ts'
import { hasEndedGrant } from '../../credential/fault.ts'
import { outboxEntryOf, removalEntryOf } from '../../credential/outbox.ts'
import {
  type CredentialFile,
  type FileState,
  openCredentialFile,
  unchanged,
} from './credential-file.ts'
import { createFileOutbox, withOutboxEntry } from './outbox.ts'

const FILE_NAME = 'credentials.json'
const AUDIT_FILE_NAME = 'audit.jsonl'
/**
 * Locks a folder and opens its credential file.
 *
 * @throws {StartupError} if another process uses the folder, or if the file is damaged or encrypted with other keys.
 */
export async function createFileCredentialStore(
  folder: string,
  keys: KeyRing,
  now: () => number = Date.now,
): Promise<CredentialStore & AsyncDisposable> {
  const path = join(folder, FILE_NAME)
  const unlock = await lockFolder(folder, path)
  try {
    const file = await openCredentialFile(path, keys)
    return {
      ...createFileOutbox(file, join(folder, AUDIT_FILE_NAME)),
      ...openStore(file, keys, now),
      retireKeys: file.retireKeys,
      [Symbol.asyncDispose]: async () => unlock(),
    }
  } catch (error) {
    unlock()
    throw error
  }
}

function openStore(
  file: CredentialFile,
  keys: KeyRing,
  now: () => number,
): Omit<CredentialStore, keyof OutboxStore | 'retireKeys'> {
  const { change } = file
  // Leases are kept only in memory, because no other process uses the file.
  const leases = new Map<string, { readonly lease: Lease; until: number }>()
  // A claim is the right to take over the grant of another program (adoption.ts). Claims are kept only in memory. A
  // restarted process does not need the earlier claims, because no request of the previous process can still be in
  // flight.
  const adoptions = new Map<string, AdoptionClaim & { readonly at: number }>()
  // For each credential whose due refresh was started, the time before which the credential is not due again. The map
  // is empty after a restart, so a credential whose refresh the previous process started is due at once.
  const postponedUntil = new Map<string, number>()
  const isHeld = (lease: Lease): boolean => {
    const held = leases.get(lease.name)
    return (
      held !== undefined &&
      held.until > now() &&
      held.lease.fence === lease.fence &&
      held.lease.owner === lease.owner
    )
  }

  const withCredential = (
    current: FileState,
    name: string,
    fields: StoredFields,
    dueAt: number | null,
  ): FileState => {
    postponedUntil.delete(name)
    return {
      ...withFields(current, name, fields),
      due: dueAt === null ? without(current.due, name) : { ...current.due, [name]: dueAt },
    }
  }
  const fieldsOf = (name: string): StoredFields | undefined => {
    const { credentials } = file.state()
    return Object.hasOwn(credentials, name) ? credentials[name] : undefined
  }

  const labelledSummary = (name: string, fields: StoredFields) => ({
    ...summaryOf(fields),
    ...openLabels(keys, name, fields),
  })

  return {
    async get(name) {
      const fields = fieldsOf(name)
      return fields === undefined ? null : openCredential(keys, name, fields)
    },

    async list({ after, limit }) {
      return Object.keys(file.state().credentials)
        .filter((name) => name > after)
        .toSorted()
        .slice(0, limit)
        .map((name) => openForList(keys, name, fieldsOf(name) ?? {}))
    },

    async find({ after, limit, filter }) {
      const all = Object.entries(file.state().credentials)
        .filter(([name]) => name > after)
        .map(([name, fields]) => openForList(keys, name, fields))
        .filter((credential) => isListed(credential, filter))
        .toSorted((a, b) => (a.name < b.name ? -1 : 1))
      const items = all.slice(0, limit)
      return { items, next: all.length > limit ? (items.at(-1)?.name ?? null) : null }
    },

    async summary(ranges) {
      const all = Object.entries(file.state().credentials)
      return countsOf(
        all
          .filter(([name]) => ranges.some(({ first, last }) => first <= name && name <= last))
          .map(([name, fields]) => openForList(keys, name, fields)),
      )
    },

    completeIndex: async () => true,

    async counts() {
      const all = Object.values(file.state().credentials)
      const expiries = Object.keys(file.state().due)
        .map((name) => summaryOf(fieldsOf(name) ?? {}))
        .filter(({ fault }) => !hasEndedGrant(fault))
        .map(({ expiresAt }) => expiresAt)
      return {
        stored: all.length,
        faulted: all.filter((fields) => fields['Fault']).length,
        nextExpiryAt: expiries.length === 0 ? null : Math.min(...expiries),
      }
    },

    put: (grant, dueAt, context, { atLeast = 0, id = '', over } = {}) =>
      change((current) => {
        const { name } = grant
        const here = current.credentials[name]
        if (here !== undefined && id !== '' && here['PutId'] === id)
          return unchanged(openCredential(keys, name, here))
        if (over !== undefined && here?.['Version'] !== over?.toString())
          throw new VersionConflict()
        const last = Number(current.credentials[name]?.['Version'] ?? current.removed[name] ?? 0)
        const version = Math.max(last, atLeast) + 1
        const labelled = relabelled(keys, name, here ?? null, grant)
        const credential = credentialOf(grant, version, labelled.labels)
        const fence = current.fence + 1
        leases.delete(name)
        const fields = {
          ...sealGrant(keys, grant, version),
          ...Object.fromEntries(labelFields.map((field) => [field, here?.[field] ?? ''])),
          ...labelled.fields,
          Fence: String(fence),
          PutId: id,
        }
        const stored = withCredential(
          { ...current, fence, removed: without(current.removed, name) },
          name,
          fields,
          dueAt,
        )
        return {
          next: withOutboxEntry(
            stored,
            outboxEntryOf(credential, context, 'stored', grant.expiryNoticeDays !== null),
          ),
          result: credential,
        }
      }),

    async acquire(name, owner, leaseMs) {
      let acquired: Lease | null = null
      try {
        return await change<Acquired>((current) => {
          const fields = current.credentials[name]
          if (fields === undefined)
            return unchanged({
              kind: 'absent',
              removedVersion: Object.hasOwn(current.removed, name)
                ? Number(current.removed[name])
                : null,
            })
          if ((leases.get(name)?.until ?? 0) > now()) return unchanged({ kind: 'busy' })
          const credential = openCredential(keys, name, fields)
          const fence = current.fence + 1
          const grantId = fields['PutId'] ?? ''
          const lease: Lease = { name, owner, fence, version: credential.version, grantId }
          const leased = {
            lease,
            credential,
            ...openGrantSecrets(keys, name, fields),
            intent: intentOf(fields, now()),
          }
          acquired = lease
          leases.set(name, { lease, until: now() + leaseMs })
          // The fencing token is stored before the lease is used. Otherwise a restarted process could issue the same
          // fencing token again.
          const next = withFields({ ...current, fence }, name, { ...fields, Fence: String(fence) })
          return { next, result: { kind: 'acquired', leased } }
        })
      } catch (error) {
        if (leases.get(name)?.lease === acquired) leases.delete(name)
        throw error
      }
    },

    async renew(lease, leaseMs) {
      const held = leases.get(lease.name)
      if (held === undefined || !isHeld(lease)) return false
      held.until = now() + leaseMs
      return true
    },

    async release(lease) {
      if (isHeld(lease)) leases.delete(lease.name)
    },

    recordIntent: (lease) =>
      change<IntentRecorded>((current) => {
        const fields = current.credentials[lease.name]
        if (fields === undefined || !isHeld(lease) || !isOf(fields, lease))
          return unchanged({ kind: 'lost' })
        const Intent = `${lease.version}:${lease.fence}:${now()}`
        const next = withFields(current, lease.name, { ...fields, Intent })
        return { next, result: { kind: 'recorded' } }
      }),

    commit: (lease, grant, dueAt, context, { isNoticeNew = false, version, grantId } = {}) =>
      change<'committed' | 'fenced' | 'superseded'>((current) => {
        const fields = current.credentials[lease.name]
        const storedVersion = Number(fields?.['Version'])
        const newVersion = version ?? lease.version + 1
        if (fields?.['CommitFence'] === String(lease.fence) && storedVersion === newVersion)
          return unchanged('committed')
        if (fields === undefined || storedVersion > lease.version) return unchanged('superseded')
        if (storedVersion !== lease.version || fields['Fence'] !== String(lease.fence))
          return unchanged('fenced')
        if (isHeld(lease)) leases.delete(lease.name)
        const renewed: Record<string, string> = {
          ...fields,
          ...sealGrant(keys, grant, newVersion),
          CommitFence: String(lease.fence),
          ...(grantId !== undefined && { PutId: grantId }),
        }
        for (const field of overlayFields) delete renewed[field]
        const stored = withCredential(current, lease.name, renewed, dueAt)
        const entry = outboxEntryOf(
          credentialOf(grant, newVersion, openLabels(keys, lease.name, fields)),
          context,
          'refreshed',
          isNoticeNew,
        )
        return { next: withOutboxEntry(stored, entry), result: 'committed' }
      }),

    settle: (lease, settlement, context) =>
      change<'settled' | 'lost'>((current) => {
        const fields = current.credentials[lease.name]
        if (fields === undefined || !isOf(fields, lease)) return unchanged('lost')
        const { nextTryAt, fault } = settlement
        const settled: Record<string, string> = {
          ...fields,
          Attempts: String(settlement.attempts),
          NextTryAt: nextTryAt === null ? '' : new Date(nextTryAt).toISOString(),
          ...(fault !== null && sealFault(keys, lease.name, lease.version, fault)),
        }
        if (!settlement.keepsIntent) delete settled['Intent']
        if (isHeld(lease)) leases.delete(lease.name)
        const stored = withCredential(current, lease.name, settled, nextTryAt)
        const kind = settlement.isPublished ? 'faulted' : null
        const source = { ...labelledSummary(lease.name, settled), fault }
        const entry = outboxEntryOf(source, context, kind)
        return { next: withOutboxEntry(stored, entry), result: 'settled' }
      }),

    async label(name, wanted, onChanged, version) {
      let changedMembers: readonly string[] = []
      let changedVersion = 0
      const result = await change<Labels | 'moved' | 'absent'>((current) => {
        const stored = current.credentials[name]
        if (stored === undefined) return unchanged('absent')
        if (version !== undefined && stored['Version'] !== String(version))
          return unchanged('moved')
        const { labels, fields, changed } = relabelled(keys, name, stored, wanted)
        if (changed.length === 0) return unchanged(labels)
        changedMembers = changed
        changedVersion = Number(stored['Version'])
        return { next: withFields(current, name, { ...stored, ...fields }), result: labels }
      })
      if (changedMembers.length > 0) onChanged(changedMembers, changedVersion)
      return result
    },

    remove: (name, revoked, context, version) =>
      change<'removed' | 'changed' | 'absent'>((current) => {
        const fields = current.credentials[name]
        if (fields === undefined) return unchanged('absent')
        if (version !== undefined && fields['Version'] !== String(version))
          return unchanged('changed')
        leases.delete(name)
        const next = {
          ...current,
          credentials: without(current.credentials, name),
          due: without(current.due, name),
          removed: { ...current.removed, [name]: Number(fields['Version']) },
        }
        const entry = removalEntryOf(labelledSummary(name, fields), context, revoked)
        return { next: withOutboxEntry(next, entry), result: 'removed' }
      }),

    async claimAdoption(name, { id, owner }, holdMs) {
      const previous = adoptions.get(name)
      const isOwn = previous?.owner === owner && previous.id === id
      if (previous !== undefined && !isOwn && now() - previous.at < holdMs)
        return { kind: 'busy', retryAfterMs: holdMs - (now() - previous.at) }
      adoptions.set(name, { id, owner, at: now() })
      return { kind: 'claimed', wasClaimedBefore: previous?.id === id }
    },

    async endAdoption(name, claim) {
      const { id, owner } = adoptions.get(name) ?? {}
      if (id === claim.id && owner === claim.owner) adoptions.delete(name)
    },

    async takeDue(at, limit, postponeMs) {
      const times = Object.entries(file.state().due)
        .map(([name, dueAt]) => ({ name, dueAt: Math.max(dueAt, postponedUntil.get(name) ?? 0) }))
        .toSorted((a, b) => a.dueAt - b.dueAt)
      const taken = times.filter(({ dueAt }) => dueAt <= at).slice(0, limit)
      for (const { name } of taken) postponedUntil.set(name, at + postponeMs)
      const left = [
        ...times.slice(taken.length).map(({ dueAt }) => dueAt),
        ...taken.map(() => at + postponeMs),
      ]
      return {
        names: taken.map(({ name }) => name),
        nextAt: left.length === 0 ? null : Math.min(...left),
      }
    },

    reseal: (name) =>
      change<'resealed' | 'current' | 'refused' | 'absent'>((current) => {
        const fields = current.credentials[name]
        if (fields === undefined) return unchanged('absent')
        try {
          const renewed = resealed(keys, name, fields)
          if (renewed === null) return unchanged('current')
          const next = withFields(current, name, { ...fields, ...renewed })
          return { next, result: 'resealed' }
        } catch (error) {
          if (error instanceof DecryptionError) return unchanged('refused')
          throw error
        }
      }),

    async checkDecryption(name) {
      const fields = fieldsOf(name)
      if (fields === undefined) return 'absent'
      return isDecryptable(keys, name, fields) ? 'decryptable' : 'refused'
    },
  }
}

const isOf = (fields: StoredFields, lease: Lease): boolean =>
  fields['Fence'] === String(lease.fence) && fields['Version'] === String(lease.version)

function without<T>(record: Readonly<Record<string, T>>, name: string): Record<string, T> {
  const { [name]: _, ...rest } = record
  return rest
}

const withFields = (current: FileState, name: string, fields: StoredFields): FileState => ({
  ...current,
  credentials: { ...current.credentials, [name]: fields },
})
