/** The steps that obtain a grant, refresh it, rotate its refresh token, and revoke it. */
import { createHash, randomBytes } from 'node:crypto'
import { signatureLine } from './id-token.ts'
import type { ProviderResponse } from './provider-call.ts'
import { asDocumented, differs, failed, judged, type Line } from './report.ts'
import { hasOpenId, refresh, requestTokens, revoke, type Session, tokensOf } from './session.ts'
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
  if (callback.has('iss') && callback.get('iss') !== document?.issuer) {
    yield failed('callback', 'iss names another issuer') // RFC 9207: another issuer has issued the code
    return
  }
  yield callbackLine(session, callback, members)

  const response = await requestTokens(session, {
    grant_type: 'authorization_code',
    code,
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
  if (isRealmDue && realm === null) return differs('callback', `no realmId; members: ${members}`)
  const company = realm === null ? 'no company' : `company ${maskedRealm(realm)}`
  const isIssuerDue = document?.isIssuerSent === true
  const due = ['code', 'state', 'realmId', ...(isIssuerDue ? ['iss'] : [])]
  const isAsExpected =
    [...callback.keys()].every((name) => due.includes(name)) && callback.has('iss') === isIssuerDue
  return judged('callback', isAsExpected, `${company}; members: ${members}`)
}

function exchangeLine(session: Session, { json }: ProviderResponse): Line {
  const { settings, expectations } = session
  const { id_token, expires_in, token_type } = json ?? {}
  session.idToken = typeof id_token === 'string' ? id_token : null
  const due = [
    'access_token',
    'refresh_token',
    'token_type',
    'expires_in',
    ...(expectations.hasExpiryMembers ? expiryMembersOf(settings.profile) : []),
    ...(hasOpenId(session) ? ['id_token'] : []),
  ]
  const present = Object.keys(json ?? {})
  const missing = due.filter((name) => !present.includes(name))
  const extra = expectations.hasExpiryMembers ? present.filter((name) => !due.includes(name)) : []
  const seen = [
    `access token ${typeof expires_in === 'number' ? `${expires_in} s` : 'without a number of seconds'}`,
    String(token_type).toLowerCase() !== 'bearer' && 'another token_type than bearer',
    missing.length > 0 && `missing: ${missing.join(', ')}`,
    extra.length > 0 && `extra: ${names(extra)}`,
  ].filter((text) => text !== false)
  const isAsExpected =
    seen.length === 1 && expires_in === (expectations.accessTokenSeconds ?? expires_in)
  return judged('code exchange', isAsExpected, seen.join('; '))
}

const expiryMembersOf = ({ token }: Session['settings']['profile']): string[] =>
  [token.idleExpiryMember, token.hardExpiryMember].filter((name) => name !== null)

export async function* checkRefresh(session: Session): AsyncGenerator<Line> {
  const { settings, expectations, keys } = session
  const response = await refresh(session, session.tokens?.refresh ?? '')
  const hasChanged = adopt(session, response)
  if (hasChanged === null) {
    if (isInvalidGrant(response)) session.grant = 'ended'
    yield failed('refresh token value', described(response, settings.profile))
    return
  }
  yield judged(
    'refresh token value',
    !hasChanged || expectations.mayRefreshTokenChange,
    hasChanged ? 'changed' : 'stays the same',
  )

  const idToken = response.json?.['id_token']
  if (typeof idToken !== 'string') yield asDocumented('id token on refresh', 'none')
  else {
    const { verdict, seen } = signatureLine(idToken, keys)
    yield { check: 'id token on refresh', verdict, seen: `there is one: ${seen}` }
  }

  const members = expiryMembersOf(settings.profile).map((name) => {
    const seconds = response.json?.[name]
    return { name, seconds: typeof seconds === 'number' ? seconds : null }
  })
  yield judged(
    'expiry members',
    members.every(({ seconds }) => (seconds ?? 0) > 0) || !expectations.hasExpiryMembers,
    members
      .map(({ name, seconds }) => `${name}: ${seconds === null ? 'missing' : `${seconds} s`}`)
      .join(', '),
  )
}

export async function* checkPreviousToken(session: Session): AsyncGenerator<Line> {
  const check = 'previous refresh token'
  const { settings, previousRefreshToken, tokens } = session
  const current = tokens?.refresh ?? ''
  const reuse = await refresh(session, previousRefreshToken ?? '')
  const hasChanged = adopt(session, reuse)
  if (hasChanged !== null) {
    yield asDocumented(check, `accepted; returns ${hasChanged ? 'another' : 'the current'} value`)
    return
  }
  if (!isInvalidGrant(reuse)) {
    yield differs(check, described(reuse, settings.profile))
    return
  }
  // RFC 9700 §4.14.2: a provider may treat the reuse of a refresh token as theft and revoke the grant.
  const next = await refresh(session, current)
  if (adopt(session, next) !== null)
    yield asDocumented(check, 'rejected; the current one is still accepted')
  else if (isInvalidGrant(next)) {
    session.grant = 'ended'
    yield asDocumented(check, 'rejected, and the grant has ended')
  } else yield differs(check, `rejected; then ${described(next, settings.profile)}`)
}

export async function* checkRevocation(session: Session): AsyncGenerator<Line> {
  const { tokens, settings, expectations } = session
  const { profile } = settings
  const token = tokens?.refresh ?? ''
  const first = await revoke(session, token)
  const form = `${profile.revocation.body === 'json' ? 'JSON' : 'form'} body`
  if (first.status !== 200) {
    yield failed('revocation', `${described(first, profile)} for a ${form}`)
    return
  }
  session.grant = 'ended'
  yield asDocumented('revocation', `200 for a ${form}`)

  // This refresh shows whether the first revocation has ended the grant. This refresh must precede the second
  // revocation, which could end the grant as well.
  const after = await refresh(session, token)
  if (tokensOf(after) !== null) session.grant = 'established'
  yield isInvalidGrant(after)
    ? judged('refresh after revocation', after.status === 400, described(after, profile))
    : failed('refresh after revocation', described(after, profile))

  const second = await revoke(session, token)
  const isExpected = expectations.isSecondRevocationRejected
    ? profile.revocation.isAlreadyRevoked(second)
    : second.status === 200
  yield judged('second revocation', isExpected, described(second, profile))
}

const isInvalidGrant = ({ json }: ProviderResponse): boolean => json?.['error'] === 'invalid_grant'

/**
 * Stores the tokens of a response to a refresh. Returns whether the refresh token has changed; `null` if the response
 * has no tokens.
 */
function adopt(session: Session, response: ProviderResponse): boolean | null {
  const before = session.tokens
  const tokens = tokensOf(response, before ?? undefined)
  if (tokens === null) return null
  session.tokens = tokens
  if (before?.refresh === tokens.refresh) return false
  session.previousRefreshToken = before?.refresh ?? null
  return true
}
