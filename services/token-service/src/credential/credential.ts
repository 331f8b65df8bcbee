import type {
  CredentialState,
  CredentialView,
  Fault,
} from '@integration-host/shared/contracts/credential'
import { labelMembersOf } from '@integration-host/shared/contracts/text'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { TokenSet } from '../provider/provider.ts'
import { isTerminal } from './fault.ts'
import type { Labels, LabelsChange } from './labels.ts'

/** A credential without its secrets. Times are epoch milliseconds. */
export interface CredentialSummary extends Labels {
  readonly name: string
  /** The realm; empty if the realm is not known. */
  readonly environment: string
  readonly expiresAt: number
  /** The time at which the request for this token pair was sent. */
  readonly refreshedAt: number
  /** The version of the token pair. It increases by one with each new token pair, and no other change affects it. */
  readonly version: number
  /** The time at which the provider ends the grant unless the grant is refreshed by then. */
  readonly idleExpiresAt: number
  /**
   * The time at which the provider ends the grant even if it is refreshed; `null` if the provider sent no such limit.
   */
  readonly hardExpiresAt: number | null
  /**
   * The notice period of the last published expiry notice, in days before the hard expiry; `null` if there was none.
   */
  readonly expiryNoticeDays: ExpiryNoticeDays | null
  /** The reason why refreshes fail. The token pair is kept, and its access token is issued until it expires. */
  readonly fault: Fault | null
  /** The number of failed refreshes since the last success. */
  readonly attempts: number
  /**
   * The time of the next scheduled attempt after a failed refresh; `null` if a refresh may start at any time. A caller
   * can force an earlier attempt.
   */
  readonly nextTryAt: number | null
}

export interface Credential extends CredentialSummary {
  /** The access token; `null` if the stored record has none. */
  readonly accessToken: Secret | null
}

/**
 * A complete token pair to be stored after a code exchange, a refresh or an import. A new grant may also have a label
 * and tags, which are stored with it. A refresh never stores labels.
 */
export interface Grant
  extends
    LabelsChange,
    Pick<
      CredentialSummary,
      | 'name'
      | 'environment'
      | 'expiresAt'
      | 'refreshedAt'
      | 'idleExpiresAt'
      | 'hardExpiresAt'
      | 'expiryNoticeDays'
    > {
  /** The access token; `null` if the grant was imported without one. */
  readonly accessToken: Secret | null
  /**
   * The refresh token; `null` if the provider sent none. Without a refresh token, a credential can be used until its
   * access token expires.
   */
  readonly refreshToken: Secret | null
  readonly idToken: Secret | null
  /** The previous refresh token. A provider with a grace period accepts it for some time after the rotation. */
  readonly previous: { readonly token: Secret; readonly retiredAt: number } | null
  /**
   * Whether this installation has received the refresh token from the provider and has not used it yet; `false` by
   * default.
   */
  readonly isUnused?: boolean
}

export type Freshness = 'fresh' | 'due' | 'expired'

/**
 * Returns the freshness of the access token.
 *
 * - `fresh`: the token is valid, and its refresh is not due yet.
 * - `due`: the token is valid, and its proactive refresh should start.
 * - `expired`: there is no valid access token.
 */
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
 * Returns the time at which the proactive refresh of a credential starts, in epoch ms: `refreshAheadMs` before the
 * access token expires. The margin varies by ±20 % between realms. Realms that were connected at the same time are
 * therefore not all refreshed at the same time.
 *
 * The time is never before half of the token's lifetime, because otherwise a short-lived token would be refreshed
 * continuously. The refresh starts at the latest when 50 to 70 % of the idle limit have passed, because the provider
 * ends a grant that is not refreshed within the idle limit.
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

/**
 * Returns the shortest notice period, in days, within which the grant ends (`hardExpiresAt`); `null` if the grant
 * ends later than all notice periods.
 */
export const expiryNotice = (hardExpiresAt: number | null, now: number): ExpiryNoticeDays | null =>
  (hardExpiresAt !== null && noticeDays.find((days) => hardExpiresAt - now <= days * DAY_MS)) ||
  null

/**
 * Computes the times of a grant from the lifetimes in a response. They are counted from the start of the request, because
 * the provider may have issued the tokens at any time since then. An unused refresh token expires after `idleLimitMs`.
 *
 * @param knownHardExpiresAt the hard expiry if the response does not contain one
 */
export function grantTimes(
  tokens: Pick<TokenSet, 'lifetimeSeconds' | 'idleSeconds' | 'hardSeconds'>,
  startedAt: number,
  idleLimitMs: number,
  knownHardExpiresAt: number | null = null,
): Pick<
  Grant,
  'expiresAt' | 'refreshedAt' | 'idleExpiresAt' | 'hardExpiresAt' | 'expiryNoticeDays'
> {
  const { idleSeconds, hardSeconds } = tokens
  const idleMs = idleSeconds === null ? idleLimitMs : idleSeconds * 1_000
  const hardExpiresAt = hardSeconds === null ? knownHardExpiresAt : startedAt + hardSeconds * 1_000
  return {
    expiresAt: startedAt + Math.floor(tokens.lifetimeSeconds * 1_000),
    refreshedAt: startedAt,
    idleExpiresAt: startedAt + Math.min(idleMs, idleLimitMs),
    hardExpiresAt,
    expiryNoticeDays: expiryNotice(hardExpiresAt, startedAt),
  }
}

/**
 * Returns the grant after a token request with the refresh token `used`. Members that the response lacks keep their
 * values of the grant `before`.
 */
export function renewedGrant(
  before: Pick<
    Grant,
    'name' | 'environment' | 'hardExpiresAt' | 'refreshToken' | 'idToken' | 'previous'
  >,
  used: Secret,
  tokens: TokenSet,
  startedAt: number,
  idleLimitMs: number,
): Grant {
  const { name, environment, refreshToken } = before
  const next = tokens.refreshToken ?? used // Without a new refresh token, the sent one stays valid (RFC 6749 §6).
  const isRotated = refreshToken !== null && next.reveal() !== refreshToken.reveal()
  return {
    name,
    environment,
    ...grantTimes(tokens, startedAt, idleLimitMs, before.hardExpiresAt),
    accessToken: tokens.accessToken,
    refreshToken: next,
    idToken: tokens.idToken ?? before.idToken,
    previous: isRotated ? { token: refreshToken, retiredAt: startedAt } : before.previous,
    isUnused: isRotated && next.reveal() !== used.reveal(),
  }
}

/** Returns a number in [0, 1) that is the same for a name on every replica (FNV-1a hash). */
export function spread(name: string): number {
  let hash = 0x811c9dc5
  for (let index = 0; index < name.length; index += 1) {
    hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193)
  }
  // FNV-1a leaves the high bits of short, similar names nearly equal. These two steps mix all bits.
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d)
  return ((hash ^ (hash >>> 13)) >>> 0) / 2 ** 32
}

/**
 * The assumed lifetime of an access token if the response has no usable `expires_in`. RFC 6749 §5.1 makes this member
 * optional.
 */
const DEFAULT_LIFETIME_SECONDS = 3_000
/**
 * The maximum accepted lifetime of an access token. A wrong value from the provider thus cannot prevent refreshes for
 * years.
 */
const MAX_LIFETIME_SECONDS = 86_400

/**
 * Returns the token lifetime in seconds for a received `expires_in`, which may be a number or numeric text. The result
 * is at most one day. If the value is not positive, the result is the default lifetime.
 */
export function lifetimeSeconds(expiresIn: unknown): number {
  const isNumeric = typeof expiresIn === 'string' && /^\s*\d+(\.\d+)?\s*$/.test(expiresIn)
  const seconds = isNumeric ? Number(expiresIn) : expiresIn
  if (typeof seconds !== 'number' || Number.isNaN(seconds) || seconds <= 0)
    return DEFAULT_LIFETIME_SECONDS
  return Math.min(seconds, MAX_LIFETIME_SECONDS)
}

/** Returns the state of a credential, by which lists can be filtered. */
export function stateOf({
  fault,
  expiryNoticeDays,
}: Pick<CredentialSummary, 'fault' | 'expiryNoticeDays'>): CredentialState {
  if (fault !== null) return isTerminal(fault) ? 'must_reconnect' : 'failing'
  return expiryNoticeDays === null ? 'active' : 'expiring'
}

/** Returns the credential as the API shows it, without secrets. */
export function viewOf(credential: CredentialSummary, refreshAheadMs: number): CredentialView {
  const { fault, nextTryAt, idleExpiresAt, hardExpiresAt } = credential
  const text = (at: number): string => new Date(at).toISOString()
  return {
    Name: credential.name,
    Environment: credential.environment,
    ...labelMembersOf(credential),
    Expiry: text(credential.expiresAt),
    Status: fault === null ? 'active' : 'faulted',
    State: stateOf(credential),
    Version: credential.version,
    RefreshedAt: text(credential.refreshedAt),
    ...((fault === null || !isTerminal(fault)) && {
      RefreshDueAt: text(nextTryAt ?? refreshDueAt(credential, refreshAheadMs)),
    }),
    ...(Number.isFinite(idleExpiresAt) && { IdleExpiry: text(idleExpiresAt) }),
    ...(hardExpiresAt !== null && { HardExpiry: text(hardExpiresAt) }),
    Attempts: credential.attempts,
    ...(nextTryAt !== null && { NextTryAt: text(nextTryAt) }),
    ...(fault !== null && { Fault: fault }),
  }
}

/** Returns the credential that results from storing `grant` as `version`, with these labels. */
export const credentialOf = (
  grant: Grant,
  version: number,
  { label, tags, company }: Labels,
): Credential => ({
  label,
  tags,
  company,
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
