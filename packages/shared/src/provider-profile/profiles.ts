import type { ProviderProfile } from './provider-profile.ts'
import { z } from 'zod'
import { intuit } from './intuit.ts'

const UNKNOWN_RATE = 1_000_000

/**
 * The profile for a provider that follows RFC 6749, RFC 7009 and OpenID Connect Core. It is for providers whose further
 * behaviour is not known.
 */
export const generic: ProviderProfile = {
  name: 'generic',
  authorization: {
    // An id token must repeat the nonce of the authorization request (OpenID Connect Core §3.1.3.7).
    isNonceRequired: true,
    realmClaim: 'realmid',
    realmScopes: [],
  },
  token: {
    requestHeaders: {},
    // No standard defines the member `refresh_token_expires_in`, but several providers send it.
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
    // No standard lets a client mark a POST as safe to repeat, so a POST is never sent twice.
    repeatablePost: null,
    isReadingPost: () => false,
    limits: {
      calls: { perSecond: 100_000, perMinute: UNKNOWN_RATE, concurrent: 10_000 },
      batchesPerMinute: UNKNOWN_RATE,
      coolDownSeconds: 60,
    },
    faultOf: () => null,
    newObjectVisibleMs: 180_000,
    companyName: null,
  },
}

/** The built-in profiles by their names in the setting `PROVIDER_PROFILE`. */
const profiles = {
  intuit,
  generic,
  /** The first release used this name for the profile `generic`. */
  unlimited: generic,
} as const satisfies Readonly<Record<string, ProviderProfile>>

type ProfileName = keyof typeof profiles

/** Parses the setting `PROVIDER_PROFILE`, which has the name of a profile, to the profile with this name. */
export const providerProfile = () =>
  z
    .enum(Object.keys(profiles) as ProfileName[])
    .default('intuit')
    .transform((name): ProviderProfile => profiles[name])
