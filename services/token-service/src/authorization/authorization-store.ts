/**
 * The port to the short-lived records of an authorization: requests that wait for their callback, and claims, by which
 * one replica at a time exchanges a code. Each adapter passes the same contract suite. All methods throw
 * `IntegrationError` `store_unavailable` if the store cannot be used.
 */
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import type { ErrorCode } from '@integration-host/shared/errors'

export interface AuthorizationStore {
  /** Stores a request until its state is consumed, at most for `ttlMs`. */
  begin(state: string, request: AuthorizationRequest, ttlMs: number): Promise<void>

  /** Returns the request of a state and deletes it; `null` if it is unknown, consumed or expired. */
  consume(state: string): Promise<AuthorizationRequest | null>

  /** Claims a code for `ttlMs`. Resolves with `null` if this claim is the first, else with the earlier claim. */
  claimCode(code: string, claim: CodeClaim, ttlMs: number): Promise<CodeClaim | null>

  /** Resolves with the current claim of a code; `null` if there is none. */
  readCode(code: string): Promise<CodeClaim | null>

  /** Stores the claim with its result, for another `ttlMs`. */
  settleCode(code: string, claim: CodeClaim, ttlMs: number): Promise<void>
}

export interface AuthorizationRequest {
  readonly nonce: string
  /** `null` if the provider does not support the S256 challenge. */
  readonly codeVerifier: string | null
  /** The company that the callback must name, if this authorization reconnects it; else `null`. */
  readonly realm: string | null
  readonly returnTo: string | null
  /** Digest of the cookie of the browser that started the authorization; `null` if a holder of a service key did. */
  readonly browser: string | null
}

export interface CodeClaim {
  readonly realm: string
  /** Digest of the state in the callback with this code; `null` for a code that another application received. */
  readonly state: string | null
  readonly returnTo: string | null
  readonly result: ExchangeResult | null
}

export type ExchangeResult =
  | { readonly kind: 'stored'; readonly credential: CredentialView }
  | { readonly kind: 'failed'; readonly code: ErrorCode; readonly detail: string }
