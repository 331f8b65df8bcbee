/** The classes of faults, the text of a fault, and the delay before a failed refresh is retried. */
import type { Fault } from '@integration-host/shared/contracts/credential'
import { backoffMs } from '@integration-host/shared/process/backoff'
import type { ProviderResponse } from '../provider/provider.ts'

/**
 * The fault classes.
 *
 * - `endsGrant`: only a new grant can end the fault, unless the fault is provisional.
 * - `isRejection`: the provider rejected the refresh token. Some providers also do so during an outage. For these
 *   providers (see the provider profile), the token is sent again before the fault becomes final.
 */
export const faultClasses = {
  invalid_grant: {
    endsGrant: true,
    isRejection: true,
    remedy:
      'Reconnect the company: the provider has ended this grant. Its owner disconnected the application, or another program used the grant: a second authorization of the same company, a second installation or a copy of this one. Only one may use it.',
  },
  disconnected: {
    endsGrant: true,
    isRejection: true,
    remedy:
      'Reconnect the company: it disconnected the application at the provider. Send its owner a connect link, or the address /reconnect?realmId=<realm> of token-service.',
  },
  used_elsewhere: {
    endsGrant: true,
    isRejection: true,
    remedy:
      'Reconnect the company. The provider rejected a refresh token that this installation had received and never used: either the owner of the company disconnected the application, or another program uses the same grant. The response of the provider does not say which. If this fault comes back after the company is reconnected, another program uses the grant: find it, because only one may.',
  },
  rotation_lost: {
    endsGrant: true,
    isRejection: true,
    remedy:
      'Reconnect the company: the provider rotated the refresh token, and the response with the new one was lost.',
  },
  idle_expired: {
    endsGrant: true,
    isRejection: false,
    remedy:
      'Reconnect the company: its grant was not refreshed for longer than the provider allows.',
  },
  hard_expired: {
    endsGrant: true,
    isRejection: false,
    remedy: 'Reconnect the company: its grant has reached the age at which the provider ends it.',
  },
  transferred: {
    endsGrant: true,
    isRejection: false,
    remedy:
      'Nothing here: the credential was exported and is refreshed where it was imported. To take it back, export it there and import it here, or reconnect the company.',
  },
  no_refresh_token: {
    endsGrant: true,
    isRejection: false,
    remedy: 'Reconnect the company: its grant came without a refresh token.',
  },
  provider_rejected: {
    endsGrant: false,
    isRejection: false,
    remedy:
      'Check the application at the provider: it rejects this refresh for another reason than the grant. It is tried again.',
  },
  provider_bad_response: {
    endsGrant: false,
    isRejection: false,
    remedy: 'None yet: the response of the provider is not a token response. It is tried again.',
  },
  provider_unavailable: {
    endsGrant: false,
    isRejection: false,
    remedy: 'None yet: the provider does not respond. It is tried again.',
  },
} as const satisfies Record<string, { endsGrant: boolean; isRejection: boolean; remedy: string }>

export type FaultClass = keyof typeof faultClasses

const PROVISIONAL_REMEDY =
  'Wait: the provider rejected the refresh token, which it may also do in an outage, so the token is tried again automatically. If the owner of the company disconnected the application, or another program uses this grant, reconnect the company.'

/** The remedies of provisional faults that an operator usually has to end. */
const PROVISIONAL_REMEDIES: Partial<Record<FaultClass, string>> = {
  disconnected: `${faultClasses.disconnected.remedy} The token is tried once more automatically, because the provider may also reject it in an outage.`,
  used_elsewhere:
    'Refresh now. If the provider accepts the token, it had an outage, and nothing else is needed. If it rejects the token again, reconnect the company: either its owner disconnected the application, or another program uses the same grant. The provider rejected a refresh token that this installation had received and never used, and its response does not say why. Without a refresh by a person, the token is tried again automatically.',
}

/** The remedy of `invalid_grant` if the store may have lost a newer token pair. */
const SUPERSEDED_REMEDY =
  'Reconnect the company. Either Redis lost a newer token pair of this company when it changed its primary or was restarted, and the provider accepts only that pair. Or the provider has ended the grant: its owner disconnected the application, or another program used the grant.'

const PROVISIONAL_SUPERSEDED_REMEDY =
  'Reconnect the company, or wait: Redis changed its primary or was restarted after this token pair was stored. If it lost a newer token pair of this company then, waiting does not help. If not, the provider may have rejected the token because of an outage: the token is tried again automatically.'

/** Returns whether this fault means that the grant has ended, either finally or provisionally. */
export const hasEndedGrant = (fault: Fault | null): boolean =>
  fault !== null && fault.Code in faultClasses && faultClasses[fault.Code as FaultClass].endsGrant

/** Returns whether only a new grant can end a fault. */
export const isTerminal = (fault: Fault | null): boolean =>
  fault !== null && hasEndedGrant(fault) && fault.Final !== false

/**
 * Returns whether a fault is provisional: the provider rejected the refresh token, and the token will be sent again.
 */
export const isProvisional = (fault: Fault | null): fault is Fault =>
  fault !== null && hasEndedGrant(fault) && fault.Final === false

export interface FaultContext {
  /** The time at which the refresh failed, in epoch ms. */
  readonly at: number
  /** The time at which the first refresh since the last success failed, in epoch ms. Default: `at`. */
  readonly since?: number
  /** The number of failed refreshes since the last success. */
  readonly attempts: number
  /** How often the provider has rejected the refresh token. */
  readonly rejections?: number
  /** The time at which a rejected refresh token is sent again, in epoch ms; `null` if it is not sent again. */
  readonly retryAt?: number | null
  /** Whether the store may have lost a newer token pair that replaced the rejected refresh token. */
  readonly isPossiblySuperseded?: boolean
}

/** Returns the fault of a failed refresh. Other programs parse the message, so its format must not change. */
export function faultOf(
  name: string,
  faultClass: FaultClass,
  response: Pick<ProviderResponse, 'body' | 'traceId'>,
  {
    at,
    since = at,
    attempts,
    rejections = 0,
    retryAt = null,
    isPossiblySuperseded = false,
  }: FaultContext,
): Fault {
  const hasTwoCauses = faultClass === 'invalid_grant' && isPossiblySuperseded
  const finalRemedy = hasTwoCauses ? SUPERSEDED_REMEDY : faultClasses[faultClass].remedy
  const provisionalRemedy = hasTwoCauses
    ? PROVISIONAL_SUPERSEDED_REMEDY
    : (PROVISIONAL_REMEDIES[faultClass] ?? PROVISIONAL_REMEDY)
  return {
    Code: faultClass,
    Message: `Couldn't refresh token for realm ${name}, ${response.body}`,
    At: new Date(at).toISOString(),
    Since: new Date(since).toISOString(),
    Attempts: attempts,
    ...(response.traceId !== null && { TraceId: response.traceId }),
    Remedy: retryAt === null ? finalRemedy : provisionalRemedy,
    ...(faultClasses[faultClass].endsGrant && { Final: retryAt === null }),
    ...(rejections > 0 && { Rejections: rejections }),
    ...(retryAt !== null && { NextTryAt: new Date(retryAt).toISOString() }),
  }
}

export const RETRY_CAP_MS = 15 * 60_000
const RETRY_BASE_MS = 2_000

/**
 * Returns the delay before a failed refresh is retried, in milliseconds. `attempts` is the number of consecutive
 * failures; `random` is in [0, 1).
 */
export function retryDelayMs(
  attempts: number,
  retryAfterMs: number | null,
  random: number,
): number {
  if (retryAfterMs !== null) {
    // The delay is longer than `Retry-After` by up to a fifth. Realms that were throttled at the same time therefore do
    // not retry at the same time.
    return Math.floor(
      Math.min(RETRY_CAP_MS, Math.max(retryAfterMs, 0)) * (1 + random / 5) + random * 500,
    )
  }
  // The jitter covers only half of the delay, because full jitter could cause a retry at once.
  const upperHalf = 0.5 + random / 2
  return backoffMs(attempts, { baseMs: RETRY_BASE_MS, capMs: RETRY_CAP_MS, random: upperHalf })
}
