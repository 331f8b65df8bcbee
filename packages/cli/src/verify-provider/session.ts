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
  /** In order of preference. */
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
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Asks the person; `false` without one, unless `--yes`. */
  readonly confirm: (question: string) => Promise<boolean>
  /** The text for a step that was not confirmed. */
  readonly notConfirmed: string
  /** Sends the browser to the address and resolves with the callback's parameters. @throws {NoCallback} */
  readonly authorize: (url: string, state: string) => Promise<URLSearchParams>

  document: UsableDocument | null
  keys: SigningKeys
  accountingUrl: string | null
  /** The one that the provider accepts. */
  clientSecret: Secret | null
  nonce: string
  realm: string | null
  idToken: string | null
  tokens: Tokens | null
  /** The refresh token before the last change of its value. */
  previousRefreshToken: string | null
  /** `possible`: consent may have been given, but no tokens were received. */
  grant: 'none' | 'possible' | 'established' | 'ended'
  responses: number
  /** Headers that may name a limit: names, and the values that are numbers. */
  readonly limitHeaders: Map<string, string | null>
}

/** The browser brought no usable callback. */
export class NoCallback extends Error {
  override readonly name = 'NoCallback'
  /** Whether a person may have consented all the same. */
  readonly isConsentPossible: boolean

  constructor(message: string, isConsentPossible: boolean) {
    super(message)
    this.isConsentPossible = isConsentPossible
  }
}

export const hasOpenId = ({ settings }: Session): boolean =>
  settings.scope.split(' ').includes('openid')

/** A token request (RFC 6749 §4.1.3, §6). The tokens of its response are kept out of the report. */
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

/** The tokens of a token response; `null` if it holds none. An absent refresh token stays the same (RFC 6749 §6). */
export function tokensOf({ status, json }: ProviderResponse, before?: Tokens): Tokens | null {
  const { access_token: access, refresh_token: refreshToken = before?.refresh } = json ?? {}
  return status === 200 && typeof access === 'string' && typeof refreshToken === 'string'
    ? { access, refresh: refreshToken }
    : null
}

/** Revokes in the profile's way (RFC 7009 §2.1, or Intuit's JSON). */
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

/** A call to the accounting API for the connected company; `path` follows `/v3/company/<realm>/`. */
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
