/** The possible results of an adoption: taking over a grant that another program obtained (adoption.ts). */
import { createHash } from 'node:crypto'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { LeasedCredential } from './credential-store.ts'
import { isGrantRejected, isProvisional } from './fault.ts'

export type Adoption =
  | {
      readonly kind: 'stored'
      readonly version: number
      /** How the accepted token response differs from RFC 6749; absent if it does not. */
      readonly oddities?: readonly string[]
    }
  | { readonly kind: 'already_here'; readonly version: number; readonly reason: string }
  /** The grant was rejected. Another attempt to adopt it cannot succeed. */
  | {
      readonly kind: 'refused'
      readonly code: string
      readonly reason: string
      readonly traceId: string | null
    }
  | {
      readonly kind: 'unavailable'
      readonly code: string
      readonly reason: string
      readonly retryAfterMs: number
    }

/**
 * Returns the id of an adopted refresh token, which is its digest. Refresh tokens cannot be guessed, so the digest does
 * not reveal the token.
 */
export const adoptionId = (refreshToken: Secret): string =>
  `adopted-${createHash('sha256').update(refreshToken.reveal()).digest('base64url')}`

export const REASONS = {
  throttled: 'the provider throttles',
  client_refused: 'the provider rejects the credentials of this application',
} as const

export const ROTATION_LOST =
  'the provider rejects the token; the response to an earlier request with this token was lost and may have contained a newer token: reconnect the company'

/**
 * How long a caller should wait before it repeats a failed adoption, in milliseconds. A wait that the provider requests
 * takes precedence.
 */
export const RETRY_MS = 2_000

export const unavailable = (code: string, reason: string, retryAfterMs: number): Adoption => ({
  kind: 'unavailable',
  code,
  reason,
  retryAfterMs,
})

export const shuttingDown = unavailable('shutting_down', 'the service is shutting down', RETRY_MS)

/**
 * Returns the result if the stored credential forbids the adoption (A1, A5); `null` if the credential may be replaced.
 */
export function withoutAdoption(
  { lease, credential }: LeasedCredential,
  id: string,
): Adoption | null {
  const { fault, version } = credential
  const wasAdopted = lease.grantId === id
  if (!isGrantRejected(fault) || (wasAdopted && isProvisional(fault))) {
    const reason = wasAdopted ? 'this token was adopted before' : 'the company is connected here'
    return { kind: 'already_here', version, reason }
  }
  if (!wasAdopted) return null
  const reason = `it was adopted before, and the grant has ended since (${fault?.Code}): reconnect the company`
  return { kind: 'refused', code: fault?.Code ?? '', reason, traceId: fault?.TraceId ?? null }
}
