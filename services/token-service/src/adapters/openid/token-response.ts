/** Reads the response of a token endpoint: returns its tokens, or the outcome of a response that contains no tokens. */
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import { parseRetryAfter } from '@integration-host/shared/http/retry-after'
import { lifetimeSeconds } from '../../credential/credential.ts'
import { presentableBody } from '../../provider/presentable-body.ts'
import type { ProviderResponse, TokenOutcome } from '../../provider/provider.ts'
import { parseJsonObject } from '@integration-host/shared/json'
import type { ProviderHttpResponse } from './send-request.ts'

/** Matches an access or refresh token that can be put into a header or a form unchanged. */
const TOKEN = /^[\x21-\x7e]{1,16384}$/
/** Matches the characters of an error code (RFC 6749 §5.2). */
const ERROR_CODE = /^[\x20-\x21\x23-\x5b\x5d-\x7e]{1,100}$/

/** The error codes of a token endpoint (RFC 6749 §5.2), except `invalid_client`. */
const TOKEN_ENDPOINT_ERRORS: ReadonlySet<string> = new Set([
  'invalid_request',
  'invalid_grant',
  'unauthorized_client',
  'unsupported_grant_type',
  'invalid_scope',
])

export interface TokenResponse {
  /** The token response exactly in the form of RFC 6749 §5.1, which is the only form that openid-client accepts. */
  readonly wire: {
    readonly access_token: string
    readonly token_type: 'bearer'
    readonly expires_in: number
    readonly refresh_token?: string
    readonly id_token?: string
  }
  /** Seconds without a refresh after which the grant ends; `null` if the response does not contain this number. */
  readonly idleSeconds: number | null
  /** Seconds after which the grant ends in any case; `null` if the response does not contain this number. */
  readonly hardSeconds: number | null
}

/**
 * Returns the part of a response that may be stored and shown: the body is truncated, and tokens and `secrets` are
 * redacted.
 */
export const presentable = (
  response: ProviderHttpResponse,
  secrets: readonly string[],
): ProviderResponse => ({
  status: response.status,
  body: presentableBody(response.text, secrets),
  traceId: traceIdOf(response.headers),
})

function traceIdOf(headers: Headers): string | null {
  const traceId = headers.get('intuit_tid')
  return traceId !== null && /^[\x21-\x7e]{1,128}$/.test(traceId) ? traceId : null
}

/** Returns the tokens of a response; `null` if it is not a complete 200 token response (RFC 6749 §5.1). */
export function readTokenResponse(
  response: ProviderHttpResponse,
  members: Pick<ProviderProfile['token'], 'idleExpiryMember' | 'hardExpiryMember'>,
): TokenResponse | null {
  const json = response.status === 200 ? parseJsonObject(response.text) : null
  if (json === null || json['error'] !== undefined) return null
  const { access_token, token_type, refresh_token, id_token, expires_in } = json
  if (typeof access_token !== 'string' || !TOKEN.test(access_token)) return null
  if (typeof token_type !== 'string' || token_type.toLowerCase() !== 'bearer') return null
  // Without a refresh token in the response, the previous refresh token stays valid (RFC 6749 §6). Some providers send
  // null or an empty string instead of omitting the member.
  const hasRefreshToken =
    refresh_token !== undefined && refresh_token !== null && refresh_token !== ''
  if (hasRefreshToken && (typeof refresh_token !== 'string' || !TOKEN.test(refresh_token)))
    return null
  const hasIdToken = typeof id_token === 'string' && id_token !== ''
  const secondsOf = (member: string | null): number | null =>
    member === null ? null : grantSeconds(json[member])
  return {
    wire: {
      access_token,
      token_type: 'bearer',
      expires_in: lifetimeSeconds(expires_in),
      ...(hasRefreshToken && { refresh_token }),
      ...(hasIdToken && { id_token }),
    },
    idleSeconds: secondsOf(members.idleExpiryMember),
    hardSeconds: secondsOf(members.hardExpiryMember),
  }
}

/**
 * The longest accepted lifetime of a grant, 100 years. A longer lifetime is a mistake of the provider, and could exceed
 * the range of `Date`.
 */
const MAX_GRANT_SECONDS = 3_155_760_000

// An invalid lifetime is ignored. The lifetime of a grant only determines when a warning is published, so an invalid
// value must not make the tokens unusable.
const grantSeconds = (value: unknown): number | null =>
  typeof value === 'number' && value > 0 && value <= MAX_GRANT_SECONDS ? value : null

/** Returns the outcome of a response without tokens. `now` is in epoch milliseconds. */
export function outcomeOf(
  response: ProviderHttpResponse,
  secrets: readonly string[],
  now: number,
): TokenOutcome {
  const shown = presentable(response, secrets)
  const { status } = response
  const retryAfterMs = parseRetryAfter(response.headers.get('retry-after'), now)
  if (status === 429 || (status === 503 && retryAfterMs !== null)) {
    return { kind: 'throttled', retryAfterMs, ...shown }
  }
  const error = status === 200 || (status >= 400 && status < 500) ? errorCode(response.text) : null
  const isClientRejected =
    error === 'invalid_client' ||
    (status === 401 && error !== 'invalid_grant' && hasBasicChallenge(response.headers))
  if (isClientRejected) return { kind: 'client_refused', retryAfterMs: 0, ...shown }
  // A 401 may come from a proxy in front of the provider. Only an error code of RFC 6749 §5.2 proves that the token
  // endpoint has rejected the request. Without such a code, the token endpoint may have processed the request.
  if (status === 401 && !TOKEN_ENDPOINT_ERRORS.has(error ?? ''))
    return { kind: 'unknown', ...shown }
  if (error !== null) return { kind: 'refused', error, ...shown }
  if (status >= 400 && status < 500 && status !== 408 && status !== 425) {
    return { kind: 'refused', error: `http_${status}`, ...shown }
  }
  return { kind: 'unknown', ...shown }
}

/**
 * Returns whether a response contains a Basic challenge. A token endpoint sends this challenge if it rejects the client
 * credentials in the `Authorization` header (RFC 6749 §5.2).
 */
const hasBasicChallenge = (headers: Headers): boolean =>
  /(?:^|,)\s*basic(?:\s|,|$)/i.test(headers.get('www-authenticate') ?? '')

function errorCode(text: string): string | null {
  const error = parseJsonObject(text)?.['error']
  return typeof error === 'string' && ERROR_CODE.test(error) ? error : null
}
