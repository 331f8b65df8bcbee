/** The data of a sign-in while the person is at the OpenID provider. */
export interface SignInFlow {
  readonly state: string
  readonly nonce: string
  /** The PKCE code verifier (RFC 7636). */
  readonly verifier: string
  /** The page that is shown after the sign-in. */
  readonly returnTo: string
}

/** The longest time that a person may spend at the provider. */
export const FLOW_SECONDS = 600

/**
 * The port to the store of unfinished sign-ins. A sign-in can be continued only once, and only within `FLOW_SECONDS`
 * after its begin.
 */
export interface SignInFlowStore {
  /** `digest` is the SHA-256 of the secret in the browser's cookie. */
  put(digest: string, flow: SignInFlow): Promise<void>
  /** Returns the flow, and removes it; `null` if the flow does not exist or has expired. */
  take(digest: string): Promise<SignInFlow | null>
}
