import type { CredentialView, Fault } from '@integration-host/shared/contracts/credential'
import type { Secret } from '@integration-host/shared/secret'

/** What is known of a credential without opening a secret. Times are epoch milliseconds. */
export interface CredentialSummary {
  readonly name: string
  /** The realm; empty where none is known. */
  readonly environment: string
  readonly expiresAt: number
  /** When the request that brought this version was started. */
  readonly refreshedAt: number
  /** Counts token pairs: moves with each new pair and with nothing else. */
  readonly version: number
  /** An overlay: the pair below it is kept, and its access token is served until it expires. */
  readonly fault: Fault | null
  /** Refreshes that failed since the last success. */
  readonly attempts: number
  /** No refresh before this time, unless a person asks. */
  readonly nextTryAt: number | null
}

export interface Credential extends CredentialSummary {
  /** Null where the record's `Authenticator` is the empty string. */
  readonly accessToken: Secret | null
}

/** A whole token pair to be stored: after a code exchange or a refresh. */
export interface Grant {
  readonly name: string
  readonly environment: string
  readonly expiresAt: number
  readonly refreshedAt: number
  readonly accessToken: Secret
  /** Null when the provider gave none: such a credential lives until its access token expires. */
  readonly refreshToken: Secret | null
  readonly idToken: Secret | null
  /** The refresh token before this one: providers with a grace period still take it. */
  readonly previous: { readonly token: Secret; readonly retiredAt: number } | null
}

export type Freshness = 'fresh' | 'due' | 'expired'

/** Whether a credential is good, good but to be refreshed by now, or has no valid access token. */
export function freshness(
  credential: Pick<Credential, 'name' | 'accessToken' | 'expiresAt' | 'refreshedAt'>,
  now: number,
  refreshAheadMs: number,
): Freshness {
  if (credential.accessToken === null || now >= credential.expiresAt) return 'expired'
  return now < refreshDueAt(credential, refreshAheadMs) ? 'fresh' : 'due'
}

/**
 * When the proactive refresh of a credential starts: `refreshAheadMs` before expiry, ±20 % by realm so
 * that realms connected together do not come back together. Never earlier than half the lifetime: a
 * short-lived token would otherwise be due from its first moment, and be refreshed for ever.
 */
export function refreshDueAt(
  { name, expiresAt, refreshedAt }: Pick<CredentialSummary, 'name' | 'expiresAt' | 'refreshedAt'>,
  refreshAheadMs: number,
): number {
  const aheadMs = refreshAheadMs * (0.8 + 0.4 * spread(name))
  return Math.floor(expiresAt - Math.min(aheadMs, Math.max(0, expiresAt - refreshedAt) / 2))
}

/** A number in [0, 1) that is the same for a name on every replica (FNV-1a). */
export function spread(name: string): number {
  let hash = 0x811c9dc5
  for (let index = 0; index < name.length; index += 1) {
    hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193)
  }
  // FNV changes the high bits of short, similar names too little.
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d)
  return ((hash ^ (hash >>> 13)) >>> 0) / 2 ** 32
}

/** A lifetime of a token response that gives none (the seed, section 8). */
const DEFAULT_LIFETIME_SECONDS = 3_000
/** No access token is trusted longer, whatever the provider says: a wrong number must not stop refreshing. */
const MAX_LIFETIME_SECONDS = 86_400

/** Seconds of `expires_in` as it came: a positive number, also as text; else the default. Never lengthened. */
export function lifetimeSeconds(expiresIn: unknown): number {
  const isNumeric = typeof expiresIn === 'string' && /^\s*\d+(\.\d+)?\s*$/.test(expiresIn)
  const seconds = isNumeric ? Number(expiresIn) : expiresIn
  if (typeof seconds !== 'number' || Number.isNaN(seconds) || seconds <= 0)
    return DEFAULT_LIFETIME_SECONDS
  return Math.min(seconds, MAX_LIFETIME_SECONDS)
}

/** The credential as callers see it: everything but the secrets. */
export function viewOf(credential: CredentialSummary): CredentialView {
  return {
    Name: credential.name,
    Environment: credential.environment,
    Expiry: new Date(credential.expiresAt).toISOString(),
    Status: credential.fault === null ? 'active' : 'faulted',
    Version: credential.version,
    RefreshedAt: new Date(credential.refreshedAt).toISOString(),
    ...(credential.fault !== null && { Fault: credential.fault }),
  }
}

/** The credential that a stored grant amounts to. */
export const credentialOf = (grant: Grant, version: number): Credential => ({
  name: grant.name,
  environment: grant.environment,
  expiresAt: grant.expiresAt,
  refreshedAt: grant.refreshedAt,
  version,
  fault: null,
  attempts: 0,
  nextTryAt: null,
  accessToken: grant.accessToken,
})
