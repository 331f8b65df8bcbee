/**
 * The grants that users have given to the application, and the codes and tokens of these grants.
 *
 * A code can be exchanged once. The exchange creates a grant of access to one company. A grant has one current refresh
 * token and any number of access tokens. A refresh does not invalidate earlier access tokens.
 *
 * G1  A refresh either replaces the presented refresh token by a new one (rotation), or returns the presented token
 *     again. After a rotation, the presented token is superseded.
 * G2  During the grace period, a refresh with a superseded token succeeds and returns the current refresh token. A
 *     client can thus recover from a lost response. After the grace period, a superseded token can be used neither for
 *     a refresh nor for a revocation.
 * G3  The second use of a code is rejected and ends the grant (RFC 6749 §4.1.2, and Intuit's FAQ).
 * G4  When a grant ends, all its tokens become invalid.
 * G5  A refresh token is valid for `refreshTokenSeconds` from the rotation that issued the token. If `rotation` is
 *     `never`, this time counts from the last use of the token. Every grant ends five years after the user's consent.
 *
 * Intuit does not document three rules that this sandbox applies. Access tokens stay valid after a refresh until they
 * expire. A second authorization of a company does not end the first grant. A code is valid for ten minutes.
 */
import { createHash } from 'node:crypto'
import type { Counters } from '../control/counters.ts'
import { isCompanyNamed } from '../authorization/authorization-request.ts'
import type { Behaviour } from '../control/settings.ts'

export interface Consent {
  readonly realm: string
  readonly scope: readonly string[]
  readonly redirectUri: string
  readonly nonce: string | null
  readonly codeChallenge: string | null
}

/** The content of a successful token response. All durations are seconds from now. */
export interface Issued {
  /** The realm claim of the id token; `null` if the id token does not name the company. */
  readonly realm: string | null
  readonly scope: readonly string[]
  readonly subject: string
  /** The nonce of the id token; `null` on refresh (OpenID Connect Core §12.2), or if the provider ignores nonces. */
  readonly nonce: string | null
  /** The time of the user's consent in epoch seconds. */
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

export interface GrantsDeps {
  /** Returns the time in epoch milliseconds. */
  readonly now: () => number
  /** Returns a random string that cannot be guessed. */
  readonly random: () => string
  readonly settings: () => Behaviour
  readonly counters: Counters
  readonly memory?: GrantsMemory
}

/** The stored codes, tokens and grants. The entries for all tokens of a grant refer to the same grant object. */
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
  /** The grant that was created when the code was exchanged; `null` before the exchange. */
  spentOn: Grant | null
}

interface Grant {
  readonly realm: string
  readonly scope: readonly string[]
  readonly subject: string
  readonly grantedAt: number
  current: { readonly token: string; readonly rotatedAt: number }
  /**
   * Superseded refresh tokens, oldest first, each with the time in epoch milliseconds at which its grace period ends.
   */
  readonly superseded: Map<string, number>
  refreshExpiresAt: number
  isEnded: boolean
}

interface AccessToken {
  readonly grant: Grant
  expiresAt: number
}

/**
 * The maximum number of codes and grants. It limits the memory use, because the authorization endpoint requires no
 * sign-in, so any client can obtain codes.
 */
export const MAX_GRANTS = 5_000
const CODE_MS = 600_000
const DAY_MS = 86_400_000
/**
 * The maximum number of superseded refresh tokens that are stored for a grant. Older tokens are rejected as unknown.
 */
const SUPERSEDED = 100

export function createGrants({
  now,
  random,
  settings,
  counters,
  memory = emptyGrants(),
}: GrantsDeps) {
  const { codes, refreshTokens, accessTokens, grants } = memory
  let sweepAccessTokensAt = 1_000

  function issue(grant: Grant, nonce: string | null): Issued {
    const { accessTokenSeconds, rotation, refreshTokenSeconds, ...behaviour } = settings()
    const grantEndsAt = grant.grantedAt + behaviour.grantSeconds * 1_000
    const accessToken = `sandbox-access-${random()}`
    if (accessTokens.size >= sweepAccessTokensAt) {
      for (const [token, { expiresAt }] of accessTokens) {
        if (expiresAt <= now()) accessTokens.delete(token)
      }
      sweepAccessTokensAt = Math.max(1_000, 2 * accessTokens.size)
    }
    accessTokens.set(accessToken, { grant, expiresAt: now() + accessTokenSeconds * 1_000 })
    // G5: the lifetime of a refresh token begins with its last use if `rotation` is `never`, and otherwise with the
    // rotation that issued the token.
    const livesFrom = rotation === 'never' ? now() : grant.current.rotatedAt
    grant.refreshExpiresAt = Math.min(livesFrom + refreshTokenSeconds * 1_000, grantEndsAt)
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
      hardExpirySeconds: Math.floor((grantEndsAt - now()) / 1_000),
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
    // A verifier for a code without a challenge means that an attacker has removed the challenge from the authorization
    // request (PKCE downgrade, RFC 9700 §4.8.2).
    if (challenge === null || verifier === null) return challenge === verifier
    return (
      /^[A-Za-z0-9._~-]{43,128}$/.test(verifier) &&
      createHash('sha256').update(verifier).digest('base64url') === challenge
    )
  }

  /** Returns the grant of an access token; `null` if the token is unknown or expired, or its grant has ended. */
  function grantOfAccessToken(token: string): Grant | null {
    const found = accessTokens.get(token)
    if (found === undefined || found.expiresAt <= now() || found.grant.isEnded) return null
    return found.grant
  }

  /** Returns the grant of a valid refresh token; `null` if the token is invalid. */
  function grantOfRefreshToken(token: string): Grant | null {
    const grant = refreshTokens.get(token)
    if (grant === undefined || grant.isEnded || grant.refreshExpiresAt <= now()) return null
    return (grant.superseded.get(token) ?? Infinity) > now() ? grant : null
  }

  /**
   * Deletes ended and expired grants together with their refresh tokens. A deleted refresh token is rejected as
   * unknown.
   */
  function forgetEndedGrants(): void {
    for (const grant of grants) {
      if (!grant.isEnded && grant.refreshExpiresAt > now()) continue
      grants.delete(grant)
      for (const token of [grant.current.token, ...grant.superseded.keys()])
        refreshTokens.delete(token)
    }
  }

  const standing = (realm: string): Grant[] =>
    [...grants].filter((grant) => grant.realm === realm && !grant.isEnded)

  return {
    /**
     * Returns a new authorization code, which can be used once within ten minutes; `null` if the limit {@link MAX_GRANTS}
     * on valid codes and grants is reached.
     */
    issueCode(consent: Consent): string | null {
      for (const [code, { expiresAt }] of codes) {
        if (expiresAt > now()) break // A Map iterates in insertion order, so all later codes are valid.
        codes.delete(code)
      }
      if (codes.size + grants.size >= MAX_GRANTS) forgetEndedGrants()
      if (codes.size + grants.size >= MAX_GRANTS) return null
      const code = `sandbox-code-${random()}`
      codes.set(code, { consent, expiresAt: now() + CODE_MS, spentOn: null })
      return code
    },

    /** Exchanges a code for tokens; `null` if code, redirect URI or code verifier is invalid (`invalid_grant`). */
    exchangeCode(
      value: string,
      {
        redirectUri,
        codeVerifier,
      }: { readonly redirectUri: string | null; readonly codeVerifier: string | null },
    ): Issued | null {
      const code = codes.get(value)
      if (code === undefined || code.expiresAt <= now()) return null
      const { consent } = code
      if (code.spentOn !== null) {
        counters.count(consent.realm, 'codeReuses')
        code.spentOn.isEnded = true // the second use of a code ends the grant (G3)
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

    /** Issues tokens for a refresh token; `null` if the refresh token is invalid (`invalid_grant`). */
    refresh(token: string): Issued | null {
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
        if (isRotationDue(grant)) rotate(grant) // If no rotation is due, the presented token is returned again (G1).
      } else if (graceEndsAt <= now()) {
        if (settings().revokeOnReuse) grant.isEnded = true
        return reject()
      } // The token is within its grace period, so the current token is returned (G2).
      counters.count(grant.realm, 'refreshes')
      return issue(grant, null)
    },

    /** Returns the realm of a refresh token, even of an invalid one; `null` if this provider did not issue the token. */
    realmOf: (token: string): string | null => refreshTokens.get(token)?.realm ?? null,

    accessToken: (token: string): AccessTokenState | null => grantOfAccessToken(token),

    /** Ends the grant of an access or refresh token; returns `false` if the token is invalid. */
    revokeToken(token: string): boolean {
      const grant = grantOfRefreshToken(token) ?? grantOfAccessToken(token)
      if (grant === null) return false
      grant.isEnded = true
      counters.count(grant.realm, 'revocations')
      return true
    },

    /** Returns whether the realm has a grant that has not ended. */
    has: (realm: string): boolean => standing(realm).length > 0,

    /** Returns whether the realm has a grant that was revoked, for example by the user. */
    wasRevoked: (realm: string): boolean =>
      [...grants].some((grant) => grant.realm === realm && grant.isEnded),

    /** Ends all grants of the realm; returns how many of them were still valid. */
    revokeRealm(realm: string): number {
      const ending = standing(realm)
      for (const grant of ending) grant.isEnded = true
      return ending.length
    },

    /** Expires all access tokens of the realm now; returns how many of them were still valid. */
    expireRealm(realm: string): number {
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

/**
 * Returns the subject (`sub`) of the fictitious user of a company. The subject is a UUID that is derived from the
 * realm, so every consent of this user has the same subject.
 */
const subjectOf = (realm: string): string =>
  createHash('sha256')
    .update(`sandbox subject ${realm}`)
    .digest('hex')
    .replace(/^(.{8})(.{4})(.{4})(.{4})(.{12}).*$/, '$1-$2-$3-$4-$5')
