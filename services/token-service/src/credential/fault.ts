/** What a refresh without a pair means: its class, whether trying again can help, and what to do. */
import type { Fault } from '@integration-host/shared/contracts/credential'
import type { ProviderAnswer } from '../provider/provider.ts'

export const faultClasses = {
  invalid_grant: {
    isTerminal: true,
    remedy: 'Reconnect the company: the provider has ended this grant.',
  },
  rotation_lost: {
    isTerminal: true,
    remedy:
      'Reconnect the company: the provider rotated the refresh token, and the answer with the new one was lost.',
  },
  idle_expired: {
    isTerminal: true,
    remedy:
      'Reconnect the company: its grant was not refreshed for longer than the provider allows.',
  },
  hard_expired: {
    isTerminal: true,
    remedy: 'Reconnect the company: its grant has reached the age at which the provider ends it.',
  },
  transferred: {
    isTerminal: true,
    remedy:
      'Nothing here: the credential was exported and is refreshed where it was imported. To take it back, export it there and import it here, or reconnect the company.',
  },
  no_refresh_token: {
    isTerminal: true,
    remedy: 'Reconnect the company: its grant came without a refresh token.',
  },
  provider_rejected: {
    isTerminal: false,
    remedy:
      'Check the application at the provider: it refuses this refresh for another reason than the grant. It is tried again.',
  },
  provider_bad_response: {
    isTerminal: false,
    remedy:
      'None yet: the provider answers with something that is no token response. It is tried again.',
  },
  provider_unavailable: {
    isTerminal: false,
    remedy: 'None yet: the provider does not answer. It is tried again.',
  },
} as const satisfies Record<string, { isTerminal: boolean; remedy: string }>

export type FaultClass = keyof typeof faultClasses

/** Whether only a new grant can end a fault. */
export const isTerminal = (fault: Fault | null): boolean =>
  fault !== null && fault.Code in faultClasses && faultClasses[fault.Code as FaultClass].isTerminal

/** The fault that a failed refresh leaves. The message's form is the seed's (section 2.1). */
export function faultOf(
  name: string,
  faultClass: FaultClass,
  answer: Pick<ProviderAnswer, 'body' | 'traceId'>,
  { at, attempts }: { readonly at: number; readonly attempts: number },
): Fault {
  return {
    Code: faultClass,
    Message: `Couldn't refresh token for realm ${name}, ${answer.body}`,
    At: new Date(at).toISOString(),
    Attempts: attempts,
    ...(answer.traceId !== null && { TraceId: answer.traceId }),
    Remedy: faultClasses[faultClass].remedy,
  }
}

const BODY_LIMIT = 1_000

/**
 * A token endpoint's answer as it may be shown: bounded, and without anything that is or was a token.
 * An ordinary error body stays as it came, byte for byte.
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
    // Members of a token response in JSON, a form or XML, also when the answer was cut in the middle of one.
    .replace(new RegExp(`((?:${MEMBERS})\\\\?"\\s*:\\s*\\\\?")[^"\\\\]*`, 'gi'), `$1${REDACTED}`)
    .replace(new RegExp(`((?:${MEMBERS})=)[^&\\s"<]+`, 'gi'), `$1${REDACTED}`)
    .replace(new RegExp(`(<(?:${MEMBERS})[^<>]*>)[^<]*`, 'gi'), `$1${REDACTED}`)
    // A request that the answer repeats, and JSON web tokens.
    .replace(/\b(Basic|Bearer)\s+[\w+/=.~%-]{16,}/gi, `$1 ${REDACTED}`)
    .replace(/eyJ[\w-]{8,}(?:\.[\w-]*){0,4}/g, REDACTED)
    // Whatever else is as long as a token, under any name and in any encoding. A UUID has 36 characters.
    .replace(/(?<![\w~+-])[\w~+-]{40,}/g, REDACTED)
  return shown.length > BODY_LIMIT ? `${shown.slice(0, BODY_LIMIT)}…` : shown
}

const MEMBERS = 'access_?token|refresh_?token|id_?token|client_?secret'
/** A text however JSON, a form, XML or a language that escapes more than it must would spell it. */
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

/** Milliseconds until a refresh that failed `attempts` times in a row is tried again; `random` in [0, 1). */
export function retryDelayMs(
  attempts: number,
  retryAfterMs: number | null,
  random: number,
): number {
  if (retryAfterMs !== null) {
    // Up to a fifth later than told: realms that were sent away together must not come back together.
    return Math.floor(
      Math.min(RETRY_CAP_MS, Math.max(retryAfterMs, 0)) * (1 + random / 5) + random * 500,
    )
  }
  const ceilingMs = Math.min(RETRY_CAP_MS, RETRY_BASE_MS * 2 ** Math.min(attempts - 1, 20))
  return Math.floor(ceilingMs / 2 + (random * ceilingMs) / 2)
}
