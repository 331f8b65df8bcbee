import { beforeEach, describe, expect, it } from 'vitest'
import { createCounters } from '../control/counters.ts'
import { createSettings } from '../control/settings.ts'
import { createGrants, type Issued, MAX_GRANTS } from './grants.ts'

const REALM = '9341453908059889'
const consent = {
  realm: REALM,
  scope: ['openid', 'com.intuit.quickbooks.accounting'],
  redirectUri: 'http://127.0.0.1/cb',
  nonce: 'n',
  codeChallenge: null,
}
const proof = { redirectUri: consent.redirectUri, codeVerifier: null }
const SECOND = 1_000
const DAY = 86_400 * SECOND

describe('grants of the sandbox provider', () => {
  let now: number
  let settings: ReturnType<typeof createSettings>
  let counters: ReturnType<typeof createCounters>
  let grants: ReturnType<typeof createGrants>

  beforeEach(() => {
    now = Date.parse('2026-11-20T10:00:00Z')
    settings = createSettings()
    counters = createCounters()
    let serial = 0
    grants = createGrants({
      now: () => now,
      random: () => String(++serial),
      settings: () => settings.current(),
      counters,
    })
  })

  const issueCode = (realm = REALM): string => {
    const code = grants.issueCode({ ...consent, realm })
    if (code === null) throw new Error('no code was issued')
    return code
  }
  const connect = (): Issued => present(grants.exchangeCode(issueCode(), proof))
  const refresh = (token: string): Issued => present(grants.refresh(token))
  const ofRealm = () => counters.view().realms[REALM]

  describe('authorization codes of the sandbox provider', () => {
    it('the sandbox provider rejects an authorization code after ten minutes', () => {
      const code = issueCode()
      now += 600 * SECOND
      expect(grants.exchangeCode(code, proof)).toBeNull()
    })

    it('an authorization code can still be exchanged after a request with a wrong redirect URI', () => {
      const code = issueCode()
      expect(
        grants.exchangeCode(code, { ...proof, redirectUri: 'http://127.0.0.1/other' }),
      ).toBeNull()
      expect(grants.exchangeCode(code, proof)).not.toBeNull()
    })

    it('the sandbox provider ends the grant of an authorization code that is used a second time', () => {
      const code = issueCode()
      const { accessToken, refreshToken } = present(grants.exchangeCode(code, proof))

      expect(grants.exchangeCode(code, proof)).toBeNull()

      expect(grants.accessToken(accessToken)).toBeNull()
      expect(grants.refresh(refreshToken)).toBeNull()
      expect(ofRealm()).toMatchObject({ codeExchanges: 1, codeReuses: 1, refreshesRefused: 1 })
    })

    it('the sandbox provider rejects a code verifier for a code that was requested without a challenge (RFC 9700 §4.8.2)', () => {
      settings.change({ pkce: true })
      const code = issueCode()
      expect(grants.exchangeCode(code, { ...proof, codeVerifier: 'v'.repeat(43) })).toBeNull()
    })
  })

  describe('access tokens of the sandbox provider', () => {
    it('the sandbox provider accepts an access token until exactly expires_in seconds have passed', () => {
      settings.change({ accessTokenSeconds: 10 })
      const { accessToken, accessTokenSeconds } = connect()
      expect(accessTokenSeconds).toBe(10)
      now += 9_999
      expect(grants.accessToken(accessToken)).toMatchObject({ realm: REALM })
      now += 1
      expect(grants.accessToken(accessToken)).toBeNull()
    })

    it('an access token stays valid after a refresh', () => {
      const first = connect()
      refresh(first.refreshToken)
      expect(grants.accessToken(first.accessToken)).not.toBeNull()
    })
  })

  describe('refresh token rotation by the sandbox provider', () => {
    it('the sandbox provider returns the same refresh token at every refresh if rotation is set to never', () => {
      settings.change({ rotation: 'never' })
      const first = connect()
      now += 90 * DAY
      expect(refresh(first.refreshToken).refreshToken).toBe(first.refreshToken)
    })

    it('a refresh with a superseded refresh token returns the current refresh token within the grace period', () => {
      settings.change({ rotation: 'always', graceSeconds: 60 })
      const first = connect()
      const lost = refresh(first.refreshToken)
      now += 59_999
      const recovered = refresh(first.refreshToken)
      expect(recovered.refreshToken).toBe(lost.refreshToken)
      expect(recovered.accessToken).not.toBe(lost.accessToken)
      expect(ofRealm()).toMatchObject({ refreshes: 2, tokenReuses: 1, refreshesRefused: 0 })
    })
  })

  describe('the lifetime of refresh tokens of the sandbox provider', () => {
    it('the lifetime of a refresh token is counted from the rotation that issued the token, not from later refreshes', () => {
      const issued = connect()
      expect(issued.refreshTokenSeconds).toBe(101 * 86_400)
      now += 3_600 * SECOND
      expect(refresh(issued.refreshToken)).toMatchObject({
        refreshToken: issued.refreshToken,
        refreshTokenSeconds: 101 * 86_400 - 3_600,
      })
      now += DAY
      expect(refresh(issued.refreshToken).refreshTokenSeconds).toBe(101 * 86_400)
    })

    it('the lifetime of a refresh token is counted from the last use of the token if rotation is set to never', () => {
      settings.change({ refreshTokenSeconds: 100, rotation: 'never' })
      const { refreshToken } = connect()
      now += 99 * SECOND
      refresh(refreshToken)
      now += 99 * SECOND
      refresh(refreshToken)
      now += 100 * SECOND
      expect(grants.refresh(refreshToken)).toBeNull()
    })

    it('the sandbox provider rejects a refresh token five years after the consent, regardless of refreshes', () => {
      let issued = connect()
      expect(issued).toMatchObject({ hardExpirySeconds: 157_680_000 })
      for (let day = 90; day <= 1_800; day += 90) {
        now += 90 * DAY
        issued = refresh(issued.refreshToken)
      }
      expect(issued.refreshTokenSeconds).toBe(25 * 86_400)
      now += 25 * DAY
      expect(grants.refresh(issued.refreshToken)).toBeNull()
    })
  })

  describe('the maximum number of codes and grants that the sandbox provider stores', () => {
    it('the sandbox provider issues no code while the maximum number of unexpired codes is reached', () => {
      for (let n = 0; n < MAX_GRANTS; n++) issueCode()
      expect(grants.issueCode(consent)).toBeNull()
      now += 600 * SECOND
      expect(grants.issueCode(consent)).not.toBeNull()
    })

    it('the sandbox provider deletes only ended grants when it reaches the maximum number of codes and grants', () => {
      const kept = connect()
      const ended = Array.from({ length: MAX_GRANTS - 1 }, () => {
        const issued = present(grants.exchangeCode(issueCode('other'), proof))
        now += 600 * SECOND // The code expires, so that only grants count towards the maximum.
        return issued
      })
      expect(grants.issueCode(consent)).toBeNull()
      expect(grants.revokeRealm('other')).toBe(MAX_GRANTS - 1)
      expect(grants.issueCode(consent)).not.toBeNull()
      expect(grants.realmOf(ended[0]?.refreshToken ?? '')).toBeNull()
      expect(grants.realmOf(kept.refreshToken)).toBe(REALM)
      expect(grants.refresh(kept.refreshToken)).not.toBeNull()
    })
  })

  describe('revocation and expiry of grants', () => {
    it('revoking a superseded refresh token or an expired access token does not end the grant', () => {
      settings.change({ rotation: 'always', accessTokenSeconds: 1 })
      const first = connect()
      const second = refresh(first.refreshToken)
      now += SECOND
      expect(grants.revokeToken(first.refreshToken)).toBe(false)
      expect(grants.revokeToken(second.accessToken)).toBe(false)
      expect(grants.refresh(second.refreshToken)).not.toBeNull()
    })
  })
})

function present<T>(value: T | null): T {
  if (value === null) throw new Error('was rejected')
  return value
}
