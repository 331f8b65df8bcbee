import type { CredentialView, Fault } from '@integration-host/shared/contracts/credential'
import type { Secret } from '@integration-host/shared/secrets/secret'

/** A credential without its secrets. Times are epoch milliseconds. */
export interface CredentialSummary {
  readonly name: string
  /** The realm; empty where none is known. */
  readonly environment: string
  readonly expiresAt: number
  /** When the request was started whose response brought this version. */
  readonly refreshedAt: number
  /** Counts token pairs: grows with each new pair and with nothing else. */
  readonly version: number
  /** The provider ends a grant that is not refreshed by then. */
  readonly idleExpiresAt: number
  /** The provider ends the grant then, however often it is refreshed; `null` if it did not say. */
  readonly hardExpiresAt: number | null
  /** The last notice published of the hard expiry, in days before it; `null`: none yet. */
  readonly expiryNoticeDays: ExpiryNoticeDays | null
  /** An overlay: the pair below it is kept, and its access token is served until it expires. */
  readonly fault: Fault | null
  /** Refreshes that failed since the last success. */
  readonly attempts: number
  /** No refresh before this time, unless it is forced; `null`: no restriction. */
  readonly nextTryAt: number | null
}

export interface Credential extends CredentialSummary {
  /** `null` if the record's `Authenticator` is the empty string. */
  readonly accessToken: Secret | null
}

/** A complete token pair to be stored: after a code exchange, a refresh or an import. */
export interface Grant extends Pick<
  CredentialSummary,
  | 'name'
  | 'environment'
  | 'expiresAt'
  | 'refreshedAt'
  | 'idleExpiresAt'
  | 'hardExpiresAt'
  | 'expiryNoticeDays'
> {
  /** `null` in an imported credential that had none. */
  readonly accessToken: Secret | null
  /** `null` if the provider gave none: such a credential can be used until its access token expires. */
  readonly refreshToken: Secret | null
  readonly idToken: Secret | null
  /** The previous refresh token, which providers with a grace period still accept. */
  readonly previous: { readonly token: Secret; readonly retiredAt: number } | null
}

export type Freshness = 'fresh' | 'due' | 'expired'

/** `fresh`: valid and not due; `due`: valid, but its refresh is due; `expired`: no valid access token. */
export function freshness(
  credential: Pick<
    Credential,
    'name' | 'accessToken' | 'expiresAt' | 'refreshedAt' | 'idleExpiresAt'
  >,
  now: number,
  refreshAheadMs: number,
): Freshness {
  if (credential.accessToken === null || now >= credential.expiresAt) return 'expired'
  return now < refreshDueAt(credential, refreshAheadMs) ? 'fresh' : 'due'
}

/**
 * When the proactive refresh of a credential starts: `refreshAheadMs` before expiry, ±20 % by realm so
 * that realms connected together are not refreshed together. Never earlier than half the lifetime: a
 * short-lived token would otherwise be due at once, and be refreshed endlessly. And well before the
 * provider would end the grant for being idle, whatever the lifetime of its access tokens.
 */
export function refreshDueAt(
  {
    name,
    expiresAt,
    refreshedAt,
    idleExpiresAt,
  }: Pick<CredentialSummary, 'name' | 'expiresAt' | 'refreshedAt' | 'idleExpiresAt'>,
  refreshAheadMs: number,
): number {
  const jitter = spread(name)
  const aheadMs = refreshAheadMs * (0.8 + 0.4 * jitter)
  const dueAt = expiresAt - Math.min(aheadMs, Math.max(0, expiresAt - refreshedAt) / 2)
  const idleRefreshAt = refreshedAt + (idleExpiresAt - refreshedAt) * (0.5 + 0.2 * jitter)
  return Math.floor(Math.min(dueAt, idleRefreshAt))
}

const DAY_MS = 86_400_000
const noticeDays = [7, 30, 90] as const
export type ExpiryNoticeDays = (typeof noticeDays)[number]

/** The notice of a grant's hard expiry that is due: it is that many days away or fewer; `null`: none yet. */
export const expiryNotice = (hardExpiresAt: number | null, now: number): ExpiryNoticeDays | null =>
  (hardExpiresAt !== null && noticeDays.find((days) => hardExpiresAt - now <= days * DAY_MS)) ||
  null

/** How long the provider keeps a grant according to its response, in epoch ms. */
export function grantLimits(
  tokens: { readonly idleSeconds: number | null; readonly hardSeconds: number | null },
  startedAt: number,
  idleLimitMs: number,
): { readonly idleExpiresAt: number; readonly hardExpiresAt: number | null } {
  const idleMs = tokens.idleSeconds === null ? idleLimitMs : tokens.idleSeconds * 1_000
  return {
    idleExpiresAt: startedAt + Math.min(idleMs, idleLimitMs),
    hardExpiresAt: tokens.hardSeconds === null ? null : startedAt + tokens.hardSeconds * 1_000,
  }
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

/** The lifetime of an access token whose response has no usable `expires_in` (RFC 6749 §5.1 makes it optional). */
const DEFAULT_LIFETIME_SECONDS = 3_000
/** The longest lifetime that is believed: a wrong number must not keep a credential from being refreshed. */
const MAX_LIFETIME_SECONDS = 86_400

/** Seconds from a received `expires_in`: a positive number, also as text, at most a day; else the default. */
export function lifetimeSeconds(expiresIn: unknown): number {
  const isNumeric = typeof expiresIn === 'string' && /^\s*\d+(\.\d+)?\s*$/.test(expiresIn)
  const seconds = isNumeric ? Number(expiresIn) : expiresIn
  if (typeof seconds !== 'number' || Number.isNaN(seconds) || seconds <= 0)
    return DEFAULT_LIFETIME_SECONDS
  return Math.min(seconds, MAX_LIFETIME_SECONDS)
}

/** The credential as the API shows it: everything but the secrets. */
export function viewOf(credential: CredentialSummary): CredentialView {
  return {
    Name: credential.name,
    Environment: credential.environment,
    Expiry: new Date(credential.expiresAt).toISOString(),
    Status: credential.fault === null ? 'active' : 'faulted',
    Version: credential.version,
    RefreshedAt: new Date(credential.refreshedAt).toISOString(),
    ...(credential.hardExpiresAt !== null && {
      HardExpiry: new Date(credential.hardExpiresAt).toISOString(),
    }),
    ...(credential.fault !== null && { Fault: credential.fault }),
  }
}

/** The credential that a stored grant makes. */
export const credentialOf = (grant: Grant, version: number): Credential => ({
  name: grant.name,
  environment: grant.environment,
  expiresAt: grant.expiresAt,
  refreshedAt: grant.refreshedAt,
  idleExpiresAt: grant.idleExpiresAt,
  hardExpiresAt: grant.hardExpiresAt,
  expiryNoticeDays: grant.expiryNoticeDays,
  version,
  fault: null,
  attempts: 0,
  nextTryAt: null,
  accessToken: grant.accessToken,
})
