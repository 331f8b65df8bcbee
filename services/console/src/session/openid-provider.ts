import type { PersonClaims } from './openid-role.ts'
import type { SignInFlow } from './sign-in-flow.ts'

/** The port to the OpenID provider at which persons sign in. */
export interface OpenIdProvider {
  /** The host name of the provider, for the sign-in page. */
  readonly host: string
  /**
   * Returns the address to which the browser is sent, and the data that the browser must bring back. `confirm` is the
   * user name of a person who has signed in before: then the provider confirms the person without showing a page, or
   * reports that it cannot (`prompt=none`, OpenID Connect Core §3.1.2.1).
   *
   * @throws {IntegrationError} `provider_unavailable` if the discovery document cannot be read.
   */
  begin(
    confirm?: string,
  ): Promise<{ readonly url: string; readonly flow: Omit<SignInFlow, 'returnTo'> }>
  /**
   * Exchanges the code of a callback, and returns the claims of the verified id token; `null` if the provider reports
   * that it cannot confirm the person without showing a page. The tokens are not kept. `query` is the query of the
   * callback.
   *
   * @throws {IntegrationError} `sign_in_rejected` if the response does not belong to this flow, or its id token is not
   * valid; `provider_unavailable` if the provider does not respond.
   */
  complete(flow: SignInFlow, query: string): Promise<PersonClaims | null>
}
