/**
 * The port to the short-lived records of authorizations: used `state` values, labels and code claims. A claim gives one
 * replica the right to exchange a code. States and codes are stored as digests ({@link digest}).
 *
 * Every adapter passes the same contract suite. All methods throw `IntegrationError` `store_unavailable` if the store
 * cannot be used.
 */
import { createHash } from 'node:crypto'
import type { PlaceLimits } from '@integration-host/shared/access/caller'
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import { type ErrorCode, IntegrationError, quotaExceeded } from '@integration-host/shared/errors'
import type { LabelsChange } from '../credential/labels.ts'

export interface AuthorizationStore {
  /** Records for `ttlMs` that a state was used. Resolves with `false` if the state had already been used. */
  useState(state: string, ttlMs: number): Promise<boolean>

  /** Whether a state is recorded as used. Writes nothing. */
  isStateUsed(state: string): Promise<boolean>

  /**
   * Stores the label and tags of an authorization under its state for `ttlMs`. When the credential of the company is
   * stored, the credential gets this label and these tags.
   *
   * @param shareOf the key to whose share the authorization belongs (`Caller.shareOf`)
   * @throws {IntegrationError} `quota_exceeded` if the key has too many pending authorizations with a label or tags;
   * `busy` if all keys together have too many ({@link PENDING_LABELS}).
   */
  keepLabels(
    state: string,
    labels: LabelsChange,
    ttlMs: number,
    shareOf: string | null,
  ): Promise<void>

  /** Resolves with the label and tags that were stored for a state; `null` if there are none. */
  readLabels(state: string): Promise<LabelsChange | null>

  /**
   * Records that a disconnect hint (disconnect-hints.ts) about the credential `name` causes a refresh. Resolves with
   * `false` if less than `intervalMs` have passed since another hint caused a refresh.
   */
  admitHint(name: string, intervalMs: number): Promise<boolean>

  /** Claims a code for `ttlMs`. Resolves with the earlier claim, or with `null` if there was none. */
  claimCode(code: string, claim: CodeClaim, ttlMs: number): Promise<CodeClaim | null>

  /** Resolves with the current claim of a code; `null` if there is none. */
  readCode(code: string): Promise<CodeClaim | null>

  /** Stores the claim of a code together with the result of the code exchange, for another `ttlMs`. */
  settleCode(code: string, claim: CodeClaim, ttlMs: number): Promise<void>
}

/**
 * How many pending authorizations with a label or tags may be stored. Labels and tags have up to 4 KB, so they take at
 * most about 40 MB of the store that also has the credentials.
 */
export const PENDING_LABELS: PlaceLimits = { total: 10_000, perKey: 1_000 }

/** Returns the error if all keys together have too many pending authorizations. */
export const tooManyPending = (): IntegrationError =>
  new IntegrationError('busy', 'too many authorizations with a label or tags are pending; retry', {
    retryAfterSeconds: 60,
  })

/** Returns the error if one key has too many pending authorizations. */
export const tooManyPendingOfKey = (): IntegrationError =>
  quotaExceeded('pending authorizations with a label or tags', PENDING_LABELS.perKey)

export interface CodeClaim {
  readonly realm: string
  /** The digest of the state in the callback with this code; `null` if another application received the code. */
  readonly state: string | null
  readonly returnTo: string | null
  readonly result: ExchangeResult | null
}

export type ExchangeResult =
  | { readonly kind: 'stored'; readonly credential: CredentialView }
  | { readonly kind: 'failed'; readonly code: ErrorCode; readonly detail: string }

/**
 * Returns the SHA-256 of a state, a code or a cookie. The store keeps only digests, because it only compares these
 * values.
 */
export const digest = (value: string): string =>
  createHash('sha256').update(value).digest('base64url')
