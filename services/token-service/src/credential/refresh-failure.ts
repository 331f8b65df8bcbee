/** Decides what a failed refresh stores in the record of a credential. */
import type { Fault } from '@integration-host/shared/contracts/credential'
import type { ProviderResponse } from '../provider/provider.ts'
import type { CredentialSummary } from './credential.ts'
import type { LeasedCredential, Settlement } from './credential-store.ts'
import {
  type FaultClass,
  faultClasses,
  faultOf,
  hasEndedGrant,
  isProvisional,
  isTerminal,
  retryDelayMs,
} from './fault.ts'

/**
 * The reason why a refresh returned no token pair. `throttled` and `client_refused` are not fault classes, because they
 * do not concern the grant.
 */
export type RefreshFailureClass = FaultClass | 'throttled' | 'client_refused'

export interface RefreshFailure {
  readonly failureClass: RefreshFailureClass
  readonly response: Pick<ProviderResponse, 'body' | 'traceId'>
  /**
   * How long no further token request may be sent, as required by the provider's Retry-After or by the circuit breaker
   * for client credentials.
   */
  readonly retryAfterMs: number | null
  /** Whether the provider may have rotated the refresh token although no token pair was received. */
  readonly isAmbiguous: boolean
}

export interface RefreshFailureContext {
  /** The current time in epoch milliseconds. */
  readonly at: number
  /** A random number in [0, 1). */
  readonly random: number
  /**
   * Whether a caller needs a new token now, because no valid access token is stored or because the caller
   * requested a refresh.
   */
  readonly isTokenNeeded: boolean
  /** The delays before each further attempt with a rejected refresh token (I10 of refresh.ts). */
  readonly rejectedGrantRetryDelaysMs: readonly number[]
  /** The last time at which the store may have lost writes, in epoch ms; `null` if there was none. */
  readonly storeChangedAt: number | null
}

/** Returns whether a failure means that the grant has ended, either finally or provisionally. */
export const endsGrant = (failureClass: RefreshFailureClass): boolean =>
  isFaultClass(failureClass) && faultClasses[failureClass].endsGrant

/**
 * Decides which fault a failed refresh stores, when the next attempt is due, and whether the fault is published as an
 * event.
 */
export function settlementOf(
  credential: Pick<CredentialSummary, 'name' | 'attempts' | 'fault' | 'refreshedAt'>,
  failure: RefreshFailure,
  context: RefreshFailureContext,
): Settlement {
  const { failureClass, isAmbiguous } = failure
  const { at, random } = context
  const standing = credential.fault
  const isClientRejected = failureClass === 'client_refused'
  // The client credentials belong to the application and not to a company. Their rejection is therefore not counted as
  // a failed attempt of a credential.
  const attempts = isClientRejected ? credential.attempts : credential.attempts + 1
  const isRejection = isFaultClass(failureClass) && faultClasses[failureClass].isRejection
  // Anyone can report that a company has disconnected the application. Earlier rejections are therefore not counted
  // after such a report. Otherwise reports during an outage of the provider could end a grant.
  const isReported = failureClass === 'disconnected' && standing?.Code !== 'disconnected'
  const counted = (standing?.Rejections ?? 0) + (isReported ? 0 : 1)
  const rejections = isRejection ? Math.max(1, counted) : 0
  const rejectedDelayMs = isRejection
    ? (context.rejectedGrantRetryDelaysMs[rejections - 1] ?? null)
    : null
  const isFinal = endsGrant(failureClass) && rejectedDelayMs === null

  let nextTryAt: number | null = null
  if (!isFinal) {
    // The next probe of the client credentials is sent without jitter, because jitter would only delay the recovery of
    // all credentials.
    const probeDelayMs = isClientRejected ? failure.retryAfterMs : null
    const delayMs =
      rejectedDelayMs ?? probeDelayMs ?? retryDelayMs(attempts, failure.retryAfterMs, random)
    // A rejected refresh token is not sent again before its planned time, even after a failure that does not concern
    // the grant (I10).
    const plannedAt =
      isProvisional(standing) && !isRejection ? Date.parse(standing.NextTryAt ?? '') : 0
    nextTryAt = Math.max(at + delayMs, plannedAt || 0)
  }

  let fault: Fault | null = null
  if (
    endsGrant(failureClass) ||
    // A brief outage of the provider is not recorded as a fault while a valid access token can be issued. A brief
    // outage also never replaces a provisional fault, because the provisional fault says more about the grant (I10).
    (context.isTokenNeeded && !isClientRejected && !isProvisional(standing))
  ) {
    const retryAt = rejectedDelayMs === null ? null : nextTryAt
    const faultClass = isFaultClass(failureClass) ? failureClass : 'provider_unavailable'
    fault = faultOf(credential.name, faultClass, failure.response, {
      at,
      since: standing === null ? at : Date.parse(standing.Since ?? standing.At),
      attempts,
      rejections,
      retryAt,
      isPossiblySuperseded: isPossiblySuperseded(credential, context.storeChangedAt),
    })
  } else if (isProvisional(standing) && nextTryAt !== null) {
    fault = { ...standing, NextTryAt: new Date(nextTryAt).toISOString() }
  }

  return {
    attempts,
    nextTryAt,
    fault,
    isPublished: fault !== null && isPublishedOver(standing, fault),
    keepsIntent: isAmbiguous && !isFinal,
  }
}

/**
 * Returns the fault class that best explains why the provider rejected a refresh token with `invalid_grant`.
 *
 * - `isDisconnectReported`: a browser has reported that the company disconnected the application.
 * - `isAmbiguous`: an earlier request with this token had an unknown outcome.
 */
export function rejectionClass(
  { credential, isUnused }: Pick<LeasedCredential, 'credential' | 'isUnused'>,
  context: {
    readonly at: number
    readonly isDisconnectReported: boolean
    readonly isAmbiguous: boolean
    readonly storeChangedAt: number | null
  },
): FaultClass {
  const { at } = context
  if (credential.hardExpiresAt !== null && at >= credential.hardExpiresAt) return 'hard_expired'
  if (at >= credential.idleExpiresAt) return 'idle_expired'
  if (context.isDisconnectReported) return 'disconnected'
  // The same token was rejected before and after a request of unknown outcome, so that request has not rotated the
  // token. The fault class therefore stays the same (I10).
  if (isProvisional(credential.fault)) return credential.fault.Code as FaultClass
  if (context.isAmbiguous) return 'rotation_lost'
  return isUnused && !isPossiblySuperseded(credential, context.storeChangedAt)
    ? 'used_elsewhere'
    : 'invalid_grant'
}

/** Returns whether the store may have lost a newer token pair, which replaced the rejected refresh token. */
const isPossiblySuperseded = (
  { refreshedAt }: Pick<CredentialSummary, 'refreshedAt'>,
  storeChangedAt: number | null,
): boolean => storeChangedAt !== null && refreshedAt < storeChangedAt

const isFaultClass = (failureClass: RefreshFailureClass): failureClass is FaultClass =>
  failureClass in faultClasses

/**
 * Returns whether a fault is published as an event. This is the case for the first fault, the first rejection of the
 * grant, the first final fault, and the first fault `disconnected`.
 */
const isPublishedOver = (standing: Fault | null, fault: Fault): boolean =>
  standing === null ||
  (hasEndedGrant(fault) && !hasEndedGrant(standing)) ||
  (fault.Code === 'disconnected' && standing.Code !== 'disconnected') ||
  (isTerminal(fault) && !isTerminal(standing))
