/**
 * The port to the credential store. Deployments use the Redis adapter, and the embedded host uses the file adapter.
 * Both pass the contract suite in credential-store.contract.ts.
 *
 * Every write is atomic: it compares the version of the credential, changes the record, and appends an entry to the
 * outbox. A change is therefore audited and published if and only if it is stored. The audit entries of an outbox entry
 * are moved into the audit log before its events are published to the broker.
 *
 * All methods throw `IntegrationError` `store_unavailable` if the store cannot be used. If only the reply was lost, the
 * write may nevertheless have succeeded. `put`, `label`, `recordIntent`, `commit`, `settle` and `remove` also throw
 * this error if fewer Redis replicas than required have acknowledged the write (`REDIS_REPLICAS`).
 *
 * Methods that decrypt secrets throw `DecryptionError` for a record that another program has changed or copied, or that
 * was encrypted with a key that the key ring does not have.
 */
import type { AuditEntry, AuditFact, AuditHead } from '@integration-host/shared/contracts/audit'
import type { Fault } from '@integration-host/shared/contracts/credential'
import { IntegrationError } from '@integration-host/shared/errors'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { Credential, CredentialSummary, Grant } from './credential.ts'
import type { Labels, LabelsChange } from './labels.ts'
import type { CredentialCounts, CredentialFilter, CredentialPage, NameRange } from './listing.ts'
import type { AuditContext, OutboxEntry } from './outbox.ts'

export interface CredentialStore extends OutboxStore {
  /** Reads a credential; `null` if there is no credential of that name. */
  get(name: string): Promise<Credential | null>

  /** Returns a page of credentials in the order of their names, beginning after the name `after`. */
  list(page: {
    readonly after: string
    readonly limit: number
  }): Promise<readonly CredentialSummary[]>

  /**
   * Returns a page of the credentials that fulfil `filter`, in the order of their names, beginning after the name
   * `after`. The time of a search is limited, so a page may have fewer than `limit` credentials even if more follow.
   */
  find(page: {
    readonly after: string
    readonly limit: number
    readonly filter: CredentialFilter
  }): Promise<CredentialPage>

  /**
   * Counts the credentials whose names are in `ranges`, by state and class.
   *
   * @throws {IntegrationError} `store_unavailable` also while the index is being built.
   */
  summary(ranges: readonly NameRange[]): Promise<CredentialCounts>

  /**
   * Completes the index that `find` and `summary` read, after an upgrade from a release without this index. Resolves
   * with `false` if another process is completing it, or if `signal` was aborted.
   */
  completeIndex(signal: AbortSignal): Promise<boolean>

  /**
   * Counts all credentials, and those with a fault. `nextExpiryAt` is the earliest expiry of an access token, in epoch
   * ms, among the credentials that are still refreshed; `null` if there is none.
   */
  counts(): Promise<{
    readonly stored: number
    readonly faulted: number
    readonly nextExpiryAt: number | null
  }>

  /**
   * Stores a new grant in place of the stored grant. Also removes the lease, the intent and the fault of the stored
   * grant, so that a refresh in flight cannot commit any more.
   *
   * The new version is greater than `atLeast` and than every earlier version under this name, even versions before a
   * removal. A repeated call with the same `id` stores nothing, so that it cannot overwrite a later write. Label and
   * tags keep their stored values unless the grant has new ones.
   */
  put(grant: Grant, dueAt: number, context: AuditContext, options?: PutOptions): Promise<Credential>

  /** Acquires the lease of a credential for `leaseMs` and reads the whole record in the same step. */
  acquire(name: string, owner: string, leaseMs: number): Promise<Acquired>

  /** Extends a lease; resolves with `false` if another process holds the lease or if the lease has expired. */
  renew(lease: Lease, leaseMs: number): Promise<boolean>

  /** Releases a lease. Has no effect if another process holds the lease. */
  release(lease: Lease): Promise<void>

  /**
   * Stores the intent to use the refresh token of the lease's version, in place of an earlier intent.
   *
   * If the store has failed over since an earlier intent of another lease was stored, the earlier intent is kept. The
   * earlier intent can be replaced when `deferralMs` have passed since the failover. A restart of the store counts as a
   * failover.
   */
  recordIntent(lease: Lease, deferralMs: number): Promise<IntentRecorded>

  /**
   * Replaces the token pair of `lease.version` by the next token pair, and clears intent, fault and lease. A repeated
   * call returns `committed` again, unless the token pair has been replaced since.
   *
   * `fenced`: another process has acquired the lease and may be using the same refresh token, or the store has lost the
   * version of the lease. `superseded`: a newer version is stored, or the credential was removed.
   */
  commit(
    lease: Lease,
    grant: Grant,
    dueAt: number,
    context: AuditContext,
    options?: CommitOptions,
  ): Promise<'committed' | 'fenced' | 'superseded'>

  /**
   * Stores the result of a refresh that returned no new token pair, and releases the lease. Resolves with `lost` if
   * the lease has already ended.
   */
  settle(lease: Lease, settlement: Settlement, context: AuditContext): Promise<'settled' | 'lost'>

  /**
   * Changes label and tags without advancing the version of the credential. Resolves with `moved` if another version
   * than `version` is stored.
   *
   * A refresh in flight is not affected. If two concurrent calls change the same member, the later call wins. Changes
   * of different members both take effect. If a value has changed, calls `onChanged` with the names of the changed
   * members and the version of the credential. The caller audits the change: any number of changes can be requested, so
   * that an entry for each would be too many (audit-counter.ts).
   */
  label(
    name: string,
    change: LabelsChange,
    onChanged: (changed: readonly string[], version: number) => void,
    version?: number,
  ): Promise<Labels | 'moved' | 'absent'>

  /**
   * Removes a credential with its lease, its due time and its index entries. `changed` means that nothing was removed,
   * because another version than `version` is stored.
   */
  remove(
    name: string,
    revoked: boolean,
    context: AuditContext,
    version?: number,
  ): Promise<'removed' | 'changed' | 'absent'>

  /**
   * Claims the right to send the refresh token of a grant that is not stored yet (adoption.ts). A company has at most
   * one claim. Resolves with `busy` if its claim is younger than `holdMs` and belongs to another process or another
   * refresh token. A claim stays stored for a day unless `endAdoption` deletes it.
   */
  claimAdoption(name: string, claim: AdoptionClaim, holdMs: number): Promise<AdoptionClaimed>

  /** Deletes the claim, unless another process has replaced it. */
  endAdoption(name: string, claim: AdoptionClaim): Promise<void>

  /**
   * Returns the names of the credentials whose refresh is due by `now`, earliest first. Their due time becomes `now +
   * postponeMs`, so that no other replica gets these names before that time. If this process dies, another replica gets
   * them at that time. `nextAt` is the next due time in the index, in epoch ms; `null` if the index is empty.
   */
  takeDue(
    now: number,
    limit: number,
    postponeMs: number,
  ): Promise<{ readonly names: readonly string[]; readonly nextAt: number | null }>

  /**
   * Re-encrypts the secrets of one credential with the active key. Resolves with `current` if the secrets were
   * already encrypted with the active key, and with `refused` if a secret cannot be decrypted.
   */
  reseal(name: string): Promise<'resealed' | 'current' | 'refused' | 'absent'>

  /**
   * Checks whether every secret of a credential can be decrypted, without changing the record. Resolves with `refused`
   * if a secret cannot be decrypted.
   */
  checkDecryption(name: string): Promise<'decryptable' | 'refused' | 'absent'>

  /** Deletes the key check values of all keys except the active key. Resolves with the ids of the deleted keys. */
  retireKeys(): Promise<readonly string[]>
}

/** The connection to a store that may lose its newest writes in a failover. */
export interface StoreConnection {
  /** Calls `listener` with `true` when the connection is established, and with `false` when it is lost. */
  watch(listener: (isEstablished: boolean) => void): Disposable
  /**
   * The last time at which a check has found that the connection leads to another or a restarted Redis server, in
   * epoch ms by the clock of that Redis server; `null` if no check has found this. Writes before this time are
   * possibly lost.
   */
  serverChangedAt(): number | null
}

export interface PutOptions {
  /** The version of the stored grant will be greater than this number. */
  readonly atLeast?: number
  /** Identifies this grant. A retried `put` uses the same value. */
  readonly id?: string
  /**
   * The version that `put` expects in the store; `null` if it expects that no credential is stored. If the store
   * contains anything else, `put` throws {@link VersionConflict}.
   */
  readonly over?: number | null
}

/** The outbox and the audit log. */
export interface OutboxStore {
  /**
   * Adds audit entries to the outbox without another write. Repeated calls with the same `id` add the entries only
   * once.
   */
  record(facts: readonly AuditFact[], id?: string): Promise<void>

  /**
   * Adds `count` to the actions of a key on a day, unless their number would exceed `limit`. Resolves with whether it was
   * added. `day` is counted from 1970-01-01 in UTC.
   */
  takeActions(keyId: string, day: number, count: number, limit: number): Promise<boolean>

  /**
   * Moves the audit entries of at most `limit` outbox entries into the audit log, each once and in order. Resolves with
   * the number of these outbox entries. Several replicas may call this method concurrently.
   */
  audit(limit: number): Promise<number>

  /** Returns audit entries with a number above `after`, in order, and the number and hash of the newest audit entry. */
  readAudit(
    after: number,
    limit: number,
  ): Promise<{ readonly items: readonly AuditEntry[]; readonly head: AuditHead }>

  /**
   * Returns `limit` audit entries with a number below `before`, newest first, and the number and hash of the newest
   * audit entry.
   */
  readAuditBackwards(
    before: number,
    limit: number,
  ): Promise<{ readonly items: readonly AuditEntry[]; readonly head: AuditHead }>

  /**
   * Takes or renews the lease of a sink of the audit log (forward-audit.ts), and resolves with the last entry that the
   * sink has taken. Resolves with `null` while another process has the lease.
   */
  claimAuditSink(sink: string, owner: string, leaseMs: number): Promise<AuditHead | null>

  /** Stores the last entry that the sink has taken, if `owner` still has the lease. */
  advanceAuditSink(sink: string, owner: string, position: AuditHead): Promise<void>

  /** Releases the lease of a sink, so that another replica can send before the lease expires. */
  releaseAuditSink(sink: string, owner: string): Promise<void>

  /**
   * Returns the oldest outbox entries. Omits entries whose audit entries are not in the audit log yet, and entries that
   * Redis replicas have not acknowledged yet. Returns `null` while another replica has the relay lease, which is the
   * right to publish events. Only one replica publishes at a time, so that the events stay in order.
   */
  readOutbox(
    owner: string,
    leaseMs: number,
    limit: number,
  ): Promise<readonly PendingEvents[] | null>

  /** Releases the relay lease, so that another replica can publish before the lease expires. */
  releaseOutbox(owner: string): Promise<void>

  /** Deletes the outbox entries whose events the broker has confirmed. */
  trimOutbox(ids: readonly string[]): Promise<void>
}

export interface CommitOptions {
  /** Whether the expiry notice of the grant is published as well; `false` by default. */
  readonly isNoticeNew?: boolean
  /**
   * The version of the committed token pair; `lease.version + 1` by default. A token pair that the store has lost is
   * committed again under its previous version.
   */
  readonly version?: number
  /**
   * The id of the grant to which the token pair belongs. Required if the token pair may belong to another grant than
   * the lease.
   */
  readonly grantId?: string
}

/**
 * The error of a write that expected another version of the credential. Another process has written the credential in
 * the meantime, and nothing was stored.
 */
export class VersionConflict extends Error {
  override readonly name = 'VersionConflict'
}

/** The error for a name that has no credential. */
export const notFound = (name: string): IntegrationError =>
  new IntegrationError('credential_not_found', `there is no credential ${name}`)

/** The error for a request that requires another version of the credential than the stored one. */
export const versionMoved = ({ name, version }: Pick<Credential, 'name' | 'version'>) =>
  new IntegrationError('version_moved', `the version of ${name} is ${version} now`, {
    members: { Version: version },
  })

export interface AdoptionClaim {
  /** An id of the claimed refresh token that does not reveal the token. */
  readonly id: string
  /** The id of the process that makes the claim. */
  readonly owner: string
}

export type AdoptionClaimed =
  /**
   * The result of a claim. `wasClaimedBefore` means that the same token was claimed earlier, and that no response to
   * its request was recorded.
   */
  | { readonly kind: 'claimed'; readonly wasClaimedBefore: boolean }
  | { readonly kind: 'busy'; readonly retryAfterMs: number }

/** The right of one process to use the refresh token of one version of a credential, until the lease ends. */
export interface Lease {
  readonly name: string
  readonly owner: string
  /** The fencing token, which increases with each lease. The store can therefore reject writes of an earlier holder. */
  readonly fence: number
  readonly version: number
  /** The `id` with which `put` stored the grant; empty if `put` got no `id`. A refresh does not change this id. */
  readonly grantId: string
}

export type Acquired =
  /**
   * There is no credential of this name. `removedVersion` is the version that the credential had when it was removed;
   * `null` if no credential of this name was ever removed.
   */
  | { readonly kind: 'absent'; readonly removedVersion: number | null }
  | { readonly kind: 'busy' }
  | { readonly kind: 'acquired'; readonly leased: LeasedCredential }

export type IntentRecorded =
  | { readonly kind: 'recorded' }
  /** The lease has ended, so the intent was not stored. */
  | { readonly kind: 'lost' }
  /**
   * The intent was not stored, because the intent of another lease is kept for `retryAfterMs`. The caller still has its
   * lease.
   */
  | { readonly kind: 'deferred'; readonly retryAfterMs: number }

/** A credential under lease, with the secrets that only a refresh, an export or a revocation needs. */
export interface LeasedCredential {
  readonly lease: Lease
  readonly credential: Credential
  readonly refreshToken: Secret | null
  readonly idToken: Secret | null
  readonly previous: Grant['previous']
  /** Whether the provider issued the refresh token to this installation, and the installation has not used it yet. */
  readonly isUnused: boolean
  /**
   * The stored intent to send the refresh token of this version; `null` if there is none. The intent was stored `ageMs`
   * ago, and no response to the request has been recorded since. `fence` identifies the intent: it is the fencing token
   * of the lease under which the intent was stored.
   */
  readonly intent: { readonly ageMs: number; readonly fence: number } | null
}

export interface Settlement {
  readonly attempts: number
  /** The time of the next attempt to refresh, in epoch ms; `null` if only a new grant can help. */
  readonly nextTryAt: number | null
  /** The fault to store with the credential. `null` leaves the stored fault unchanged. */
  readonly fault: Fault | null
  /** Whether the fault is published as an event. */
  readonly isPublished: boolean
  /**
   * Whether the intent is kept, because the provider may have rotated the refresh token although no response arrived.
   */
  readonly keepsIntent: boolean
}

/** The events of one outbox entry that are to be published. */
export interface PendingEvents {
  readonly id: string
  readonly events: OutboxEntry['events']
}
