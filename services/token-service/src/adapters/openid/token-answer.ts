/** Reads what a token endpoint answered: which outcome it is, and a response that the library can check. */
import { presentableBody } from '../../credential/fault.ts'
import { lifetimeSeconds } from '../../credential/credential.ts'
import type { ProviderAnswer, TokenOutcome } from '../../provider/provider.ts'
import type { HttpAnswer } from './http-exchange.ts'

/** An access or refresh token that may be put into a header or a form as it is. */
const TOKEN = /^[\x21-\x7e]{1,16384}$/
/** RFC 6749 §5.2: the characters of an error code. */
const ERROR_CODE = /^[\x20-\x21\x23-\x5b\x5d-\x7e]{1,100}$/

export interface TokenResponse {
  readonly access_token: string
  readonly token_type: string
  readonly refresh_token?: string
  readonly id_token?: string
  readonly expires_in: number
  readonly x_refresh_token_expires_in?: number
  readonly x_refresh_token_hard_expires_in?: number
}

/** What may be told of an answer: bounded, without a token. */
export const answerOf = (answer: HttpAnswer, secrets: readonly string[]): ProviderAnswer => ({
  status: answer.status,
  body: presentableBody(answer.text, secrets),
  traceId: traceIdOf(answer.headers),
})

function traceIdOf(headers: Headers): string | null {
  const traceId = headers.get('intuit_tid')
  return traceId !== null && /^[\x21-\x7e]{1,128}$/.test(traceId) ? traceId : null
}

/** The tokens of a 200, or null when it is no whole token response (RFC 6749 §5.1). */
export function readTokenResponse(answer: HttpAnswer): TokenResponse | null {
  const json = answer.status === 200 ? jsonObject(answer.text) : null
  if (json === null || json['error'] !== undefined) return null
  const { access_token, token_type, refresh_token, id_token, expires_in } = json
  if (typeof access_token !== 'string' || !TOKEN.test(access_token)) return null
  if (typeof token_type !== 'string' || token_type.toLowerCase() !== 'bearer') return null
  // Absent and empty say the same: the old one stays (RFC 6749 §6). Anything else that is no token: refused.
  const hasRefreshToken =
    refresh_token !== undefined && refresh_token !== null && refresh_token !== ''
  if (hasRefreshToken && (typeof refresh_token !== 'string' || !TOKEN.test(refresh_token)))
    return null
  const idleSeconds = positiveSeconds(json['x_refresh_token_expires_in'])
  const hardSeconds = positiveSeconds(json['x_refresh_token_hard_expires_in'])
  const hasIdToken = typeof id_token === 'string' && id_token !== ''
  return {
    access_token,
    token_type: 'bearer',
    expires_in: lifetimeSeconds(expires_in),
    ...(hasRefreshToken && { refresh_token }),
    ...(hasIdToken && { id_token }),
    ...(idleSeconds !== null && { x_refresh_token_expires_in: idleSeconds }),
    ...(hardSeconds !== null && { x_refresh_token_hard_expires_in: hardSeconds }),
  }
}

/** A hundred years: more is no statement about a grant, and would be no date either. */
const MAX_GRANT_SECONDS = 3_155_760_000

// Only hints: a wrong one must not spoil the tokens it came with.
const positiveSeconds = (value: unknown): number | null =>
  typeof value === 'number' && value > 0 && value <= MAX_GRANT_SECONDS ? value : null

/** The outcome of an answer that holds no tokens. */
export function outcomeOf(
  answer: HttpAnswer,
  secrets: readonly string[],
  now: number,
): TokenOutcome {
  const told = answerOf(answer, secrets)
  const { status } = answer
  const retryAfterMs = retryAfter(answer.headers.get('retry-after'), now)
  if (status === 429 || (status === 503 && retryAfterMs !== null)) {
    return { kind: 'throttled', retryAfterMs, ...told }
  }
  const error = status === 200 || (status >= 400 && status < 500) ? errorCode(answer.text) : null
  if (error === 'invalid_client' || (status === 401 && error !== 'invalid_grant')) {
    return { kind: 'client_refused', retryAfterMs: 0, ...told }
  }
  if (error !== null) return { kind: 'refused', error, ...told }
  if (status >= 400 && status < 500 && status !== 408 && status !== 425) {
    return { kind: 'refused', error: `http_${status}`, ...told }
  }
  return { kind: 'unknown', ...told }
}

function errorCode(text: string): string | null {
  const error = jsonObject(text)?.['error']
  return typeof error === 'string' && ERROR_CODE.test(error) ? error : null
}

function jsonObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null
  } catch {
    return null
  }
}

/** Milliseconds of a `Retry-After` (RFC 9110 §10.2.3), null when there is none or it says nothing. */
export function retryAfter(header: string | null, now: number): number | null {
  const text = header?.trim() ?? ''
  // Digits first: a date parser takes "120" for a year.
  if (/^\d{1,10}$/.test(text)) return Number(text) * 1_000
  if (!/^[A-Z][a-z]{2,8},? /.test(text)) return null
  const at = Date.parse(
    text.endsWith('GMT') || !/^[A-Z][a-z]{2} [A-Z]/.test(text) ? text : `${text} GMT`,
  )
  return Number.isNaN(at) ? null : Math.max(0, at - now)
}
