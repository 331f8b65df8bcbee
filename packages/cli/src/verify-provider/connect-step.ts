/** The step "connect": the authorization request, its callback, and the code exchange. */
import { createHash, randomBytes } from 'node:crypto'
import type { ProviderResponse } from './provider-call.ts'
import { differs, failed, judged, type Line } from './report.ts'
import { hasOpenId, requestTokens, type Session, tokensOf } from './session.ts'
import { described, errorCode, maskedRealm, names } from './wording.ts'

const random = (): string => randomBytes(32).toString('base64url')

export async function* checkCallback(session: Session): AsyncGenerator<Line> {
  const { redaction, document, settings } = session
  const [state, verifier] = [random(), random()]
  session.nonce = random()
  redaction.add(state, verifier, session.nonce)

  session.grant = 'possible'
  const callback = await session.authorize(authorizationUrl(session, state, verifier), state)
  for (const name of ['code', 'realmId']) redaction.add(callback.get(name))

  const members = names(callback.keys())
  const code = callback.get('code')
  if (code === null) {
    const error = errorCode(callback.get('error'))
    session.grant = 'none'
    yield failed('callback', `${error ?? 'neither code nor error'}; members: ${members}`)
    return
  }
  session.realm = callback.get('realmId')
  yield callbackLine(session, callback, members)
  const isForeign = callback.has('iss') && callback.get('iss') !== document?.issuer
  if (isForeign) return // RFC 9207: another issuer has issued the code

  const response = await requestTokens(session, {
    grant_type: 'authorization_code',
    code,
    redirect_uri: settings.redirect,
    ...(document?.hasPkce && { code_verifier: verifier }),
  })
  session.tokens = tokensOf(response)
  if (session.tokens === null) {
    // After `invalid_grant` no grant exists. After any other error response a grant may exist.
    if (response.status >= 400 && response.status < 500) session.grant = 'none'
    yield failed('code exchange', described(response, settings.profile))
    return
  }
  session.grant = 'established'
  yield exchangeLine(session, response)
}

function authorizationUrl(session: Session, state: string, verifier: string): string {
  const { document, settings, nonce } = session
  const url = new URL(document?.authorization_endpoint ?? '')
  const parameters = {
    client_id: settings.clientId,
    response_type: 'code',
    scope: settings.scope,
    redirect_uri: settings.redirect,
    state,
    ...(hasOpenId(session) && { nonce }),
    ...(document?.hasPkce && {
      code_challenge: createHash('sha256').update(verifier).digest('base64url'),
      code_challenge_method: 'S256',
    }),
  }
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value)
  return url.href
}

function callbackLine(
  { settings, document, realm }: Session,
  callback: URLSearchParams,
  members: string,
): Line {
  const { realmScopes } = settings.profile.authorization
  const scopes = settings.scope.split(' ')
  const isRealmDue = realmScopes.length === 0 || realmScopes.some((one) => scopes.includes(one))
  const iss = callback.get('iss')
  if (iss !== null && iss !== document?.issuer)
    return failed('callback', 'iss names another issuer')
  if (isRealmDue && realm === null) return differs('callback', `no realmId; members: ${members}`)
  const company = realm === null ? 'no company' : `company ${maskedRealm(realm)}`
  const due = ['code', 'state', 'realmId', ...(document?.isIssuerSent ? ['iss'] : [])]
  const isAsExpected =
    [...callback.keys()].every((name) => due.includes(name)) &&
    (iss !== null || !document?.isIssuerSent)
  return judged('callback', isAsExpected, `${company}; members: ${members}`)
}

function exchangeLine(session: Session, { json }: ProviderResponse): Line {
  const { settings, expectations } = session
  const { idleExpiryMember, hardExpiryMember } = settings.profile.token
  const { id_token, expires_in, token_type } = json ?? {}
  session.idToken = typeof id_token === 'string' ? id_token : null
  const due = [
    'access_token',
    'refresh_token',
    'token_type',
    'expires_in',
    ...(expectations.hasExpiryMembers
      ? [idleExpiryMember, hardExpiryMember].filter((name) => name !== null)
      : []),
    ...(hasOpenId(session) ? ['id_token'] : []),
  ]
  const present = Object.keys(json ?? {})
  const missing = due.filter((name) => !present.includes(name))
  const extra = expectations.hasExpiryMembers ? present.filter((name) => !due.includes(name)) : []
  const isBearer = String(token_type).toLowerCase() === 'bearer'
  const seconds = typeof expires_in === 'number' ? `${expires_in} s` : 'without a number of seconds'
  return judged(
    'code exchange',
    missing.length === 0 &&
      extra.length === 0 &&
      isBearer &&
      expires_in === (expectations.accessTokenSeconds ?? expires_in),
    [
      `access token ${seconds}`,
      ...(isBearer ? [] : ['another token_type than bearer']),
      ...(missing.length === 0 ? [] : [`missing: ${missing.join(', ')}`]),
      ...(extra.length === 0 ? [] : [`extra: ${names(extra)}`]),
    ].join('; '),
  )
}
