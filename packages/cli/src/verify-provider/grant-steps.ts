/** The steps that refresh the grant of this run, rotate its refresh token, and revoke the grant. */
import { signatureLine } from './id-token.ts'
import type { ProviderResponse } from './provider-call.ts'
import { asDocumented, differs, failed, judged, type Line } from './report.ts'
import { refresh, revoke, type Session, type Tokens, tokensOf } from './session.ts'
import { described } from './wording.ts'

export async function* checkRefresh(session: Session): AsyncGenerator<Line> {
  const { settings, expectations, keys } = session
  const before = session.tokens as Tokens // `needsGrant` skips the step if `tokens` is null
  const response = await refresh(session, before.refresh)
  const after = tokensOf(response, before)
  if (after === null) {
    if (isInvalidGrant(response)) session.grant = 'ended'
    yield failed('refresh token value', described(response, settings.profile))
    return
  }
  const hasChanged = adopt(session, after)
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

  const { idleExpiryMember, hardExpiryMember } = settings.profile.token
  const members = [idleExpiryMember, hardExpiryMember]
    .filter((name) => name !== null)
    .map((name) => {
      const value = response.json?.[name]
      const seconds = typeof value === 'number' ? value : null
      return { name, seconds }
    })
  const isWhole = members.every(({ seconds }) => seconds !== null && seconds > 0)
  yield judged(
    'expiry members',
    isWhole || !expectations.hasExpiryMembers,
    members
      .map(({ name, seconds }) => `${name}: ${seconds === null ? 'missing' : `${seconds} s`}`)
      .join(', '),
  )
}

export async function* checkPreviousToken(session: Session): AsyncGenerator<Line> {
  const { settings, previousRefreshToken, tokens } = session
  const current = tokens as Tokens // `needsGrant` skips the step if `tokens` is null
  const reuse = await refresh(session, previousRefreshToken ?? '')
  const renewed = tokensOf(reuse, current)
  if (renewed !== null) {
    const isCurrent = renewed.refresh === current.refresh
    adopt(session, renewed)
    yield asDocumented(
      'previous refresh token',
      `accepted; ${isCurrent ? 'returns the current value' : 'returns another value'}`,
    )
    return
  }
  if (!isInvalidGrant(reuse)) {
    yield differs('previous refresh token', described(reuse, settings.profile))
    return
  }
  // RFC 9700 §4.14.2: a provider may treat the reuse of a refresh token as theft and revoke the grant.
  const next = await refresh(session, current.refresh)
  const after = tokensOf(next, current)
  if (after !== null) {
    adopt(session, after)
    yield asDocumented('previous refresh token', 'rejected; the current one is still accepted')
  } else if (isInvalidGrant(next)) {
    session.grant = 'ended'
    yield asDocumented('previous refresh token', 'rejected, and the grant has ended')
  } else {
    yield differs('previous refresh token', `rejected; then ${described(next, settings.profile)}`)
  }
}

export async function* checkRevocation(session: Session): AsyncGenerator<Line> {
  const { document, tokens, settings, expectations } = session
  const { profile } = settings
  const endpoint = document?.revocation_endpoint ?? ''
  const token = tokens?.refresh ?? ''
  const first = await revoke(session, endpoint, token)
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

  const second = await revoke(session, endpoint, token)
  const isExpected =
    expectations.words === 'intuit'
      ? profile.revocation.isAlreadyRevoked(second)
      : second.status === 200
  yield judged('second revocation', isExpected, described(second, profile))
}

const isInvalidGrant = ({ json }: ProviderResponse): boolean => json?.['error'] === 'invalid_grant'

/** Stores the tokens of a response in the session, and returns whether the refresh token has changed. */
function adopt(session: Session, tokens: Tokens): boolean {
  const before = session.tokens?.refresh ?? null
  session.tokens = tokens
  if (before === tokens.refresh) return false
  session.previousRefreshToken = before
  return true
}
