/**
 * The assumptions of the services about one accounting provider, as one typed object that `PROVIDER_PROFILE`
 * names. Each profile is a file beside this one. Nothing else in the sources knows a provider by name;
 * docs/intuit.md lists each assumption of the `intuit` profile with its source and its test.
 */
import type { ProviderFault } from './provider-fault.ts'

export interface ProviderProfile {
  readonly name: string

  /** The authorization request and the id token (OpenID Connect Core §3.1). */
  readonly authorization: {
    /**
     * Whether every id token must carry the nonce of the authorization request. If false, it is required
     * only where the discovery document lists `nonce` in `claims_supported`. A nonce that is present must
     * always match.
     */
    readonly isNonceRequired: boolean
    /** The id token claim that names the authorized company, compared without case. It may be absent. */
    readonly realmClaim: string
    /** Scopes that make the callback name a company; empty if it always names one. */
    readonly realmScopes: readonly string[]
  }

  /** The token endpoint (RFC 6749 §5, §6). */
  readonly token: {
    readonly requestHeaders: Readonly<Record<string, string>>
    /** Member of a token response: seconds without a refresh after which the grant ends. */
    readonly idleExpiryMember: string
    /** Member of a token response: seconds after which the grant ends regardless of refreshes; `null` if none is known. */
    readonly hardExpiryMember: string | null
  }

  /** The life of a grant. */
  readonly grant: {
    /** Days without a refresh after which the provider ends a grant; a shorter time in a response wins. */
    readonly idleLimitDays: number
    /**
     * Milliseconds for which the previous refresh token is tried once when the current one is rejected.
     * No correctness depends on the provider accepting it.
     */
    readonly previousTokenGraceMs: number
    /**
     * Milliseconds between an `invalid_grant` and the next attempt with the same refresh token, in order.
     * After the last one the fault is final. Empty: the first `invalid_grant` is final (RFC 6749 §5.2).
     */
    readonly rejectedGrantRetryDelaysMs: readonly number[]
  }

  /** The revocation endpoint. */
  readonly revocation: {
    /** `form` is RFC 7009 §2.1, `json` is `{"token": …}`. Only this form is sent. */
    readonly body: 'form' | 'json'
    /** Whether an error response says that the token was revoked before, so that nothing is left to do. */
    readonly isAlreadyRevoked: (response: {
      readonly status: number
      readonly text: string
    }) => boolean
  }

  /** The accounting API. */
  readonly accounting: {
    /**
     * The base address for a discovery document that names no `accounting_url`; `null` if the profile knows
     * none for this document.
     */
    readonly addressOf: (document: DiscoveryDocument) => string | null
    /**
     * How a POST is marked so that the provider executes it only once if it is sent twice; `null` if the provider
     * has no such mark: then a POST is sent once.
     */
    readonly repeatablePost: RepeatablePost | null
    /** Whether a POST to `path` (with its query) only reads, so that it can be sent again unmarked. */
    readonly isReadingPost: (path: string) => boolean
    readonly limits: ProviderLimits
    /** Returns the error in a response body; `null` if the body has no error in a form that the profile knows. */
    readonly faultOf: (body: string) => ProviderFault | null
  }
}

/** The members of an OpenID discovery document that a profile may read. */
export interface DiscoveryDocument {
  readonly issuer?: unknown
  readonly userinfo_endpoint?: unknown
  readonly [member: string]: unknown
}

/** The idempotency key of a POST: a query parameter or a header. */
export interface RepeatablePost {
  readonly in: 'query' | 'header'
  /** Query parameters are compared with their case, header names without. */
  readonly name: string
}

/** What an accounting provider accepts from one application for one company. */
export interface ProviderLimits {
  readonly calls: {
    readonly perSecond: number
    readonly perMinute: number
    readonly concurrent: number
  }
  /** How many of these calls per minute may go to `…/batch`. */
  readonly batchesPerMinute: number
  /** Seconds without calls for a realm after a 429 that has no usable `Retry-After`. */
  readonly coolDownSeconds: number
}
