/**
 * The port to what lives for minutes: authorization requests that wait for their callback, and claims of
 * codes. One contract suite runs against each adapter. All methods throw `IntegrationError`
 * `store_unavailable` when the store cannot be used.
 */
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import type { ErrorCode } from '@integration-host/shared/errors'

export interface AuthorizationStore {
  /** Keeps a request until its state is taken, at most `ttlMs`. */
  begin(state: string, request: AuthorizationRequest, ttlMs: number): Promise<void>

  /** Hands a request out once. */
  take(state: string): Promise<AuthorizationRequest | null>

  /** Claims a code for `ttlMs`; null: it is ours now. Else what became of the first claim. */
  claimCode(code: string, claim: CodeClaim, ttlMs: number): Promise<CodeClaim | null>

  /** The claim of a code as it stands, null when there is none. */
  readCode(code: string): Promise<CodeClaim | null>

  /** Writes the result into the claim, for `ttlMs` more. */
  settleCode(code: string, claim: CodeClaim, ttlMs: number): Promise<void>
}

export interface AuthorizationRequest {
  readonly nonce: string
  /** Null when the provider offers no S256 challenge. */
  readonly codeVerifier: string | null
  /** The company that must come back, when this is a reconnect. */
  readonly realm: string | null
  readonly returnTo: string | null
  /** Digest of the cookie of the browser that started; null when a holder of the service key did. */
  readonly browser: string | null
}

export interface CodeClaim {
  readonly realm: string
  /** Digest of the state the code came with; null when it came without. */
  readonly state: string | null
  readonly returnTo: string | null
  readonly result: ExchangeResult | null
}

export type ExchangeResult =
  | { readonly kind: 'stored'; readonly credential: CredentialView }
  | { readonly kind: 'failed'; readonly code: ErrorCode; readonly detail: string }
