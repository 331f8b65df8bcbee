import { beforeEach, describe, expect, it } from 'vitest'
import { createCounters } from '../control/counters.ts'
import { createSettings } from '../control/settings.ts'
import { createGrants, type Issued } from './grants.ts'

const REALM = '9341453908059889'
const consent = {
  realm: REALM,
  scope: ['openid'],
  redirectUri: 'http://127.0.0.1/cb',
  nonce: 'n',
  codeChallenge: null,
}
const proof = { redirectUri: consent.redirectUri, codeVerifier: null }
const SECOND = 1_000
const DAY = 86_400 * SECOND

describe('the grants of the provider', () => {
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

  const connect = (): Issued => present(grants.exchangeCode(grants.issueCode(consent), proof))
  const refresh = (token: string): Issued => present(grants.refresh(token))
  const ofRealm = () => counters.view().realms[REALM]

  describe('a code', () => {
    it('is refused when it comes ten minutes late', () => {
      const code = grants.issueCode(consent)
      now += 600 * SECOND
      expect(grants.exchangeCode(code, proof)).toBeNull()
    })

    it('is refused with another redirect URI, and is still good with its own', () => {
      const code = grants.issueCode(consent)
      expect(
        grants.exchangeCode(code, { ...proof, redirectUri: 'http://127.0.0.1/other' }),
      ).toBeNull()
      expect(grants.exchangeCode(code, proof)).not.toBeNull()
    })

    it('ends the grant it gave when it comes a second time', () => {
      const code = grants.issueCode(consent)
      const { accessToken, refreshToken } = present(grants.exchangeCode(code, proof))

      expect(grants.exchangeCode(code, proof)).toBeNull()

      expect(grants.accessToken(accessToken)).toBeNull()
      expect(grants.refresh(refreshToken)).toBeNull()
      expect(ofRealm()).toMatchObject({ codeExchanges: 1, codeReuses: 1, refreshesRefused: 1 })
    })

    it('without a challenge is refused together with a verifier: somebody took the challenge away', () => {
      const code = grants.issueCode(consent)
      expect(grants.exchangeCode(code, { ...proof, codeVerifier: 'v'.repeat(43) })).toBeNull()
    })
  })

  describe('an access token', () => {
    it('lives as long as it says, to the second', () => {
      settings.change({ accessTokenSeconds: 10 })
      const { accessToken, accessTokenSeconds } = connect()
      expect(accessTokenSeconds).toBe(10)
      now += 9_999
      expect(grants.accessToken(accessToken)).toMatchObject({ realm: REALM })
      now += 1
      expect(grants.accessToken(accessToken)).toBeNull()
    })

    it('outlives the refresh that follows it', () => {
      const first = connect()
      refresh(first.refreshToken)
      expect(grants.accessToken(first.accessToken)).not.toBeNull()
    })
  })

  describe('rotation', () => {
    it('always: answers another refresh token at every refresh', () => {
      const first = connect()
      const second = refresh(first.refreshToken)
      const third = refresh(second.refreshToken)
      expect(new Set([first, second, third].map(({ refreshToken }) => refreshToken)).size).toBe(3)
    })

    it('daily: answers the same refresh token until a day after it was new', () => {
      settings.change({ rotation: 'daily' })
      const first = connect()
      now += DAY - 1
      expect(refresh(first.refreshToken).refreshToken).toBe(first.refreshToken)
      now += 1
      const rotated = refresh(first.refreshToken).refreshToken
      expect(rotated).not.toBe(first.refreshToken)
      now += DAY - 1
      expect(refresh(rotated).refreshToken).toBe(rotated)
    })

    it('never: answers the same refresh token for good', () => {
      settings.change({ rotation: 'never' })
      const first = connect()
      now += 90 * DAY
      expect(refresh(first.refreshToken).refreshToken).toBe(first.refreshToken)
    })

    it('answers the current token to a superseded one within its grace, so that a lost answer can be had again', () => {
      settings.change({ graceSeconds: 60 })
      const first = connect()
      const lost = refresh(first.refreshToken)
      now += 59_999
      const recovered = refresh(first.refreshToken)
      expect(recovered.refreshToken).toBe(lost.refreshToken)
      expect(recovered.accessToken).not.toBe(lost.accessToken)
      expect(ofRealm()).toMatchObject({ refreshes: 2, tokenReuses: 1, refreshesRefused: 0 })
    })

    it('refuses a superseded token once its grace is over, and leaves the current one alone', () => {
      settings.change({ graceSeconds: 60 })
      const first = connect()
      const second = refresh(first.refreshToken)
      now += 60_000
      expect(grants.refresh(first.refreshToken)).toBeNull()
      expect(grants.refresh(second.refreshToken)).not.toBeNull()
      expect(ofRealm()).toMatchObject({ tokenReuses: 1, refreshesRefused: 1 })
    })

    it('ends the whole grant on such a reuse when it is told to', () => {
      settings.change({ graceSeconds: 0, revokeOnReuse: true })
      const first = connect()
      const second = refresh(first.refreshToken)
      expect(grants.refresh(first.refreshToken)).toBeNull()
      expect(grants.refresh(second.refreshToken)).toBeNull()
      expect(grants.accessToken(second.accessToken)).toBeNull()
    })
  })

  describe('the life of a refresh token', () => {
    it('is a hundred days from its last use', () => {
      let { refreshToken } = connect()
      now += 99 * DAY
      ;({ refreshToken } = refresh(refreshToken))
      now += 99 * DAY
      ;({ refreshToken } = refresh(refreshToken))
      now += 100 * DAY
      expect(grants.refresh(refreshToken)).toBeNull()
    })

    it('ends five years after the consent, however often it was used', () => {
      let issued = connect()
      expect(issued).toMatchObject({
        refreshTokenSeconds: 8_640_000,
        hardExpirySeconds: 157_680_000,
      })
      for (let day = 90; day <= 1_800; day += 90) {
        now += 90 * DAY
        issued = refresh(issued.refreshToken)
      }
      expect(issued.refreshTokenSeconds).toBe(25 * 86_400)
      now += 25 * DAY
      expect(grants.refresh(issued.refreshToken)).toBeNull()
    })
  })

  describe('the end of a grant', () => {
    it.each(['accessToken', 'refreshToken'] as const)('comes by revoking its %s', (which) => {
      const issued = connect()
      expect(grants.revokeToken(issued[which])).toBe(true)
      expect(grants.accessToken(issued.accessToken)).toBeNull()
      expect(grants.refresh(issued.refreshToken)).toBeNull()
      expect(grants.revokeToken(issued[which])).toBe(false)
    })

    it('comes to all grants of a realm and to no other realm', () => {
      const other = present(
        grants.exchangeCode(grants.issueCode({ ...consent, realm: 'other' }), proof),
      )
      connect()
      connect()
      expect(grants.revokeRealm(REALM)).toBe(2)
      expect(grants.revokeRealm(REALM)).toBe(0)
      expect(grants.accessToken(other.accessToken)).not.toBeNull()
    })
  })

  it('lets the access tokens of a realm expire without touching its refresh tokens', () => {
    const issued = connect()
    expect(grants.expireRealm(REALM)).toBe(1)
    expect(grants.accessToken(issued.accessToken)).toBeNull()
    expect(grants.refresh(issued.refreshToken)).not.toBeNull()
  })
})

function present<T>(value: T | null): T {
  if (value === null) throw new Error('was refused')
  return value
}
