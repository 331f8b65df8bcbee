import { credentialName } from '@integration-host/shared/contracts/realm'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { TokenSet } from '../provider/provider.ts'
import { expiryNotice, type Grant, grantLimits } from './credential.ts'
import type { LabelsChange } from './labels.ts'

/** A grant that another program obtained from the provider. */
export interface ForeignGrant {
  readonly realm: string
  readonly environment: string
  /** The newest refresh token that the other program received. */
  readonly refreshToken: Secret
  /** The label and tags for the credential. */
  readonly labels: LabelsChange
}

/**
 * Returns the grant to store after the provider has exchanged the refresh token of a foreign grant.
 *
 * @param startedAt when the request was sent, in epoch ms. An unused refresh token expires after `idleLimitMs`.
 */
export function adoptedGrant(
  { realm, environment, refreshToken, labels }: ForeignGrant,
  tokens: TokenSet,
  { startedAt, idleLimitMs }: { readonly startedAt: number; readonly idleLimitMs: number },
): Grant {
  const limits = grantLimits(tokens, startedAt, idleLimitMs)
  // If the response contains no new refresh token, the refresh token of the request stays valid (RFC 6749 §6).
  const next = tokens.refreshToken ?? refreshToken
  const isRotated = next.reveal() !== refreshToken.reveal()
  return {
    name: credentialName(realm),
    environment,
    expiresAt: startedAt + Math.floor(tokens.lifetimeSeconds * 1_000),
    refreshedAt: startedAt,
    ...limits,
    expiryNoticeDays: expiryNotice(limits.hardExpiresAt, startedAt),
    accessToken: tokens.accessToken,
    refreshToken: next,
    idToken: tokens.idToken,
    previous: isRotated ? { token: refreshToken, retiredAt: startedAt } : null,
    isUnused: isRotated,
    ...labels,
  }
}
