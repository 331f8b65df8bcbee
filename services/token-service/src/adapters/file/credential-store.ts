/**
 * Credentials in one JSON file, for the embedded host: the same records and envelopes as in Redis, 0600,
 * one owner at a time.
 *
 * F1  Memory is changed after the file: a write that failed has no effect.
 * F2  The file is replaced atomically (temporary file, fsync, rename, fsync of the folder), never changed in place.
 * F3  A file that cannot be parsed, or decrypted with these keys, is left unchanged and the start fails.
 */
import { chmod, open, readFile, rename } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { z } from 'zod'
import { AuditHead, auditStart, chain } from '@integration-host/shared/contracts/audit'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import { IntegrationError } from '@integration-host/shared/errors'
import { lockFolder } from '@integration-host/shared/files/folder-lock'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import {
  openCredential,
  openGrantSecrets,
  intentOf,
  isDecryptable,
  overlayFields,
  resealed,
  type StoredFields,
  sealGrant,
  summaryOf,
} from '../../credential/credential-record.ts'
import { credentialOf } from '../../credential/credential.ts'
import { isGrantRejected } from '../../credential/fault.ts'
import { OutboxEntry, outboxEntryOf, removalEntryOf } from '../../credential/outbox.ts'
import { parseJson } from '@integration-host/shared/json'
import { appendEntries, readEntries } from './audit-file.ts'
import {
  type Acquired,
  type CredentialStore,
  type Lease,
  VersionConflict,
} from '../../credential/credential-store.ts'

const FILE_NAME = 'credentials.json'
const AUDIT_FILE_NAME = 'audit.jsonl'
const CHECK_VALUE = 'these are the right keys'
const CHECK_VALUE_PLACE = { name: 'credentials:canary', field: 'canary', version: 1 }

const FileState = z.object({
  format: z.literal(1),
  canary: z.string(),
  fence: z.int().nonnegative(),
  sequence: z.int().nonnegative(),
  credentials: z.record(z.string(), z.record(z.string(), z.string())),
  /** Name → last version, so that versions go on after a removal. */
  removed: z.record(z.string(), z.int().positive()),
  due: z.record(z.string(), z.number()),
  outbox: z.array(OutboxEntry.extend({ id: z.string() })),
  audited: AuditHead.extend({
    /** The last outbox entry that is in the audit file. */
    upTo: z.int().nonnegative(),
    /** How much of the audit file is valid. */
    bytes: z.int().nonnegative(),
  }),
})
type FileState = z.output<typeof FileState>

/**
 * Opens the credential file of a folder and locks it.
 *
 * @throws {StartupError} another process uses the folder, or the file is damaged or encrypted with other keys.
 */
export async function createFileCredentialStore(
  folder: string,
  keys: KeyRing,
  now: () => number = Date.now,
): Promise<CredentialStore & AsyncDisposable> {
  const path = join(folder, FILE_NAME)
  const unlock = await lockFolder(folder, path)
  try {
    const state = await load(path, keys)
    return {
      ...openStore({ path, loaded: state, keys, now }),
      [Symbol.asyncDispose]: async () => unlock(),
    }
  } catch (error) {
    unlock()
    throw error
  }
}

async function load(path: string, keys: KeyRing): Promise<FileState> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    const canary = keys.seal(CHECK_VALUE, CHECK_VALUE_PLACE)
    return {
      format: 1,
      canary,
      fence: 0,
      sequence: 0,
      credentials: {},
      removed: {},
      due: {},
      outbox: [],
      audited: { ...auditStart, upTo: 0, bytes: 0 },
    }
  }
  await chmod(path, 0o600)
  const parsed = FileState.safeParse(parseJson(text))
  // F3
  if (!parsed.success) {
    throw new StartupError(
      `${path} is damaged: restore it from a backup, or move it away and connect the companies again`,
    )
  }
  try {
    keys.open(parsed.data.canary, CHECK_VALUE_PLACE)
  } catch {
    throw new StartupError(
      `${path} was written with other CREDENTIAL_KEYS: set those again, or move the file away and connect the companies again`,
    )
  }
  return parsed.data
}

// F2
async function replaceFile(path: string, text: string): Promise<void> {
  const temporary = `${path}.tmp`
  const file = await open(temporary, 'w', 0o600)
  try {
    await file.writeFile(text)
    await file.sync()
  } finally {
    await file.close()
  }
  await rename(temporary, path)
  const folder = await open(join(path, '..'), 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

function openStore(options: {
  readonly path: string
  readonly loaded: FileState
  readonly keys: KeyRing
  readonly now: () => number
}): CredentialStore {
  const { path, keys, now } = options
  const auditPath = join(dirname(path), AUDIT_FILE_NAME)
  let state = options.loaded
  let writing: Promise<unknown> = Promise.resolve()
  // Leases are in memory: this process is the only one, so they end with it.
  const leases = new Map<string, { readonly lease: Lease; until: number }>()
  // Due credentials whose refresh was started; after a restart they are due again.
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

  /** One change at a time. `decide` returns the next state (`null`: unchanged) and the result of the call. */
  type Decided<T> = { readonly next: FileState | null; readonly result: T }
  function change<T>(decide: (current: FileState) => Decided<T> | Promise<Decided<T>>): Promise<T> {
    const run = async (): Promise<T> => {
      const { next, result } = await decide(state)
      if (next !== null) {
        try {
          await replaceFile(path, JSON.stringify(next))
        } catch (cause) {
          throw unwritable(cause)
        }
        state = next // F1
      }
      return result
    }
    const changed = writing.then(run)
    writing = changed.catch(() => {})
    return changed
  }
  const unchanged = <T>(result: T) => ({ next: null, result })

  const withOutboxEntry = (current: FileState, entry: OutboxEntry): FileState => ({
    ...current,
    sequence: current.sequence + 1,
    outbox: [...current.outbox, { ...entry, id: String(current.sequence + 1) }],
  })
  const withCredential = (
    current: FileState,
    name: string,
    fields: StoredFields,
    dueAt: number | null,
  ): FileState => {
    postponedUntil.delete(name)
    return {
      ...current,
      credentials: { ...current.credentials, [name]: fields },
      due: dueAt === null ? without(current.due, name) : { ...current.due, [name]: dueAt },
    }
  }
  const fieldsOf = (name: string): StoredFields | undefined =>
    Object.hasOwn(state.credentials, name) ? state.credentials[name] : undefined

  return {
    async get(name) {
      const fields = fieldsOf(name)
      return fields === undefined ? null : openCredential(keys, fields)
    },

    async list({ after, limit }) {
      return Object.keys(state.credentials)
        .filter((name) => name > after)
        .toSorted()
        .slice(0, limit)
        .map((name) => summaryOf(fieldsOf(name) ?? {}))
    },

    async counts() {
      const all = Object.values(state.credentials)
      const expiries = Object.keys(state.due)
        .map((name) => summaryOf(fieldsOf(name) ?? {}))
        .filter(({ fault }) => !isGrantRejected(fault))
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
        if (over !== undefined && here?.['Version'] !== over?.toString())
          throw new VersionConflict()
        if (here !== undefined && id !== '' && here['PutId'] === id)
          return unchanged(openCredential(keys, here))
        const last = Number(current.credentials[name]?.['Version'] ?? current.removed[name] ?? 0)
        const version = Math.max(last, atLeast) + 1
        const credential = credentialOf(grant, version)
        const fence = current.fence + 1
        leases.delete(name)
        const fields = { ...sealGrant(keys, grant, version), Fence: String(fence), PutId: id }
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
          if (fields === undefined) return unchanged({ kind: 'absent' })
          if ((leases.get(name)?.until ?? 0) > now()) return unchanged({ kind: 'busy' })
          const credential = openCredential(keys, fields)
          const fence = current.fence + 1
          const lease: Lease = { name, owner, fence, version: credential.version }
          const leased = {
            lease,
            credential,
            ...openGrantSecrets(keys, fields),
            intent: intentOf(fields, now()),
          }
          acquired = lease
          leases.set(name, { lease, until: now() + leaseMs })
          const credentials = {
            ...current.credentials,
            [name]: { ...fields, Fence: String(fence) },
          }
          // A fence must not be reused after a restart, so it is stored before the lease is used.
          return { next: { ...current, fence, credentials }, result: { kind: 'acquired', leased } }
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
      change<'recorded' | 'lost'>((current) => {
        const fields = current.credentials[lease.name]
        if (fields === undefined || !isHeld(lease) || !isOf(fields, lease)) return unchanged('lost')
        const Intent = `${lease.version}:${lease.fence}:${now()}`
        const credentials = { ...current.credentials, [lease.name]: { ...fields, Intent } }
        return { next: { ...current, credentials }, result: 'recorded' }
      }),

    commit: (lease, grant, dueAt, context, isNoticeNew) =>
      change<'committed' | 'fenced' | 'superseded'>((current) => {
        const fields = current.credentials[lease.name]
        const version = Number(fields?.['Version'])
        if (fields?.['Fence'] === String(lease.fence) && version === lease.version + 1)
          return unchanged('committed')
        if (fields === undefined || version !== lease.version) return unchanged('superseded')
        if (fields['Fence'] !== String(lease.fence)) return unchanged('fenced')
        if (isHeld(lease)) leases.delete(lease.name)
        const renewed: Record<string, string> = {
          ...fields,
          ...sealGrant(keys, grant, version + 1),
        }
        for (const field of overlayFields) delete renewed[field]
        const stored = withCredential(current, lease.name, renewed, dueAt)
        const entry = outboxEntryOf(
          credentialOf(grant, version + 1),
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
          ...(fault !== null && { Fault: JSON.stringify(fault), Status: 'faulted' }),
        }
        if (!settlement.keepsIntent) delete settled['Intent']
        if (isHeld(lease)) leases.delete(lease.name)
        const stored = withCredential(current, lease.name, settled, nextTryAt)
        const kind = settlement.isPublished ? 'faulted' : null
        const entry = outboxEntryOf({ ...summaryOf(settled), fault }, context, kind)
        return { next: withOutboxEntry(stored, entry), result: 'settled' }
      }),

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
        const entry = removalEntryOf(summaryOf(fields), context, revoked)
        return { next: withOutboxEntry(next, entry), result: 'removed' }
      }),

    async takeDue(at, limit, postponeMs) {
      const times = Object.entries(state.due)
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

    record: (facts) =>
      change((current) => ({
        next: withOutboxEntry(current, { facts, events: [] }),
        result: undefined,
      })),

    audit: (limit) =>
      change(async (current) => {
        const { audited } = current
        const found = current.outbox.filter(({ id }) => Number(id) > audited.upTo).slice(0, limit)
        const upTo = Number(found.at(-1)?.id ?? audited.upTo)
        if (found.length === 0) return unchanged(0)
        const entries = chain(
          audited,
          found.flatMap(({ facts }) => facts),
        )
        const { Seq, Hash } = entries.at(-1) ?? audited
        const bytes = await appendEntries(auditPath, audited.bytes, entries).catch(
          (cause: unknown) => {
            throw unwritable(cause)
          },
        )
        return {
          next: { ...current, audited: { Seq, Hash, upTo, bytes } },
          result: found.length,
        }
      }),

    async readAudit(after, limit) {
      const { Seq, Hash } = state.audited
      const items = await readEntries(auditPath, after, limit)
      return { items: items.filter((entry) => entry.Seq <= Seq), head: { Seq, Hash } }
    },

    async readOutbox(_owner, _leaseMs, limit) {
      const { outbox, audited } = state
      return outbox.filter(({ id }) => Number(id) <= audited.upTo).slice(0, limit)
    },

    async releaseOutbox() {
      // There is no other replica that could relay.
    },

    async trimOutbox(ids) {
      if (ids.length === 0) return
      await change((current) => ({
        next: { ...current, outbox: current.outbox.filter(({ id }) => !ids.includes(id)) },
        result: null,
      }))
    },

    reseal: (name) =>
      change<'resealed' | 'current' | 'refused' | 'absent'>((current) => {
        const fields = current.credentials[name]
        if (fields === undefined) return unchanged('absent')
        try {
          const renewed = resealed(keys, fields)
          if (renewed === null) return unchanged('current')
          const credentials = { ...current.credentials, [name]: { ...fields, ...renewed } }
          return { next: { ...current, credentials }, result: 'resealed' }
        } catch (error) {
          if (error instanceof DecryptionError) return unchanged('refused')
          throw error
        }
      }),

    async checkDecryption(name) {
      const fields = state.credentials[name]
      if (fields === undefined) return 'absent'
      return isDecryptable(keys, fields) ? 'decryptable' : 'refused'
    },

    retireKeys: () =>
      change<readonly string[]>((current) => {
        if (keys.isCurrent(current.canary)) return unchanged([])
        const [, retired = ''] = current.canary.split('.')
        const canary = keys.seal(CHECK_VALUE, CHECK_VALUE_PLACE)
        return { next: { ...current, canary }, result: [retired] }
      }),
  }
}

const unwritable = (cause: unknown): IntegrationError =>
  new IntegrationError('store_unavailable', 'the credential file cannot be written', {
    cause,
    retryAfterSeconds: 1,
  })

const isOf = (fields: StoredFields, lease: Lease): boolean =>
  fields['Fence'] === String(lease.fence) && fields['Version'] === String(lease.version)

function without<T>(record: Readonly<Record<string, T>>, name: string): Record<string, T> {
  const { [name]: _, ...rest } = record
  return rest
}
