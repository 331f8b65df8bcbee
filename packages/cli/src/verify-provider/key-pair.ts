/** Checks client id and secret without a person's consent and without changing anything. */
import { randomBytes } from 'node:crypto'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { CallProvider, ProviderResponse } from './provider-call.ts'

/** HTTP Basic with both halves form-encoded (RFC 6749 §2.3.1). */
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
  /** `invalid_client`, or a 401 of whatever form. */
  | { readonly kind: 'rejected'; readonly response: ProviderResponse }
  /** The response says nothing about the key pair. */
  | { readonly kind: 'unclear'; readonly response: ProviderResponse }

/**
 * Presents a made-up code. RFC 6749 §5.2: `invalid_grant` comes after the client was authenticated,
 * `invalid_client` in its place.
 *
 * @throws {NoResponse}
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
      // Where PKCE is required, a request without it would be rejected for that. Elsewhere it is ignored.
      code_verifier: randomBytes(32).toString('base64url'),
    }),
  })
  const error = response.json?.['error']
  if (error === 'invalid_grant') return { kind: 'right' }
  const isRejected = error === 'invalid_client' || response.status === 401
  return { kind: isRejected ? 'rejected' : 'unclear', response }
}
