/** The state that the steps of one run share: settings, calls, and results of earlier steps. */
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { SigningKeys, UsableDocument } from './discovery.ts'
import type { Expectations } from './expectations.ts'
import { basicAuthorization, type CallProvider, type ProviderResponse } from './provider-call.ts'
import type { Redaction } from './wording.ts'

export interface VerifySettings {
  readonly discoveryUrl: string
  readonly clientId: string
  /** The client secrets in order of preference. */
  readonly clientSecrets: readonly Secret[]
  readonly redirect: string
  readonly scope: string
  readonly profile: ProviderProfile
  readonly accountingUrl: string | null
  readonly mayCreate: boolean
  readonly mayUseProduction: boolean
}

export interface Tokens {
  readonly access: string
  readonly refresh: string
}

export interface Session {
  readonly settings: VerifySettings
  readonly expectations: Expectations
  readonly call: CallProvider
  readonly redaction: Redaction
  /** Prompts the user for confirmation. Without a terminal the result is `false`, and with `--yes` it is `true`. */
  readonly confirm: (question: string) => Promise<boolean>
  /** The text of the report for a step that the user did not confirm. */
  readonly notConfirmed: string
  /**
   * Prints the address to open in a browser, and resolves with the parameters of the callback.
   *
   * @throws {NoCallback} no usable callback arrived in time.
   */
  readonly authorize: (url: string, state: string) => Promise<URLSearchParams>

  document: UsableDocument | null
  keys: SigningKeys
  accountingUrl: string | null
  /** The client secret that the provider accepts; `null` until client id and secret have been checked. */
  clientSecret: Secret | null
  nonce: string
  realm: string | null
  idToken: string | null
  tokens: Tokens | null
  /** The refresh token that the current one replaced; `null` if no refresh has returned a new one. */
  previousRefreshToken: string | null
  /** The state of the grant. `possible` means that the user may have consented, but no tokens were received. */
  grant: 'none' | 'possible' | 'established' | 'ended'
  responses: number
  /** Response headers that may state a rate limit, by name; `null` if the header does not contain a number. */
  readonly limitHeaders: Map<string, string | null>
}

/** No usable callback was received. */
export class NoCallback extends Error {
  override readonly name = 'NoCallback'
  /** Whether the user may have consented although no usable callback was received. */
  readonly isConsentPossible: boolean

  constructor(message: string, isConsentPossible: boolean) {
    super(message)
    this.isConsentPossible = isConsentPossible
  }
}

export const hasOpenId = ({ settings }: Session): boolean =>
  settings.scope.split(' ').includes('openid')

/** Sends a token request (RFC 6749 §4.1.3, §6). The tokens of the response are redacted in the report. */
export async function requestTokens(
  session: Session,
  form: Readonly<Record<string, string>>,
): Promise<ProviderResponse> {
  const { settings, document, redaction } = session
  const response = await session.call(document?.token_endpoint ?? '', {
    method: 'POST',
    headers: { ...settings.profile.token.requestHeaders, ...clientAuthentication(session) },
    body: new URLSearchParams({ ...form, redirect_uri: settings.redirect }),
  })
  for (const name of ['access_token', 'refresh_token', 'id_token']) {
    const token = response.json?.[name]
    if (typeof token === 'string') redaction.add(token, ...token.split('.'))
  }
  return response
}

export const refresh = (session: Session, refreshToken: string): Promise<ProviderResponse> =>
  requestTokens(session, { grant_type: 'refresh_token', refresh_token: refreshToken })

/**
 * Returns the tokens of a token response; `null` if the response has no tokens. If the response has no refresh token,
 * the previous refresh token stays valid (RFC 6749 §6).
 */
export function tokensOf({ status, json }: ProviderResponse, before?: Tokens): Tokens | null {
  const { access_token: access, refresh_token: refreshToken = before?.refresh } = json ?? {}
  return status === 200 && typeof access === 'string' && typeof refreshToken === 'string'
    ? { access, refresh: refreshToken }
    : null
}

/** Revokes a token. The provider profile selects the body format: the form of RFC 7009 §2.1, or Intuit's JSON. */
export function revoke(session: Session, token: string): Promise<ProviderResponse> {
  const isJson = session.settings.profile.revocation.body === 'json'
  return session.call(session.document?.revocation_endpoint ?? '', {
    method: 'POST',
    headers: {
      ...clientAuthentication(session),
      ...(isJson && { 'Content-Type': 'application/json' }),
    },
    body: isJson ? JSON.stringify({ token }) : new URLSearchParams({ token }),
  })
}

const clientAuthentication = ({ settings, clientSecret }: Session) => ({
  ...(clientSecret !== null && {
    Authorization: basicAuthorization(settings.clientId, clientSecret),
  }),
})

const MINOR_VERSION = '75' // the lowest minor version of the API that Intuit supports since August 2025

/** Calls a resource of the accounting API for the connected company; with a body it sends a POST. */
export function callAccounting(
  session: Session,
  resource: string,
  {
    query = {},
    body,
    headers = {},
    accessToken = session.tokens?.access ?? '',
  }: {
    readonly query?: Readonly<Record<string, string>>
    readonly body?: object
    readonly headers?: Readonly<Record<string, string>>
    readonly accessToken?: string
  },
): Promise<ProviderResponse> {
  const search = new URLSearchParams({ ...query, minorversion: MINOR_VERSION })
  const company = `${session.accountingUrl}/v3/company/${encodeURIComponent(session.realm ?? '')}`
  return session.call(`${company}/${resource}?${search.toString()}`, {
    headers: {
      Authorization: `Bearer ${accessToken}`,
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { method: 'POST', body: JSON.stringify(body) }),
  })
}
