/** Checks a client id and secret without the consent of a user and without changing anything at the provider. */
import { randomBytes } from 'node:crypto'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { CallProvider, ProviderResponse } from './provider-call.ts'

/**
 * Returns an HTTP Basic header value. The client id and the secret are form-encoded before they are joined (RFC 6749
 * §2.3.1).
 */
export function basicAuthorization(clientId: string, secret: Secret): string {
  const pair = [clientId, secret.reveal()].map((part) =>
    new URLSearchParams({ v: part }).toString().slice(2),
  )
  return `Basic ${Buffer.from(pair.join(':')).toString('base64')}`
}

export interface KeyPairRequest {
  readonly tokenEndpoint: string
  readonly clientId: string
  readonly clientSecret: Secret
  readonly redirect: string
  readonly headers: Readonly<Record<string, string>>
}

export type KeyPairResult =
  | { readonly kind: 'right' }
  /** The provider responded with `invalid_client`, or with a 401 in any format. */
  | { readonly kind: 'rejected'; readonly response: ProviderResponse }
  /** The response does not show whether client id and secret are valid. */
  | { readonly kind: 'unclear'; readonly response: ProviderResponse }

/**
 * Presents a made-up code at the token endpoint. If client id and secret are valid, the response is `invalid_grant`,
 * otherwise `invalid_client` (RFC 6749 §5.2).
 *
 * @throws {NoResponse} no complete response was received.
 */
export async function checkKeyPair(
  call: CallProvider,
  { tokenEndpoint, clientId, clientSecret, redirect, headers }: KeyPairRequest,
): Promise<KeyPairResult> {
  const response = await call(tokenEndpoint, {
    method: 'POST',
    headers: { ...headers, Authorization: basicAuthorization(clientId, clientSecret) },
    body: new URLSearchParams({
      grant_type: 'authorization_code',
      code: `made-up-${randomBytes(16).toString('base64url')}`,
      redirect_uri: redirect,
      // A provider that requires PKCE rejects a request without a code verifier. Other providers ignore the
      // verifier.
      code_verifier: randomBytes(32).toString('base64url'),
    }),
  })
  const error = response.json?.['error']
  if (error === 'invalid_grant') return { kind: 'right' }
  const isRejected = error === 'invalid_client' || response.status === 401
  return { kind: isRejected ? 'rejected' : 'unclear', response }
}
