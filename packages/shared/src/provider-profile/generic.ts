/** A provider that is only known to follow the standards: RFC 6749, RFC 7009, OpenID Connect Core. */
import type { ProviderProfile } from './provider-profile.ts'

const UNKNOWN_RATE = 1_000_000

export const generic: ProviderProfile = {
  name: 'generic',
  authorization: {
    // OpenID Connect Core §3.1.3.7: an id token repeats the nonce that was sent.
    isNonceRequired: true,
    realmClaim: 'realmid',
    realmScopes: [],
  },
  token: {
    requestHeaders: {},
    // No standard defines this member, but several providers send it.
    idleExpiryMember: 'refresh_token_expires_in',
    hardExpiryMember: null,
  },
  grant: {
    idleLimitDays: 100,
    previousTokenGraceMs: 24 * 3_600_000,
    rejectedGrantRetryDelaysMs: [],
  },
  revocation: {
    body: 'form',
    isAlreadyRevoked: () => false, // RFC 7009 §2.2: 200 also for a token that is not valid
  },
  accounting: {
    addressOf: () => null,
    // No standard marks a POST as repeatable, so none is sent twice.
    repeatablePost: null,
    isReadingPost: () => false,
    limits: {
      calls: { perSecond: 100_000, perMinute: UNKNOWN_RATE, concurrent: 10_000 },
      batchesPerMinute: UNKNOWN_RATE,
      coolDownSeconds: 60,
    },
    faultOf: () => null,
  },
}
