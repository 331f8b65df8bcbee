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

/** The port to the store of the sign-ins that have begun. Each can be continued once, within `FLOW_SECONDS`. */
export interface SignInFlowStore {
  /** `digest` is the SHA-256 of the secret in the browser's cookie. */
  put(digest: string, flow: SignInFlow): Promise<void>
  /** Returns the flow, and removes it; `null` if the flow does not exist or has expired. */
  take(digest: string): Promise<SignInFlow | null>
}
