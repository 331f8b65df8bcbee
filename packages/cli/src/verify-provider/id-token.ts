/**
 * Checks the id token of a code exchange (OpenID Connect Core §2, §3.1.3.7) and compares the token with the provider's
 * documentation.
 */
import { verify } from 'node:crypto'
import { parseJsonObject } from '@integration-host/shared/json'
import type { SigningKeys } from './discovery.ts'
import { asDocumented, differs, failed, judged, type Line } from './report.ts'
import type { Session } from './session.ts'
import { names } from './wording.ts'

type Claims = Readonly<Record<string, unknown>>
/** The members of the session that the checks need. */
export type IdTokenSession = Pick<
  Session,
  'idToken' | 'keys' | 'realm' | 'nonce' | 'settings' | 'expectations'
> & {
  readonly document: Pick<NonNullable<Session['document']>, 'issuer' | 'isNonceAnnounced'> | null
}

/** The allowed difference in seconds between the provider's clock and this machine's. */
const TOLERANCE_SECONDS = 120

/** `now` is in epoch milliseconds. */
export async function* checkIdToken(
  session: IdTokenSession,
  now = Date.now(),
): AsyncGenerator<Line> {
  const token = session.idToken ?? ''
  const claims = decode(token)?.claims
  yield signatureLine(token, session.keys)
  if (claims === undefined) return
  const { iss, auth_time: authTime } = claims
  yield iss === session.document?.issuer
    ? asDocumented('issuer', 'equal')
    : failed('issuer', iss === undefined ? 'missing' : 'another issuer')
  yield audienceLine(claims, session)
  yield realmLine(claims, session)
  yield typeof authTime === 'number'
    ? asDocumented('auth_time', 'a number')
    : judged('auth_time', !session.expectations.hasAuthTime, 'missing')
  yield nonceLine(claims, session)
  yield timesLine(claims, now / 1_000, session)
}

/** Returns the report line for the signature, with the reason if the signature is invalid. */
export function signatureLine(token: string, keys: SigningKeys): Line {
  const decoded = decode(token)
  if (decoded === null) return failed('signature', 'not a JWT in compact form')
  const { header, signed, signature } = decoded
  if (header['alg'] !== 'RS256') return failed('signature', 'another algorithm than RS256')
  const key = keys.get(String(header['kid']))
  if (key === undefined) return failed('signature', 'its kid is not in the key set')
  return verify('RSA-SHA256', Buffer.from(signed), key, signature)
    ? asDocumented('signature', 'RS256, valid')
    : failed('signature', 'RS256, not valid')
}

function audienceLine({ aud }: Claims, { settings, expectations }: IdTokenSession): Line {
  const { clientId } = settings
  if (aud === clientId) return judged('audience', !expectations.isAudienceArray, 'a string, equal')
  if (!Array.isArray(aud) || !aud.includes(clientId))
    return failed('audience', aud === undefined ? 'missing' : 'without this client id')
  const count = aud.length === 1 ? 'one entry' : `${aud.length} entries`
  return judged('audience', aud.length === 1, `an array with ${count}`)
}

function realmLine(claims: Claims, { settings, realm }: IdTokenSession): Line {
  const name = settings.profile.authorization.realmClaim.toLowerCase()
  const spelling = Object.keys(claims).find((key) => key.toLowerCase() === name)
  if (spelling === undefined)
    return asDocumented('realm claim', `missing; claims: ${names(Object.keys(claims))}`)
  if (realm === null) return differs('realm claim', `${spelling}, but the callback has no realmId`)
  return claims[spelling] === realm
    ? asDocumented('realm claim', `${spelling}, equal to the realmId of the callback`)
    : failed('realm claim', `${names([spelling])} names another company than the callback`)
}

function nonceLine({ nonce }: Claims, session: IdTokenSession): Line {
  const { settings, document, expectations } = session
  if (nonce !== undefined)
    return nonce === session.nonce
      ? judged('nonce', expectations.isNonceRepeated, 'repeated')
      : failed('nonce', 'not the one that was sent')
  return settings.profile.authorization.isNonceRequired || document?.isNonceAnnounced === true
    ? failed('nonce', 'missing')
    : asDocumented('nonce', 'not repeated')
}

function timesLine(
  { iat, exp }: Claims,
  nowSeconds: number,
  { expectations }: IdTokenSession,
): Line {
  if (typeof iat !== 'number' || typeof exp !== 'number')
    return failed('id token times', 'iat or exp is missing')
  const offSeconds = Math.round(iat - nowSeconds)
  const seen = `valid for ${Math.round(exp - iat)} s, issued ${Math.abs(offSeconds)} s ${offSeconds > 0 ? 'ahead' : 'ago'}`
  if (exp <= nowSeconds - TOLERANCE_SECONDS) return failed('id token times', `expired; ${seen}`)
  if (Math.abs(offSeconds) > TOLERANCE_SECONDS)
    return failed('id token times', `${seen}: compare the clocks`)
  return judged('id token times', exp - iat === (expectations.idTokenSeconds ?? exp - iat), seen)
}

function decode(token: string) {
  const [head = '', payload = '', signature = '', ...more] = token.split('.')
  const [header, claims] = [head, payload].map((part) =>
    parseJsonObject(Buffer.from(part, 'base64url').toString('utf8')),
  )
  if (!header || !claims || more.length > 0) return null
  return {
    header,
    claims,
    signed: `${head}.${payload}`,
    signature: Buffer.from(signature, 'base64url'),
  }
}
