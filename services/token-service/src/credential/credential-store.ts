/**
 * The port to the credential store. The Redis adapter is for deployments, the file adapter for the embedded
 * host; one contract suite (credential-store.contract.ts) runs against both.
 *
 * Every write is atomic, compares the credential's version first, and appends an entry to the outbox in the
 * same step: whatever is stored is audited and published, and nothing else is. The audit facts of an entry go
 * from the outbox into the audit log, and after that its events to the broker.
 *
 * All methods throw `IntegrationError` `store_unavailable` when the store cannot be used; a write may have
 * succeeded nevertheless. Methods that decrypt secrets throw `DecryptionError` for a record that was changed,
 * moved or sealed with another key.
 */
import type { AuditEntry, AuditFact, AuditHead } from '@integration-host/shared/contracts/audit'
import type { Fault } from '@integration-host/shared/contracts/credential'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { Credential, CredentialSummary, Grant } from './credential.ts'
import type { AuditContext, OutboxEntry } from './outbox.ts'

export interface CredentialStore {
  get(name: string): Promise<Credential | null>

  /** A page of credentials in the order of their names, beginning after the name `after`. */
  list(page: {
    readonly after: string
    readonly limit: number
  }): Promise<readonly CredentialSummary[]>

  /** `nextExpiryAt`: the earliest expiry of an access token that is still refreshed; `null` if there is none. */
  counts(): Promise<{
    readonly stored: number
    readonly faulted: number
    readonly nextExpiryAt: number | null
  }>

  /**
   * Stores a new grant, whatever is stored now. It ends leases, intents and faults, so a refresh in flight can
   * no longer commit. The version is one above the last one the name ever had, also after a removal, and above
   * `atLeast`. A call repeated with the same `id` stores nothing, so a later write is kept.
   */
  put(grant: Grant, dueAt: number, context: AuditContext, options?: PutOptions): Promise<Credential>

  /** Acquires the lease of a credential for `leaseMs` and reads the whole record in the same step. */
  acquire(name: string, owner: string, leaseMs: number): Promise<Acquired>

  /** Extends a lease; `false` if another process has it or it has expired. */
  renew(lease: Lease, leaseMs: number): Promise<boolean>

  release(lease: Lease): Promise<void>

  /** Stores that the refresh token of the lease's version is about to be used. `lost`: the lease has ended. */
  recordIntent(lease: Lease): Promise<'recorded' | 'lost'>

  /**
   * Replaces the pair of `lease.version` by the next one and clears intent, fault and lease. A repeated call
   * returns `committed` again. `fenced`: another process acquired the lease since and may be using the same
   * version. `superseded`: the version is a newer one, or the credential was removed.
   * `isNoticeNew`: the expiry notice of the grant is published with it.
   */
  commit(
    lease: Lease,
    grant: Grant,
    dueAt: number,
    context: AuditContext,
    isNoticeNew?: boolean,
  ): Promise<'committed' | 'fenced' | 'superseded'>

  /** Records a refresh that brought no pair, and releases the lease. */
  settle(lease: Lease, settlement: Settlement, context: AuditContext): Promise<'settled' | 'lost'>

  /** Removes a credential with everything of it; `changed`, and nothing done, when it is not `version`. */
  remove(
    name: string,
    revoked: boolean,
    context: AuditContext,
    version?: number,
  ): Promise<'removed' | 'changed' | 'absent'>

  /**
   * Names whose refresh is due by `now`, earliest first. Their due time becomes `now + postponeMs`, so that no
   * other replica gets them as well, and another one gets them if this process dies. `nextAt`: the earliest
   * due time after that; `null` if the index is empty.
   */
  takeDue(
    now: number,
    limit: number,
    postponeMs: number,
  ): Promise<{ readonly names: readonly string[]; readonly nextAt: number | null }>

  /** Adds audit facts that change no credential to the outbox; once for each `id`, however often it is called. */
  record(facts: readonly AuditFact[], id?: string): Promise<void>

  /**
   * Moves the audit facts of the next outbox entries, at most `limit`, into the audit log, each once and in
   * order. Resolves with the number of entries. Any replica may call it at any time.
   */
  audit(limit: number): Promise<number>

  /** Audit entries with a number above `after`, in order, and the newest one. */
  readAudit(
    after: number,
    limit: number,
  ): Promise<{ readonly items: readonly AuditEntry[]; readonly head: AuditHead }>

  /**
   * The oldest outbox entries that are audited and not yet trimmed; `null` while another replica has the relay
   * lease (one relay at a time keeps the order).
   */
  readOutbox(
    owner: string,
    leaseMs: number,
    limit: number,
  ): Promise<readonly PendingEvents[] | null>

  /** Releases the relay lease, so that another replica need not wait until it expires. */
  releaseOutbox(owner: string): Promise<void>

  /** Deletes entries whose events the broker has confirmed. */
  trimOutbox(ids: readonly string[]): Promise<void>

  /** Re-encrypts the secrets of one credential with the active key; `current`: they were already. */
  reseal(name: string): Promise<'resealed' | 'current' | 'refused' | 'absent'>

  /** Whether every secret of a credential can be decrypted with the configured keys; writes nothing. */
  checkDecryption(name: string): Promise<'decryptable' | 'refused' | 'absent'>

  /** Deletes the key check values of all keys but the active one, and resolves with the ids of those keys. */
  retireKeys(): Promise<readonly string[]>
}

export interface PutOptions {
  readonly atLeast?: number
  /** Identifies this grant; the same value when its put is retried. */
  readonly id?: string
  /** Requires this stored version (`null`: none), else {@link VersionConflict}. */
  readonly over?: number | null
}

/** Another process has written since the version was read; nothing was stored. */
export class VersionConflict extends Error {
  override readonly name = 'VersionConflict'
}

/** The right to use the refresh token of one version of a credential. */
export interface Lease {
  readonly name: string
  readonly owner: string
  /** The fencing token: grows with each lease, so that an older holder can be told from a newer one. */
  readonly fence: number
  readonly version: number
}

export type Acquired =
  | { readonly kind: 'absent' }
  | { readonly kind: 'busy' }
  | { readonly kind: 'acquired'; readonly leased: LeasedCredential }

/** A credential under lease, with the secrets that only the refresh protocol and the revocation see. */
export interface LeasedCredential {
  readonly lease: Lease
  readonly credential: Credential
  readonly refreshToken: Secret | null
  readonly idToken: Secret | null
  readonly previous: Grant['previous']
  /**
   * A process stored `ageMs` ago that it would use the token of this version, and no response was recorded
   * since; `null` if none did.
   */
  readonly intent: { readonly ageMs: number } | null
}

export interface Settlement {
  readonly attempts: number
  /** When the refresh is tried again, epoch ms; `null`: not before a new grant. */
  readonly nextTryAt: number | null
  /** The fault to lay over the credential; `null` leaves the present one. */
  readonly fault: Fault | null
  /** Whether the transition is published as an event. */
  readonly isPublished: boolean
  /** Whether the provider may have rotated the token: only a response clears an intent. */
  readonly keepsIntent: boolean
}

/** The events of one outbox entry that are to be published. */
export interface PendingEvents {
  readonly id: string
  readonly events: OutboxEntry['events']
}
