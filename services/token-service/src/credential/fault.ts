/** The classes of faults, the text of a fault, and the delay before a failed refresh is retried. */
import type { Fault } from '@integration-host/shared/contracts/credential'
import { backoffMs } from '@integration-host/shared/process/backoff'
import type { ProviderResponse } from '../provider/provider.ts'

/**
 * `endsGrant`: only a new grant can end the fault. `isRejection`: the provider rejected the refresh token. If the
 * provider profile says that an outage may cause such rejections, the token is tried again before the fault is final.
 */
export const faultClasses = {
  invalid_grant: {
    endsGrant: true,
    isRejection: true,
    remedy:
      'Reconnect the company: the provider has ended this grant. Its owner disconnected the application, or another program used the grant: a second authorization of the same company, a second installation or a copy of this one. Only one may use it.',
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
  'Wait: the provider rejected the refresh token, which it may also do in an outage, so the token is tried again at NextTryAt. If the owner of the company disconnected the application, or another program uses this grant, reconnect the company.'

/** Returns whether the provider rejects the grant under this fault, finally or provisionally. */
export const isGrantRejected = (fault: Fault | null): boolean =>
  fault !== null && fault.Code in faultClasses && faultClasses[fault.Code as FaultClass].endsGrant

/** Returns whether only a new grant can end a fault. */
export const isTerminal = (fault: Fault | null): boolean =>
  fault !== null && isGrantRejected(fault) && fault.Final !== false

/** Returns whether a refresh token was rejected and will be tried again. */
export const isProvisional = (fault: Fault | null): fault is Fault =>
  fault !== null && isGrantRejected(fault) && fault.Final === false

export interface FaultContext {
  /** Epoch ms. */
  readonly at: number
  /** Failed refreshes since the last success. */
  readonly attempts: number
  /** How often the provider has rejected the refresh token. */
  readonly rejections?: number
  /** When a rejected refresh token is tried again, in epoch ms; `null` if it is not tried again. */
  readonly retryAt?: number | null
}

/** Returns the fault of a failed refresh. Other programs rely on the form of its message. */
export function faultOf(
  name: string,
  faultClass: FaultClass,
  response: Pick<ProviderResponse, 'body' | 'traceId'>,
  { at, attempts, rejections = 0, retryAt = null }: FaultContext,
): Fault {
  return {
    Code: faultClass,
    Message: `Couldn't refresh token for realm ${name}, ${response.body}`,
    At: new Date(at).toISOString(),
    Attempts: attempts,
    ...(response.traceId !== null && { TraceId: response.traceId }),
    Remedy: retryAt === null ? faultClasses[faultClass].remedy : PROVISIONAL_REMEDY,
    ...(faultClasses[faultClass].endsGrant && { Final: retryAt === null }),
    ...(rejections > 0 && { Rejections: rejections }),
    ...(retryAt !== null && { NextTryAt: new Date(retryAt).toISOString() }),
  }
}

const BODY_LIMIT = 1_000

/**
 * Returns the body of a token endpoint's response in a form that may be stored and shown: truncated, and with
 * everything redacted that is or was a token. An ordinary error body is returned unchanged.
 */
export function presentableBody(body: string, secrets: readonly string[]): string {
  let shown = body
  for (const secret of secrets.filter((text) => text !== '')) {
    shown = shown.replace(anySpelling(secret), REDACTED)
    const bytes = Buffer.from(secret)
    const forms = [
      bytes.toString('base64').replace(/=+$/, ''),
      bytes.toString('base64url'),
      bytes.toString('hex'),
    ]
    for (const form of new Set(forms)) shown = shown.replaceAll(form, REDACTED)
  }
  shown = shown
    // Members of a token response in JSON, a form or XML, also if the response was truncated within one.
    .replace(new RegExp(`((?:${MEMBERS})\\\\?"\\s*:\\s*\\\\?")[^"\\\\]*`, 'gi'), `$1${REDACTED}`)
    .replace(new RegExp(`((?:${MEMBERS})=)[^&\\s"<]+`, 'gi'), `$1${REDACTED}`)
    .replace(new RegExp(`(<(?:${MEMBERS})[^<>]*>)[^<]*`, 'gi'), `$1${REDACTED}`)
    // A request that the response echoes, and JSON web tokens.
    .replace(/\b(Basic|Bearer)\s+[\w+/=.~%-]{16,}/gi, `$1 ${REDACTED}`)
    .replace(/eyJ[\w-]{8,}(?:\.[\w-]*){0,4}/g, REDACTED)
    // Any other text as long as a token, under any name and in any encoding. A UUID has 36 characters.
    .replace(/(?<![\w~+-])[\w~+-]{40,}/g, REDACTED)
  return shown.length > BODY_LIMIT ? `${shown.slice(0, BODY_LIMIT)}…` : shown
}

const MEMBERS = 'access_?token|refresh_?token|id_?token|client_?secret'
/** Matches a text in every escaping: JSON, form, XML, and with characters escaped that need not be. */
function anySpelling(text: string): RegExp {
  const either = (hex: string): string =>
    hex.replace(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`)
  const spelled = (character: string): string => {
    if (/[A-Za-z0-9]/.test(character)) return character
    const code = character.charCodeAt(0)
    const hex = code.toString(16).padStart(4, '0')
    const short = either(hex.slice(2))
    return `(?:\\\\?\\u${hex}|\\\\u${either(hex)}|%${short}|&#x0*${short};|&#0*${code};)`
  }
  return new RegExp(Array.from(text, spelled).join(''), 'g')
}

const REDACTED = '[redacted]'

export const RETRY_CAP_MS = 15 * 60_000
const RETRY_BASE_MS = 2_000

/** Returns the milliseconds until a refresh is retried that failed `attempts` times in a row; `random` is in [0, 1). */
export function retryDelayMs(
  attempts: number,
  retryAfterMs: number | null,
  random: number,
): number {
  if (retryAfterMs !== null) {
    // Up to a fifth later than requested, so that realms that were throttled together do not retry together.
    return Math.floor(
      Math.min(RETRY_CAP_MS, Math.max(retryAfterMs, 0)) * (1 + random / 5) + random * 500,
    )
  }
  // Half jitter: full jitter could retry a refresh at once.
  const upperHalf = 0.5 + random / 2
  return backoffMs(attempts, { baseMs: RETRY_BASE_MS, capMs: RETRY_CAP_MS, random: upperHalf })
}
