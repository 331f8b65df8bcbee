/** Reads the response of a token endpoint: returns its tokens, or the outcome of a response that contains no tokens. */
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import { parseRetryAfter } from '@integration-host/shared/http/header-list'
import { lifetimeSeconds } from '../../credential/credential.ts'
import { presentableBody } from '../../provider/presentable-body.ts'
import type { ProviderResponse, TokenOutcome, TokenSet } from '../../provider/provider.ts'
import { asObject, jsonExcess, parseJson, parseJsonObject } from '@integration-host/shared/json'
import { isSuccess, type ProviderHttpResponse } from './send-request.ts'

/** Matches an access token that can be put into the header `Authorization` unchanged. */
const ACCESS_TOKEN = /^[\x21-\x7e]{1,16384}$/
/** Matches a refresh token. It is only sent in a form, so it may contain spaces (RFC 6749, appendix A.17). */
const REFRESH_TOKEN = /^[\x20-\x7e]{1,16384}$/
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

/** The tokens of a response as text. The id token is not verified yet. */
export interface TokenResponse extends Pick<
  TokenSet,
  'lifetimeSeconds' | 'idleSeconds' | 'hardSeconds'
> {
  readonly accessToken: string
  /** `null` if the response contains none: the previous refresh token then stays valid (RFC 6749 §6). */
  readonly refreshToken: string | null
  readonly idToken: string | null
  /** How the response differs from RFC 6749 §5.1, in constant words; empty if it does not. */
  readonly oddities: readonly string[]
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

/**
 * Returns the tokens of a response; `null` if it is not successful or contains no usable tokens.
 *
 * The provider may have invalidated the previous token pair when it sent this response. A response that contains both
 * new tokens is therefore accepted in any form, and even beside a member `error`. What differs from RFC 6749 §5.1 is
 * in `oddities`. If the new refresh token turns out to be invalid, the previous one is tried (I9 of
 * credential/refresh.ts).
 */
export function readTokenResponse(
  response: ProviderHttpResponse,
  members: Pick<ProviderProfile['token'], 'idleExpiryMember' | 'hardExpiryMember'>,
): TokenResponse | null {
  const found = isSuccess(response.status) ? membersOf(response) : null
  if (found === null) return null
  const { json } = found
  const accessToken = trimmed(json['access_token'])
  const refreshToken = trimmed(json['refresh_token'])
  const idToken = trimmed(json['id_token'])
  if (typeof accessToken !== 'string' || !ACCESS_TOKEN.test(accessToken)) return null
  // Without a refresh token in the response, the previous refresh token stays valid (RFC 6749 §6). Some providers send
  // null or an empty string instead of omitting the member.
  const hasRefreshToken = !isEmpty(refreshToken)
  const isText = typeof refreshToken === 'string'
  if (hasRefreshToken && !(isText && REFRESH_TOKEN.test(refreshToken))) return null
  const { error, token_type: type } = json
  if (!hasRefreshToken && (found.needsBoth || !isEmpty(error))) return null
  const contentType = response.headers.get('content-type') ?? ''
  const oddities = [
    response.status !== 200 && `the status is ${response.status}`,
    !/^application\/json\s*(?:;|$)/i.test(contentType) && 'the content type is not JSON',
    ...response.oddities,
    response.cutOff !== null && `the response is incomplete (${response.cutOff})`,
    found.oddity,
    error !== undefined && `error is ${isEmpty(error) ? 'empty' : 'set'}`,
    !(typeof type === 'string' && /^bearer$/i.test(type)) &&
      `token_type is ${isEmpty(type) ? 'missing' : 'not bearer'}`,
    (accessToken !== json['access_token'] ||
      (hasRefreshToken && refreshToken !== json['refresh_token'])) &&
      'a token has white space around it',
  ].filter((oddity) => typeof oddity === 'string')
  const secondsOf = (member: string | null): number | null =>
    member === null ? null : grantSeconds(json[member])
  return {
    accessToken,
    refreshToken: hasRefreshToken && isText ? refreshToken : null,
    idToken: typeof idToken === 'string' && idToken !== '' ? idToken : null,
    lifetimeSeconds: lifetimeSeconds(json['expires_in']),
    idleSeconds: secondsOf(members.idleExpiryMember),
    hardSeconds: secondsOf(members.hardExpiryMember),
    oddities,
  }
}

const trimmed = (value: unknown): unknown => (typeof value === 'string' ? value.trim() : value)

/** Whether a member has a value that says nothing: some providers send such a value instead of omitting the member. */
const isEmpty = (value: unknown): boolean =>
  !value || (typeof value === 'object' && Object.keys(value).length === 0)

interface FoundMembers {
  readonly json: Readonly<Record<string, unknown>>
  /** How the members were found if the body is not a JSON object. */
  readonly oddity: string | null
  /** Whether the members may be incomplete, so that they count only with both tokens. */
  readonly needsBoth: boolean
}

/** Returns the members of a token response in JSON or in a form; `null` if the body contains no access token. */
function membersOf({ text, cutOff }: ProviderHttpResponse): FoundMembers | null {
  const value = parseJson(text.trim())
  const json = asObject(value)
  const named = stringsByName(typeof value === 'string' ? value : text)
  // The response may have only one of the tokens at its usual place.
  const isUsual = !isEmpty(json?.['refresh_token']) || isEmpty(named['refresh_token'])
  if (json !== null && !isEmpty(json['access_token']) && isUsual)
    return { json, oddity: null, needsBoth: false }
  if ('access_token' in named)
    return { json: named, oddity: 'the body is not a JSON object with tokens', needsBoth: true }
  // A form has no end mark, so the last member of an incomplete form may be incomplete as well.
  const form = cutOff === null ? Object.fromEntries(new URLSearchParams(text.trim())) : {}
  return 'access_token' in form
    ? { json: form, oddity: 'the body is a form', needsBoth: false }
    : null
}

/** Matches a JSON member whose value is a string or a whole number, wherever it is in a text. */
const MEMBER = /"([\w-]{1,64})"\s*:\s*(?:"((?:[^"\\]|\\.)*)"|(\d{1,15})(?!\d))/g
/** The names under which token responses are read, in lower case and without underscores. */
const NAMES: Readonly<Record<string, string>> = {
  accesstoken: 'access_token',
  refreshtoken: 'refresh_token',
  idtoken: 'id_token',
  tokentype: 'token_type',
  expiresin: 'expires_in',
  error: 'error',
}

/**
 * Returns the first member of each name in a text that is not a token response in JSON: the response is within another
 * value, text precedes or follows it, its end is missing, or one of its other members is not JSON.
 */
function stringsByName(text: string): Readonly<Record<string, unknown>> {
  const found: Record<string, unknown> = {}
  for (const [, name = '', string, number] of text.matchAll(MEMBER)) {
    const known = NAMES[name.toLowerCase().replaceAll('_', '')] ?? name
    if (known === '__proto__' || (Object.hasOwn(found, known) && !isEmpty(found[known]))) continue
    found[known] = string === undefined ? Number(number) : parseJson(`"${string}"`)
  }
  return found
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

/**
 * Matches a text that may contain tokens that could not be read: it has a token member with a value, or bytes that are
 * not text. The name of a token in a description of an error is no such member.
 */
const MAY_HOLD_TOKENS =
  /(?:access|refresh)[_-]?token(?:["'\\]{1,4}\s{0,9}:|[=>])(?!\s{0,9}(?:null|false|["'\\]{2,4}))|\ufffd/i

/**
 * Returns whether a response from which no tokens could be read may have contained new ones. A body that exceeds the
 * limits of JSON is not parsed, so it may have contained them in any notation.
 */
export const mayHoldTokens = ({ status, text, cutOff }: ProviderHttpResponse): boolean =>
  isSuccess(status) && (cutOff !== null || jsonExcess(text) !== null || MAY_HOLD_TOKENS.test(text))

/** Returns the outcome of a complete response without tokens. `now` is in epoch milliseconds. */
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
  // The body may contain a new token pair that could not be read, so the request may have succeeded. The refresh token
  // of the request must then not be sent again at once, whatever error the body also names.
  if (mayHoldTokens(response)) return { kind: 'unknown', mayHoldTokens: true, ...shown }
  const error =
    isSuccess(status) || (status >= 400 && status < 500) ? errorCode(response.text) : null
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
