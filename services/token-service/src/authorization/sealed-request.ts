/**
 * Encrypts an authorization request into its own `state` parameter (RFC 6749 §4.1.1), so that the service stores
 * nothing when an authorization starts. Any client can start authorizations, because no key is required. If each
 * authorization request were stored, a client could fill the store. The provider returns the state with the callback.
 * See docs/adr/0018.
 *
 * The state is an envelope `1.<key id>.<nonce>.<ciphertext and tag>` (AES-256-GCM) with a key that is derived from
 * CREDENTIAL_KEYS. Each replica can decrypt the state, even after a key rotation as long as the key ring contains the
 * old key. A state has about 150 to 1,150 characters, depending on `returnTo`.
 */
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'

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

export interface RequestSeal {
  seal(request: AuthorizationRequest): string
  /** Returns the request in a state; `null` if the state was not sealed by this service or was changed. */
  open(state: string): AuthorizationRequest | null
}

const PURPOSE = 'integration-host authorization request'
const PLACE = { name: 'authorization', field: 'state', version: 1 }

export function createRequestSeal(credentialKeys: KeyRing): RequestSeal {
  const keys = credentialKeys.derive(PURPOSE)
  return {
    // The request is encoded as an array, because the member names of an object would lengthen each URL by about 100
    // characters.
    seal(request) {
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
    open(state) {
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
