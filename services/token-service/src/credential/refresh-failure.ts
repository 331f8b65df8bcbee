/** Decides what a failed refresh leaves in the record of a credential. */
import type { Fault } from '@integration-host/shared/contracts/credential'
import type { ProviderResponse } from '../provider/provider.ts'
import type { CredentialSummary } from './credential.ts'
import type { Settlement } from './credential-store.ts'
import {
  type FaultClass,
  faultClasses,
  faultOf,
  isGrantRejected,
  isProvisional,
  isTerminal,
  retryDelayMs,
} from './fault.ts'

/** Why a refresh brought no pair. The last two say nothing about the grant and are no classes of a fault. */
export type RefreshFailureClass = FaultClass | 'throttled' | 'client_refused'

export interface RefreshFailure {
  readonly failureClass: RefreshFailureClass
  readonly response: Pick<ProviderResponse, 'body' | 'traceId'>
  /** How long the provider, or the breaker on client credentials, wants no further call. */
  readonly retryAfterMs: number | null
  /** Whether the provider may have rotated the refresh token although no response with a pair came. */
  readonly isAmbiguous: boolean
}

export interface RefreshFailureContext {
  /** Epoch ms. */
  readonly at: number
  /** In [0, 1). */
  readonly random: number
  /** Whether a caller needs a new token now: there is no valid one, or it was requested. */
  readonly isTokenNeeded: boolean
  /** I10 of refresh.ts: the delays before each further try of a rejected refresh token. */
  readonly rejectedGrantRetryDelaysMs: readonly number[]
}

/** Whether a failure means that the grant has ended, if only provisionally. */
export const endsGrant = (failureClass: RefreshFailureClass): boolean =>
  isFaultClass(failureClass) && faultClasses[failureClass].endsGrant

/**
 * The settlement of a failed refresh: which fault is laid over the credential, when the next try is due, and
 * whether the transition is published as an event.
 */
export function settlementOf(
  credential: Pick<CredentialSummary, 'name' | 'attempts' | 'fault'>,
  failure: RefreshFailure,
  context: RefreshFailureContext,
): Settlement {
  const { failureClass, isAmbiguous } = failure
  const { at, random } = context
  const standing = credential.fault
  const isClientRejected = failureClass === 'client_refused'
  // The rejected client credentials are the application's, so they count for no credential.
  const attempts = isClientRejected ? credential.attempts : credential.attempts + 1
  const isRejection = isFaultClass(failureClass) && faultClasses[failureClass].isRejection
  const rejections = isRejection ? (standing?.Rejections ?? 0) + 1 : 0
  const rejectedDelayMs = isRejection
    ? (context.rejectedGrantRetryDelaysMs[rejections - 1] ?? null)
    : null
  const isFinal = endsGrant(failureClass) && rejectedDelayMs === null

  let nextTryAt: number | null = null
  if (!isFinal) {
    // The delay of a probe is exact: jitter would only put off the call that finds the client accepted.
    const probeDelayMs = isClientRejected ? failure.retryAfterMs : null
    const delayMs =
      rejectedDelayMs ?? probeDelayMs ?? retryDelayMs(attempts, failure.retryAfterMs, random)
    // A failure that says nothing about the grant does not bring the next try of a rejected token forward (I10).
    const plannedAt =
      isProvisional(standing) && !isRejection ? Date.parse(standing.NextTryAt ?? '') : 0
    nextTryAt = Math.max(at + delayMs, plannedAt || 0)
  }

  let fault: Fault | null = null
  if (
    endsGrant(failureClass) ||
    // While a valid token is served, a provider that is unavailable for a moment is not a fault of the
    // credential; and such a failure never replaces a provisional fault, which says more (I10).
    (context.isTokenNeeded && !isClientRejected && !isProvisional(standing))
  ) {
    const retryAt = rejectedDelayMs === null ? null : nextTryAt
    const faultClass = isFaultClass(failureClass) ? failureClass : 'provider_unavailable'
    fault = faultOf(credential.name, faultClass, failure.response, {
      at,
      attempts,
      rejections,
      retryAt,
    })
  } else if (isProvisional(standing) && nextTryAt !== null) {
    fault = { ...standing, NextTryAt: new Date(nextTryAt).toISOString() }
  }

  return {
    attempts,
    nextTryAt,
    fault,
    isPublished: fault !== null && isNewsOver(standing, fault),
    keepsIntent: isAmbiguous && !isFinal,
  }
}

const isFaultClass = (failureClass: RefreshFailureClass): failureClass is FaultClass =>
  failureClass in faultClasses

/** Whether subscribers learn something: the first fault, the grant's end, and that the end is final. */
const isNewsOver = (standing: Fault | null, fault: Fault): boolean =>
  standing === null ||
  (isGrantRejected(fault) && !isGrantRejected(standing)) ||
  (isTerminal(fault) && !isTerminal(standing))
