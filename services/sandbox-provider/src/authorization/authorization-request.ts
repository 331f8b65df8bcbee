import { isLoopback } from '@integration-host/shared/http/origin-guard'

/** An authorization request that passed every check (RFC 6749 §4.1.1, RFC 7636 §4.3). */
export interface AuthorizationRequest {
  readonly redirectUri: string
  readonly scope: readonly string[]
  readonly state: string
  readonly nonce: string | null
  /** The S256 challenge of PKCE; `null` if the provider ignores PKCE. */
  readonly codeChallenge: string | null
}

export type Reading =
  | { readonly kind: 'valid'; readonly request: AuthorizationRequest }
  /**
   * The client or the redirect URI is invalid. The browser gets an error page and is not redirected (RFC 6749
   * §4.1.2.1).
   */
  | { readonly kind: 'rejected'; readonly reason: string }
  /** The request is invalid. The browser is redirected to the application with an error response. */
  | {
      readonly kind: 'error'
      readonly redirectUri: string
      readonly state: string | null
      readonly error: string
      readonly description: string
    }

export interface Registration {
  readonly clientId: string
  /**
   * The registered redirect URIs, which are compared character by character. `null` accepts any redirect URI with a
   * loopback host.
   */
  readonly redirectUris: readonly string[] | null
  readonly rules: keyof typeof redirectUriRules
  /** `true` if an S256 challenge is required, `false` if challenges are ignored. */
  readonly pkce: boolean
}

export const supportedScopes = [
  'openid',
  'profile',
  'email',
  'phone',
  'address',
  'com.intuit.quickbooks.accounting',
  'com.intuit.quickbooks.payment',
] as const

/** The parameters of an authorization request. The form of the authorization page sends them again as hidden fields. */
export const requestParameters = [
  'client_id',
  'redirect_uri',
  'response_type',
  'scope',
  'state',
  'nonce',
  'code_challenge',
  'code_challenge_method',
] as const
type RequestParameter = (typeof requestParameters)[number]

/** Validates the parameters of an authorization request, which come from an untrusted browser. */
export function readAuthorizationRequest(
  parameters: URLSearchParams,
  registration: Registration,
): Reading {
  const value = (name: RequestParameter): string | null => parameters.get(name) || null
  const isRepeated = (name: RequestParameter): boolean => parameters.getAll(name).length > 1

  if (isRepeated('client_id') || value('client_id') !== registration.clientId) {
    return { kind: 'rejected', reason: 'The application (client_id) is not known here.' }
  }
  const redirectUri = value('redirect_uri')
  if (
    redirectUri === null ||
    isRepeated('redirect_uri') ||
    !isRegistered(redirectUri, registration)
  ) {
    return {
      kind: 'rejected',
      reason: 'The address to return to (redirect_uri) is not registered for this application.',
    }
  }

  const state = isRepeated('state') ? null : value('state')
  const error = (code: string, description: string): Reading => ({
    kind: 'error',
    redirectUri,
    state,
    error: code,
    description,
  })
  const repeated = requestParameters.find(isRepeated)
  if (repeated !== undefined) return error('invalid_request', `${repeated} is given twice`)
  if (value('response_type') !== 'code') {
    return error('unsupported_response_type', 'response_type must be code')
  }
  const scope = (value('scope') ?? '').split(' ').filter((name) => name !== '')
  if (scope.length === 0) return error('invalid_scope', 'scope is missing')
  if (!scope.every((name) => (supportedScopes as readonly string[]).includes(name))) {
    return error('invalid_scope', 'scope contains an unknown value')
  }
  // Intuit's FAQ requires `state`, but does not say how Intuit responds to a request without `state`. The error that
  // this sandbox returns is an assumption.
  if (state === null) return error('invalid_request', 'state is missing')
  const codeChallenge = registration.pkce ? value('code_challenge') : null
  if (registration.pkce) {
    if (codeChallenge === null) return error('invalid_request', 'code_challenge is missing')
    // A request without a challenge method means `plain` (RFC 7636 §4.3). This provider does not support `plain`.
    if (value('code_challenge_method') !== 'S256') {
      return error('invalid_request', 'code_challenge_method must be S256')
    }
    if (!/^[A-Za-z0-9_-]{43}$/.test(codeChallenge)) {
      return error('invalid_request', 'code_challenge must be 43 characters of base64url')
    }
  }
  return {
    kind: 'valid',
    request: {
      redirectUri,
      scope: [...new Set(scope)],
      state,
      nonce: value('nonce'),
      codeChallenge,
    },
  }
}

/** Returns the redirect URI with the response parameters added to its query. The existing query parameters are kept. */
export function redirectTo(
  redirectUri: string,
  response: Readonly<Record<string, string | null>>,
): string {
  const url = new URL(redirectUri)
  for (const [name, value] of Object.entries(response)) {
    if (value !== null) url.searchParams.set(name, value)
  }
  return url.href
}

/** Returns whether a provider accepts a redirect URI for registration. */
type RedirectUriRule = (uri: URL) => boolean

const isHttpsOrLoopback: RedirectUriRule = (uri) =>
  uri.protocol === 'https:' || (uri.protocol === 'http:' && isLoopback(uri.hostname))

export const redirectUriRules = {
  /**
   * Intuit's rule: the URI has no query, and is either https with a host name, or http or https with the host
   * localhost. (Intuit allows localhost only for development keys.)
   *
   * This sandbox also accepts a loopback address such as `http://127.0.0.1:7217/callback`, which Intuit rejects. The
   * compose stack and the embedded host use such an address. They do not listen on ::1, to which a browser may resolve
   * `localhost`.
   */
  intuit: (uri) => {
    if (uri.search !== '' || uri.href.endsWith('?')) return false
    return isLoopback(uri.hostname)
      ? isHttpsOrLoopback(uri)
      : uri.protocol === 'https:' && !isIpAddress(uri.hostname)
  },
  /** The rule of RFC 6749 §3.1.2 and RFC 8252 §7.3: https, or http to the loopback interface; a query is allowed. */
  standard: isHttpsOrLoopback,
} as const satisfies Readonly<Record<string, RedirectUriRule>>

/**
 * Returns whether a host name is an IP address. The host name must come from a `URL` object, because `URL` normalizes
 * IPv4 addresses to four decimal parts and puts IPv6 addresses in brackets.
 */
const isIpAddress = (hostname: string): boolean =>
  /^\d+(?:\.\d+){3}$/.test(hostname) || hostname.startsWith('[')

/** Returns whether an authorization request may use this redirect URI. */
function isRegistered(redirectUri: string, { redirectUris, rules }: Registration): boolean {
  if (!URL.canParse(redirectUri) || redirectUri.includes('#')) return false
  const uri = new URL(redirectUri)
  if (uri.username !== '' || uri.password !== '' || !redirectUriRules[rules](uri)) return false
  return redirectUris === null ? isLoopback(uri.hostname) : redirectUris.includes(redirectUri)
}

const COMPANY_SCOPES = ['com.intuit.quickbooks.accounting', 'com.intuit.quickbooks.payment']

/**
 * Returns whether the callback and the id token name the company (as `realmId` and `realmid`). Users report that
 * Intuit's callback contains `realmId` only if an accounting or payment scope was requested. This sandbox assumes the
 * same rule for the id token.
 */
export const isCompanyNamed = (
  scope: readonly string[],
  { realmIdNeedsScope }: { readonly realmIdNeedsScope: boolean },
): boolean => !realmIdNeedsScope || scope.some((name) => COMPANY_SCOPES.includes(name))
