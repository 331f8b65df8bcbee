/**
 * The provider's memory of what was granted.
 *
 * A code is exchanged once for a grant: one company, one application. A grant has one current refresh token
 * and any number of access tokens, each valid until it expires, whatever is refreshed meanwhile.
 *
 * G1 A refresh either rotates (the presented token is superseded) or returns the current token again.
 * G2 A superseded token is accepted within its grace, and returns the current one: a rotation whose response
 *    was lost can be recovered. After its grace it is not valid any more, neither for a refresh nor for a
 *    revocation.
 * G3 A code that is used again is rejected and ends its grant (RFC 6749 §4.1.2, as Intuit's FAQ warns).
 * G4 When a grant ends, all its tokens become invalid.
 * G5 A refresh token lives for `refreshTokenSeconds` from the rotation that made it; under `never`, from its
 *    last use. No grant outlives five years from its consent.
 *
 * Not documented by Intuit; our choice: after a refresh, earlier access tokens stay valid until they expire; a
 * second authorization of a company does not end the first grant; a code lives for ten minutes.
 */
import { createHash } from 'node:crypto'
import type { Counters } from '../control/counters.ts'
import { isCompanyNamed } from '../authorization/company-scopes.ts'
import type { Behaviour } from '../control/behaviour.ts'

export interface Consent {
  readonly realm: string
  readonly scope: readonly string[]
  readonly redirectUri: string
  readonly nonce: string | null
  readonly codeChallenge: string | null
}

/** What a successful token call gives. Durations count from now. */
export interface Issued {
  /** For the id token; `null` if that does not name the company. */
  readonly realm: string | null
  readonly scope: readonly string[]
  readonly subject: string
  /** For the id token; `null` on refresh (OpenID Connect Core §12.2), or if the provider ignores nonces. */
  readonly nonce: string | null
  /** Epoch seconds of the person's consent. */
  readonly authTime: number
  readonly accessToken: string
  readonly accessTokenSeconds: number
  readonly refreshToken: string
  readonly refreshTokenSeconds: number
  readonly hardExpirySeconds: number
}

export interface AccessTokenState {
  readonly realm: string
  readonly scope: readonly string[]
  readonly subject: string
}

export interface Grants {
  /** A one-time code, good for ten minutes. */
  issueCode(consent: Consent): string
  /** `null`: `invalid_grant`. */
  exchangeCode(
    code: string,
    proof: { readonly redirectUri: string | null; readonly codeVerifier: string | null },
  ): Issued | null
  /** `null`: `invalid_grant`. */
  refresh(refreshToken: string): Issued | null
  /** The realm that a refresh token belongs or belonged to; null for a foreign one. */
  realmOf(refreshToken: string): string | null
  /** `null`: unknown, expired or ended. */
  accessToken(token: string): AccessTokenState | null
  /** Ends the grant of a valid access or refresh token; false if the token is not valid (any more). */
  revokeToken(token: string): boolean
  /** Ends all grants of the realm; returns the number of those that were still valid. */
  revokeRealm(realm: string): number
  /** Lets all access tokens of the realm expire now; the number of those that were valid. */
  expireRealm(realm: string): number
  reset(): void
}

export interface GrantsDeps {
  /** Epoch milliseconds. */
  readonly now: () => number
  /** An unguessable token. */
  readonly random: () => string
  readonly settings: () => Behaviour
  readonly counters: Counters
  readonly memory?: GrantsMemory
}

/** Everything remembered. The same grants are in several of its maps. */
export interface GrantsMemory {
  readonly codes: Map<string, Code>
  readonly refreshTokens: Map<string, Grant>
  readonly accessTokens: Map<string, AccessToken>
  readonly grants: Set<Grant>
}

export const emptyGrants = (): GrantsMemory => ({
  codes: new Map(),
  refreshTokens: new Map(),
  accessTokens: new Map(),
  grants: new Set(),
})

interface Code {
  readonly consent: Consent
  readonly expiresAt: number
  /** The grant it was exchanged for. */
  spentOn: Grant | null
}

interface Grant {
  readonly realm: string
  readonly scope: readonly string[]
  readonly subject: string
  readonly grantedAt: number
  current: { readonly token: string; readonly rotatedAt: number }
  /** Superseded tokens and when their grace ends, oldest first. */
  readonly superseded: Map<string, number>
  refreshExpiresAt: number
  isEnded: boolean
}

interface AccessToken {
  readonly grant: Grant
  expiresAt: number
}

const CODE_MS = 600_000
const DAY_MS = 86_400_000
const HARD_EXPIRY_MS = 5 * 365 * DAY_MS // from the consent, whatever is refreshed
/** How many superseded tokens of a grant are recognised. */
const SUPERSEDED = 100

export function createGrants({
  now,
  random,
  settings,
  counters,
  memory = emptyGrants(),
}: GrantsDeps): Grants {
  const { codes, refreshTokens, accessTokens, grants } = memory
  let sweepAccessTokensAt = 1_000

  function issue(grant: Grant, nonce: string | null): Issued {
    const { accessTokenSeconds, rotation, refreshTokenSeconds, ...behaviour } = settings()
    const accessToken = `sandbox-access-${random()}`
    if (accessTokens.size >= sweepAccessTokensAt) {
      for (const [token, { expiresAt }] of accessTokens) {
        if (expiresAt <= now()) accessTokens.delete(token)
      }
      sweepAccessTokensAt = Math.max(1_000, 2 * accessTokens.size)
    }
    accessTokens.set(accessToken, { grant, expiresAt: now() + accessTokenSeconds * 1_000 })
    const livesFrom = rotation === 'never' ? now() : grant.current.rotatedAt // G5
    grant.refreshExpiresAt = Math.min(
      livesFrom + refreshTokenSeconds * 1_000,
      grant.grantedAt + HARD_EXPIRY_MS,
    )
    return {
      realm: isCompanyNamed(grant.scope, behaviour) ? grant.realm : null,
      scope: grant.scope,
      subject: grant.subject,
      nonce: behaviour.nonce ? nonce : null,
      authTime: Math.floor(grant.grantedAt / 1_000),
      accessToken,
      accessTokenSeconds,
      refreshToken: grant.current.token,
      refreshTokenSeconds: Math.floor((grant.refreshExpiresAt - now()) / 1_000),
      hardExpirySeconds: Math.floor((grant.grantedAt + HARD_EXPIRY_MS - now()) / 1_000),
    }
  }

  function rotate(grant: Grant): void {
    grant.superseded.set(grant.current.token, now() + settings().graceSeconds * 1_000)
    const [oldest] = grant.superseded.keys()
    if (grant.superseded.size > SUPERSEDED && oldest !== undefined) {
      grant.superseded.delete(oldest)
      refreshTokens.delete(oldest)
    }
    grant.current = { token: `sandbox-refresh-${random()}`, rotatedAt: now() }
    refreshTokens.set(grant.current.token, grant)
  }

  const isRotationDue = (grant: Grant): boolean => {
    switch (settings().rotation) {
      case 'always':
        return true
      case 'daily':
        return now() - grant.current.rotatedAt >= DAY_MS
      case 'never':
        return false
    }
  }

  function provesPossession(challenge: string | null, verifier: string | null): boolean {
    if (!settings().pkce) return true
    // A verifier for a code without challenge means that the challenge was removed on its way (RFC 9700 §4.8.2).
    if (challenge === null || verifier === null) return challenge === verifier
    return (
      /^[A-Za-z0-9._~-]{43,128}$/.test(verifier) &&
      createHash('sha256').update(verifier).digest('base64url') === challenge
    )
  }

  function grantOfAccessToken(token: string): Grant | null {
    const found = accessTokens.get(token)
    if (found === undefined || found.expiresAt <= now() || found.grant.isEnded) return null
    return found.grant
  }

  /** The grant for which a refresh token is valid now; `null` if there is none. */
  function grantOfRefreshToken(token: string): Grant | null {
    const grant = refreshTokens.get(token)
    if (grant === undefined || grant.isEnded || grant.refreshExpiresAt <= now()) return null
    return (grant.superseded.get(token) ?? Infinity) > now() ? grant : null
  }

  const standing = (realm: string): Grant[] =>
    [...grants].filter((grant) => grant.realm === realm && !grant.isEnded)

  return {
    issueCode(consent) {
      for (const [code, { expiresAt }] of codes) {
        if (expiresAt > now()) break // in the order of their making
        codes.delete(code)
      }
      const code = `sandbox-code-${random()}`
      codes.set(code, { consent, expiresAt: now() + CODE_MS, spentOn: null })
      return code
    },

    exchangeCode(value, { redirectUri, codeVerifier }) {
      const code = codes.get(value)
      if (code === undefined || code.expiresAt <= now()) return null
      const { consent } = code
      if (code.spentOn !== null) {
        counters.count(consent.realm, 'codeReuses')
        code.spentOn.isEnded = true // G3
        return null
      }
      if (consent.redirectUri !== redirectUri) return null
      if (!provesPossession(consent.codeChallenge, codeVerifier)) return null
      const grant: Grant = {
        realm: consent.realm,
        scope: consent.scope,
        subject: subjectOf(consent.realm),
        grantedAt: now(),
        current: { token: `sandbox-refresh-${random()}`, rotatedAt: now() },
        superseded: new Map(),
        refreshExpiresAt: now(),
        isEnded: false,
      }
      code.spentOn = grant
      grants.add(grant)
      refreshTokens.set(grant.current.token, grant)
      counters.count(grant.realm, 'codeExchanges')
      return issue(grant, consent.nonce)
    },

    refresh(token) {
      const grant = refreshTokens.get(token)
      if (grant === undefined) return null
      const reject = (): null => {
        counters.count(grant.realm, 'refreshesRefused')
        return null
      }
      const graceEndsAt = grant.superseded.get(token)
      if (graceEndsAt !== undefined) counters.count(grant.realm, 'tokenReuses')
      if (grant.isEnded || grant.refreshExpiresAt <= now()) return reject()
      if (graceEndsAt === undefined) {
        if (isRotationDue(grant)) rotate(grant) // G1
      } else if (graceEndsAt <= now()) {
        if (settings().revokeOnReuse) grant.isEnded = true
        return reject()
      } // else G2: the current token again
      counters.count(grant.realm, 'refreshes')
      return issue(grant, null)
    },

    realmOf: (token) => refreshTokens.get(token)?.realm ?? null,

    accessToken: grantOfAccessToken,

    revokeToken(token) {
      const grant = grantOfRefreshToken(token) ?? grantOfAccessToken(token)
      if (grant === null) return false
      grant.isEnded = true
      counters.count(grant.realm, 'revocations')
      return true
    },

    revokeRealm(realm) {
      const ending = standing(realm)
      for (const grant of ending) grant.isEnded = true
      return ending.length
    },

    expireRealm(realm) {
      const valid = [...accessTokens.values()].filter(
        ({ grant, expiresAt }) => grant.realm === realm && !grant.isEnded && expiresAt > now(),
      )
      for (const token of valid) token.expiresAt = now()
      return valid.length
    },

    reset() {
      codes.clear()
      refreshTokens.clear()
      accessTokens.clear()
      grants.clear()
    },
  }
}

/** One made-up person per company, the same at every consent. */
const subjectOf = (realm: string): string =>
  createHash('sha256')
    .update(`sandbox subject ${realm}`)
    .digest('hex')
    .replace(/^(.{8})(.{4})(.{4})(.{4})(.{12}).*$/, '$1-$2-$3-$4-$5')
