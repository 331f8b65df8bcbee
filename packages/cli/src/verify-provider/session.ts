/** The state that the steps of one run share: settings, calls, and results of earlier steps. */
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { SigningKeys, UsableDocument } from './discovery.ts'
import type { Expectations } from './expectations.ts'
import { basicAuthorization } from './key-pair.ts'
import type { CallProvider, ProviderResponse } from './provider-call.ts'
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
  /** Returns the time in epoch milliseconds. */
  readonly now: () => number
  /**
   * Prompts the user for confirmation. Without a terminal, no prompt is shown and the result is `false`. With `--yes`,
   * no prompt is shown and the result is `true`.
   */
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
  /**
   * The refresh token that the current refresh token replaced; `null` if no refresh has returned a new refresh token.
   */
  previousRefreshToken: string | null
  /** The state of the grant. `possible` means that the user may have consented, but no tokens were received. */
  grant: 'none' | 'possible' | 'established' | 'ended'
  responses: number
  /**
   * Response headers that may state a rate limit, by name. A value is `null` if the header does not contain a number.
   */
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
    body: new URLSearchParams(form),
  })
  const { access_token, refresh_token, id_token } = response.json ?? {}
  for (const token of [access_token, refresh_token, id_token])
    if (typeof token === 'string') redaction.add(token, ...token.split('.'))
  return response
}

export const refresh = (session: Session, refreshToken: string): Promise<ProviderResponse> =>
  requestTokens(session, {
    grant_type: 'refresh_token',
    refresh_token: refreshToken,
    redirect_uri: session.settings.redirect,
  })

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
export const revoke = (
  session: Session,
  endpoint: string,
  token: string,
): Promise<ProviderResponse> => {
  const isJson = session.settings.profile.revocation.body === 'json'
  return session.call(endpoint, {
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

/**
 * Calls the accounting API for the connected company. `path` is the part of the URL path after `/v3/company/<realm>/`.
 */
export const callAccounting = (
  session: Session,
  path: string,
  {
    body,
    accessToken = session.tokens?.access ?? '',
  }: { body?: unknown; accessToken?: string } = {},
  headers: Readonly<Record<string, string>> = {},
): Promise<ProviderResponse> =>
  session.call(
    `${session.accountingUrl}/v3/company/${encodeURIComponent(session.realm ?? '')}/${path}`,
    {
      headers: {
        Authorization: `Bearer ${accessToken}`,
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { method: 'POST', body: JSON.stringify(body) }),
    },
  )
