/**
 * The port to where credentials live. The Redis adapter is the real one, the file adapter the embedded
 * host's; one contract suite (credential-store.contract.ts) holds both to what is written here.
 *
 * Every write is atomic, compares the credential's version first, and appends what it did to the journal in
 * the same step: what is stored is audited and announced, what is audited and announced was stored. From the
 * journal the facts go into the audit log, and after that the events to the broker.
 *
 * All methods throw `IntegrationError` `store_unavailable` when the store cannot be used; a write may then
 * have happened all the same. Those that open secrets throw `DecryptionError` for a record that was
 * changed, moved or sealed with another key.
 */
import type { AuditEntry, AuditFact, AuditHead } from '@integration-host/shared/contracts/audit'
import type { Fault } from '@integration-host/shared/contracts/credential'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { Credential, CredentialSummary, Grant } from './credential.ts'
import type { AuditContext, OutboxEntry } from './outbox.ts'

export interface CredentialStore {
  get(name: string): Promise<Credential | null>

  /** Credentials in the order of their names, those after `after` first. */
  list(page: {
    readonly after: string
    readonly limit: number
  }): Promise<readonly CredentialSummary[]>

  /** `nextExpiryAt`: the earliest expiry of an access token that is still to be refreshed. */
  counts(): Promise<{
    readonly stored: number
    readonly faulted: number
    readonly nextExpiryAt: number | null
  }>

  /**
   * Stores a new grant over whatever is there. It ends leases, intents and faults: a refresh in flight can
   * no longer write. The version goes on from the last one the name ever had, also after a removal, and
   * from `atLeast`. Saying it twice with the same `id` stores once; what came after the first stays.
   */
  put(grant: Grant, dueAt: number, context: AuditContext, options?: PutOptions): Promise<Credential>

  /** Takes the lease of a credential for `leaseMs` and reads everything of it in the same step. */
  acquire(name: string, owner: string, leaseMs: number): Promise<Acquired>

  /** Prolongs a lease; false when it is no longer held. */
  renew(lease: Lease, leaseMs: number): Promise<boolean>

  release(lease: Lease): Promise<void>

  /** Writes down that the lease's version is about to be spent. `lost`: not under this lease any more. */
  recordIntent(lease: Lease): Promise<'recorded' | 'lost'>

  /**
   * Replaces the pair of `lease.version` by the next one, clears intent, fault and lease.
   * Saying it twice is `committed` twice. `fenced`: somebody took the lease after us and may be spending
   * the same version. `superseded`: the version has moved on, or the credential is gone.
   * `isNoticeNew`: the grant's expiry notice is to be announced with it.
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
   * Names whose refresh is due by `now`, earliest first. They are put off to `now + holdMs`, so that no
   * other replica takes them as well and a taker that dies does not keep them. `nextAt`: the earliest
   * time left in the index.
   */
  takeDue(
    now: number,
    limit: number,
    holdMs: number,
  ): Promise<{ readonly names: readonly string[]; readonly nextAt: number | null }>

  /** Journals facts that change no credential; once, however often it is said with the same `id`. */
  record(facts: readonly AuditFact[], id?: string): Promise<void>

  /**
   * Moves the facts of the next journal entries, at most `limit`, into the audit log, each once and in
   * order. Resolves with the number of entries; any replica may do it at any time.
   */
  audit(limit: number): Promise<number>

  /** Audit entries with a number above `after`, in order, and the newest one. */
  readAudit(
    after: number,
    limit: number,
  ): Promise<{ readonly items: readonly AuditEntry[]; readonly head: AuditHead }>

  /**
   * The oldest journal entries that are audited and not yet trimmed; null while another replica relays
   * (one at a time keeps the order).
   */
  readOutbox(
    owner: string,
    leaseMs: number,
    limit: number,
  ): Promise<readonly PendingEvents[] | null>

  /** Gives the relaying up, so that another replica need not wait for the lease to run out. */
  releaseOutbox(owner: string): Promise<void>

  /** Forgets entries whose events the broker has confirmed. */
  trimOutbox(ids: readonly string[]): Promise<void>

  /** Seals the secrets of one credential with the active key, where they are not yet. */
  reseal(name: string): Promise<'resealed' | 'current' | 'refused' | 'absent'>

  /** Whether every secret of a credential opens with the keys at hand; writes nothing. */
  opens(name: string): Promise<'opens' | 'refused' | 'absent'>

  /** Forgets which keys but the active one this store was written with; their ids. */
  retireKeys(): Promise<readonly string[]>
}

export interface PutOptions {
  readonly atLeast?: number
  /** Of this grant, the same when its put is tried again. */
  readonly id?: string
  /** Only over this version (null: only where there is none), else {@link VersionConflict}. */
  readonly over?: number | null
}

/** Somebody else has written since the version was read; nothing was stored. */
export class VersionConflict extends Error {
  override readonly name = 'VersionConflict'
}

/** The right to spend one version of a credential. */
export interface Lease {
  readonly name: string
  readonly owner: string
  /** Grows with each lease ever given: an older holder can be told from a newer one. */
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
  /** Somebody began to spend this version `ageMs` ago and never told how it ended. */
  readonly intent: { readonly ageMs: number } | null
}

export interface Settlement {
  readonly attempts: number
  /** When the refresh is tried again; null: not before a new grant. */
  readonly nextTryAt: number | null
  /** The fault to lay over the credential; null leaves it as it is. */
  readonly fault: Fault | null
  /** Whether the transition is worth an event. */
  readonly isPublished: boolean
  /** True while it is open whether the provider has rotated: only an answer clears an intent. */
  readonly keepsIntent: boolean
}

export interface PendingEvents {
  readonly id: string
  readonly events: OutboxEntry['events']
}
