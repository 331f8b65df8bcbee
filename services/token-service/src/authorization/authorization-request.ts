/** Starts an authorization and validates the callback of the provider: state, browser, issuer and realm. */
import { randomBytes } from 'node:crypto'
import type { AccessKeys } from '@integration-host/shared/access/access-keys'
import { IntegrationError } from '@integration-host/shared/errors'
import { isLoopback } from '@integration-host/shared/http/origin-guard'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { givenLabels, type LabelsChange } from '../credential/labels.ts'
import type { Provider } from '../provider/provider.ts'
import { type AuthorizationStore, digest } from './authorization-store.ts'

/** How long a state is valid, in milliseconds. */
export const AUTHORIZATION_TTL_MS = 10 * 60_000

/**
 * The greatest tolerated difference between the clocks of two replicas, in milliseconds. The store keeps the entries of
 * a state for this additional time after the state has expired.
 */
export const CLOCK_TOLERANCE_MS = 60_000

/** The maximum length of `return_to`, in characters. It is a part of the state, and the state must fit into a URL. */
export const MAX_RETURN_TO_LENGTH = 512

export interface StartedAuthorization {
  readonly url: string
  readonly state: string
  readonly expiresAt: number
}

/**
 * The parameters of a callback. Their syntax is valid, but they were not yet compared with an authorization request.
 */
export interface Callback {
  readonly state: string
  readonly code: string | null
  readonly realm: string | null
  readonly error: string | null
  readonly issuer: string | null
  /** The authorization cookie of the browser that sends the callback. */
  readonly browser: string | null
  /** The network of the browser that sends the callback, such as `192.0.2.0/24`. */
  readonly network: string
}

/** The result of the authorization that a callback reports. */
export type Decision =
  | { readonly kind: 'granted'; readonly code: string; readonly realm: string }
  /** The request is for the company `expected`, but the company `chosen` was chosen at the provider. */
  | { readonly kind: 'other_company'; readonly expected: string; readonly chosen: string }
  | { readonly kind: 'denied' }

export interface AuthorizationRequest {
  /** The time in epoch milliseconds after which the state is rejected. */
  readonly expiresAt: number
  readonly nonce: string
  /** The PKCE code verifier; `null` if the provider does not support the challenge method S256. */
  readonly codeVerifier: string | null
  /**
   * The company that must be reconnected; `null` if any company may be connected. The callback must name this company.
   */
  readonly realm: string | null
  readonly returnTo: string | null
  /**
   * Digest of the cookie of the browser that started the authorization; `null` if a holder of a service key started it.
   */
  readonly browser: string | null
  /**
   * Whether the request has a label or tags. A label and tags may be too long for a URL, so the authorization store
   * keeps them instead of the state.
   */
  readonly hasLabels: boolean
  /** Whether a visitor of the Reconnect URL started the authorization. Such a visitor has neither a key nor a link. */
  readonly isByVisitor: boolean
  /** The id of the connect link that started the authorization; `null` if no link did. */
  readonly linkId: string | null
  /**
   * The id of the key that started the authorization, or that made the connect link; `null` if no key of the key file
   * did. The authorization ends with this key.
   */
  readonly keyId: string | null
}

export interface AuthorizationDeps {
  readonly seal: RequestSeal
  readonly provider: Pick<Provider, 'authorizationUrl' | 'issuer' | 'usesPkce'>
  readonly authorizations: Pick<AuthorizationStore, 'keepLabels'>
  readonly keys: Pick<AccessKeys, 'hasEnded'>
  /** The requested scopes, space-delimited (RFC 6749 §3.3). */
  readonly scope: string
  /**
   * The provider names a company in its callback only if one of these scopes was requested. If this list is empty,
   * every callback names a company.
   */
  readonly realmScopes: readonly string[]
  /** The origins that `return_to` may have. `null` allows only http on the loopback interface. */
  readonly returnToOrigins: readonly string[] | null
  readonly now: () => number
}

export type Authorization = ReturnType<typeof createAuthorization>

export function createAuthorization(deps: AuthorizationDeps) {
  const { seal, provider, authorizations, now } = deps
  return {
    /**
     * Starts an authorization.
     *
     * The state contains the whole request except `label` and `tags`, which are stored until the state expires, unless
     * they are those of the connect link `linkId`, which is stored already. When the company's credential is stored, the
     * label and the tags are stored with the credential. If `label` is absent or empty, the credential keeps its stored
     * label. The same applies to `tags`. Only holders of a service key may set label and tags.
     *
     * @throws {IntegrationError} `invalid_request` if `returnTo` is not allowed; `provider_unavailable` if the discovery
     * document or the signing keys have not been fetched yet; `store_unavailable`, `quota_exceeded` or `busy` if the
     * label or the tags cannot be stored.
     */
    async start({
      returnTo,
      realm,
      browser,
      isByVisitor = false,
      linkId = null,
      keyId = null,
      ...wanted
    }: LabelsChange &
      Pick<AuthorizationRequest, 'returnTo' | 'realm'> &
      Partial<Pick<AuthorizationRequest, 'isByVisitor' | 'linkId' | 'keyId'>> & {
        /** The cookie of the browser; `null` if a holder of a service key starts the authorization. */
        readonly browser: string | null
      }): Promise<StartedAuthorization> {
      requireReturnable(returnTo, deps.returnToOrigins)
      const labels = givenLabels(wanted)
      const request: AuthorizationRequest = {
        expiresAt: now() + AUTHORIZATION_TTL_MS,
        nonce: randomBytes(32).toString('base64url'),
        // The code verifier has 43 characters, the shortest length that RFC 7636 §4.1 allows.
        codeVerifier: (await provider.usesPkce()) ? randomBytes(32).toString('base64url') : null,
        realm,
        returnTo,
        browser: browser === null ? null : digest(browser),
        hasLabels: Object.keys(labels).length > 0,
        isByVisitor,
        linkId,
        keyId,
      }
      const { nonce, codeVerifier, expiresAt } = request
      const state = seal.seal(request)
      const url = await provider.authorizationUrl({
        state,
        nonce,
        codeVerifier: codeVerifier === null ? null : new Secret(codeVerifier),
      })
      // The labels of a connect link are stored with the link. Anyone who has the link can start authorizations.
      if (request.hasLabels && linkId === null)
        await authorizations.keepLabels(
          state,
          labels,
          AUTHORIZATION_TTL_MS + CLOCK_TOLERANCE_MS,
          keyId,
        )
      return { url, state, expiresAt }
    },

    /**
     * Returns the authorization request that a callback belongs to.
     *
     * @throws {IntegrationError} `authorization_invalid`: the state is forged or expired, another browser started the
     * authorization, or the key that started it has ended.
     */
    requestOf({ state, browser }: Pick<Callback, 'state' | 'browser'>): AuthorizationRequest {
      const request = seal.open(state)
      if (request === null) throw invalid('the state is not one that this service issued')
      if (request.expiresAt <= now()) throw invalid('the state has expired')
      if (request.browser !== null && (browser === null || digest(browser) !== request.browser))
        throw invalid('the authorization was started in another browser')
      const { keyId, expiresAt } = request
      if (keyId !== null && deps.keys.hasEnded(keyId, expiresAt - AUTHORIZATION_TTL_MS))
        throw invalid('the service key that started the authorization has ended')
      return request
    },

    /**
     * Compares a callback with its authorization request, and resolves with the decision of the company's owner.
     *
     * @throws {IntegrationError} `authorization_invalid` if the callback comes from another provider or is incomplete;
     * `provider_unavailable` if the issuer is not known yet.
     */
    async decisionOf(
      { code, realm, error, issuer }: Callback,
      request: AuthorizationRequest,
    ): Promise<Decision> {
      const { identifier, isAlwaysSent } = await provider.issuer()
      const isForeign = issuer === null ? isAlwaysSent : issuer !== identifier
      if (isForeign) throw invalid('the response comes from another provider') // RFC 9207 §2.4
      if (error !== null) return { kind: 'denied' }
      if (code === null) throw invalid('the callback has no code')
      if (realm === null) throw noCompany(deps)
      if (request.realm !== null && request.realm !== realm)
        return { kind: 'other_company', expected: request.realm, chosen: realm }
      return { kind: 'granted', code, realm }
    },
  }
}

/**
 * Returns the error for a callback without a realm. RFC 6749 defines no realm parameter. Intuit adds one if certain
 * scopes were requested.
 */
function noCompany({
  scope,
  realmScopes,
}: Pick<AuthorizationDeps, 'scope' | 'realmScopes'>): IntegrationError {
  const hasScope =
    realmScopes.length === 0 || scope.split(' ').some((name) => realmScopes.includes(name))
  return new IntegrationError(
    'authorization_invalid',
    hasScope
      ? 'the provider named no company (realmId) in the callback; nothing was stored. Start the authorization again and choose a company'
      : `the provider named no company (realmId) in the callback, because SCOPE has none of ${realmScopes.join(', ')}; nothing was stored. Add one to SCOPE, restart token-service, and start the authorization again`,
  )
}

/** Returns the error `authorization_invalid`, whose message begins with `why`. */
export const invalid = (why: string): IntegrationError =>
  new IntegrationError('authorization_invalid', `${why}; start the authorization again`)

/**
 * Throws unless `returnTo` is `null` or a URL to which the service may redirect a browser. This check prevents an open
 * redirect (RFC 9700 §4.11).
 *
 * @throws {IntegrationError} `invalid_request`.
 */
export function requireReturnable(
  returnTo: string | null,
  origins: readonly string[] | null,
): void {
  if (returnTo === null || isReturnable(returnTo, origins)) return
  throw new IntegrationError(
    'invalid_request',
    'return_to is not an absolute URL of an allowed origin',
  )
}

function isReturnable(returnTo: string, origins: readonly string[] | null): boolean {
  // The WHATWG URL parser accepts backslashes, tabs and newlines, which other parsers read differently. A URI must not
  // contain quotation marks either (RFC 3986).
  if (!/^[\x21\x23-\x5b\x5d-\x7e]+$/.test(returnTo) || !URL.canParse(returnTo)) return false
  if (returnTo.length > MAX_RETURN_TO_LENGTH) return false
  const { protocol, origin, hostname, username, password } = new URL(returnTo)
  if (protocol !== 'http:' && protocol !== 'https:') return false
  // The parser accepts `https:host` and `http:/host` as absolute URLs, but a browser may resolve them relative to the
  // current page. `returnTo` must therefore begin with the complete origin.
  if (returnTo !== origin && !returnTo.startsWith(`${origin}/`)) return false
  if (username !== '' || password !== '') return false
  if (origins !== null) return origins.includes(origin)
  return protocol === 'http:' && isLoopback(hostname)
}

const PURPOSE = 'integration-host authorization request'
const PLACE = { name: 'authorization', field: 'state', version: 1 }

export type RequestSeal = ReturnType<typeof createRequestSeal>

/**
 * Returns the functions that encrypt an authorization request into its own `state` parameter (RFC 6749 §4.1.1), so that
 * the service stores nothing when an authorization starts. Any client can start authorizations, because no key is
 * required. If each authorization request were stored, a client could fill the store. See docs/adr/0018.
 *
 * The state is an envelope `1.<key id>.<nonce>.<ciphertext and tag>` (AES-256-GCM) with a key that is derived from
 * CREDENTIAL_KEYS. Each replica can decrypt the state, even after a key rotation as long as the key ring contains the
 * old key. A state has about 150 to 1,150 characters, depending on `returnTo`.
 */
export function createRequestSeal(credentialKeys: KeyRing) {
  const keys = credentialKeys.derive(PURPOSE)
  return {
    // The request is encoded as an array, because the member names of an object would lengthen each URL by about 100
    // characters.
    seal(request: AuthorizationRequest): string {
      const members: Members = [
        request.expiresAt,
        request.nonce,
        request.codeVerifier,
        request.realm,
        request.returnTo,
        request.browser,
        request.hasLabels ? 1 : 0,
        request.isByVisitor ? 1 : 0,
        request.linkId,
      ]
      if (request.keyId !== null) members[9] = request.keyId
      return keys.seal(JSON.stringify(members), PLACE)
    },
    /** Returns the request in a state; `null` if the state was not sealed by this service or was changed. */
    open(state: string): AuthorizationRequest | null {
      try {
        const members = JSON.parse(keys.open(state, PLACE)) as Members
        const [expiresAt, nonce, codeVerifier, realm, returnTo, browser, labels, open, link, key] =
          members
        return {
          expiresAt,
          nonce,
          codeVerifier,
          realm,
          returnTo,
          browser,
          hasLabels: labels === 1,
          isByVisitor: open === 1,
          linkId: link ?? null,
          keyId: key ?? null,
        }
      } catch (error) {
        if (error instanceof DecryptionError) return null
        throw error
      }
    },
  }
}

/**
 * The members of a decrypted state. They need no validation, because the authentication tag proves that this service
 * wrote them.
 */
type Members = [
  expiresAt: number,
  nonce: string,
  codeVerifier: string | null,
  realm: string | null,
  returnTo: string | null,
  browser: string | null,
  /** A state from an earlier release lacks the members from `hasLabels` on. */
  hasLabels?: 0 | 1,
  isByVisitor?: 0 | 1,
  linkId?: string | null,
  keyId?: string | null,
]
