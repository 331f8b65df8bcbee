/**
 * The services' assumptions about one accounting provider, as one typed object. The setting `PROVIDER_PROFILE` selects
 * a profile of `profiles.ts`. No other source file names a provider. docs/intuit.md lists
 * each assumption of the profile `intuit` with its source and its test.
 */
import type { ProviderFault } from './provider-fault.ts'

export interface ProviderProfile {
  readonly name: string

  /** The authorization request and the id token (OpenID Connect Core §3.1). */
  readonly authorization: {
    /**
     * Whether every id token must contain the nonce of the authorization request. If false, the nonce is required only
     * where the discovery document lists `nonce` in `claims_supported`. A nonce in an id token must always equal the
     * nonce of the authorization request.
     */
    readonly isNonceRequired: boolean
    /**
     * The id token claim that names the authorized company. The claim's name is compared case-insensitively, and the
     * claim may be absent.
     */
    readonly realmClaim: string
    /**
     * The authorization callback names a company only if at least one of these scopes was requested. The list is empty
     * if every callback names a company.
     */
    readonly realmScopes: readonly string[]
  }

  /** The token endpoint (RFC 6749 §5, §6). */
  readonly token: {
    readonly requestHeaders: Readonly<Record<string, string>>
    /** The member of a token response that contains the seconds after which the grant ends unless it is refreshed. */
    readonly idleExpiryMember: string
    /**
     * The member of a token response that contains the seconds after which the grant ends regardless of refreshes;
     * `null` if no such member is known.
     */
    readonly hardExpiryMember: string | null
  }

  /** The lifetime of a grant. */
  readonly grant: {
    /**
     * The number of days without a refresh after which the provider ends a grant. A shorter time in a token response
     * takes precedence.
     */
    readonly idleLimitDays: number
    /**
     * The time after a rotation, in milliseconds, during which the previous refresh token may still be used. If the
     * provider rejects the current token within this time, the previous token is tried once. Correctness does not
     * depend on whether the provider accepts the previous token.
     */
    readonly previousTokenGraceMs: number
    /**
     * The milliseconds between each `invalid_grant` and the next attempt with the same refresh token, in order of the
     * attempts. After the last attempt the fault is final. If the list is empty, the first `invalid_grant` is final
     * (RFC 6749 §5.2).
     */
    readonly rejectedGrantRetryDelaysMs: readonly number[]
  }

  /** The revocation endpoint. */
  readonly revocation: {
    /**
     * The encoding of the request body: `form` as in RFC 7009 §2.1, or `json` as `{"token": …}`. Only this encoding is
     * tried.
     */
    readonly body: 'form' | 'json'
    /**
     * Returns whether an error response says that the token had already been revoked. Such a response counts as
     * success.
     */
    readonly isAlreadyRevoked: (response: {
      readonly status: number
      readonly text: string
    }) => boolean
  }

  /** The accounting API. */
  readonly accounting: {
    /**
     * The base address to use if the discovery document names no `accounting_url`; `null` if the profile knows no
     * address for this document.
     */
    readonly addressOf: (document: DiscoveryDocument) => string | null
    /**
     * The parameter or header by which the provider recognises a POST that is sent twice, and executes the POST only
     * once. If `null`, the provider does not recognise repetitions, and every POST is sent only once.
     */
    readonly repeatablePost: RepeatablePost | null
    /**
     * Returns whether a POST to `path` (with its query) only reads data. Such a POST can be repeated without an
     * idempotency key.
     */
    readonly isReadingPost: (path: string) => boolean
    readonly limits: ProviderLimits
    /**
     * Returns the error in a response body; `null` if the body contains no error in a format that the profile knows.
     */
    readonly faultOf: (body: string) => ProviderFault | null
    /**
     * How long queries may not find a new object after the call that creates it was sent, in milliseconds. It includes the
     * time that the provider may take to execute the call. `createOnce` repeats a call in doubt only after this time.
     */
    readonly newObjectVisibleMs: number
    /**
     * How the name of a company is read: the path of the GET request, and the name in the body of its response, which is
     * a text from outside. `null` if the profile does not know it.
     */
    readonly companyName: {
      readonly pathOf: (realm: string) => string
      readonly nameOf: (body: string) => string | null
    } | null
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
  /** The name of the query parameter, which is case-sensitive, or of the header, which is case-insensitive. */
  readonly name: string
  /**
   * The provider joins the key of a batch with the `bId` of each item, and rejects an item for which both together have
   * more characters than this. Absent if there is no such limit.
   */
  readonly maxLengthWithItemId?: number
}

/** The limits that an accounting provider sets for the calls of one application to one company. */
export interface ProviderLimits {
  readonly calls: {
    readonly perSecond: number
    readonly perMinute: number
    readonly concurrent: number
  }
  /** How many of the allowed calls per minute may go to `…/batch`. */
  readonly batchesPerMinute: number
  /** The cool-down of a realm, in seconds, after a 429 response without a usable `Retry-After`. */
  readonly coolDownSeconds: number
}
