import type { Secret } from '@integration-host/shared/secrets/secret'

/**
 * Returns the header `Authorization` that authenticates the client by HTTP Basic with form-encoded client id and secret
 * (RFC 6749 §2.3.1).
 *
 * ClientSecretBasic of openid-client also percent-encodes `-`, `_` and `.`, which form encoding leaves unchanged. A
 * provider that compares the header without decoding it would reject a secret with a percent-encoded hyphen. Intuit's
 * SDKs do not encode these characters.
 */
export function basicAuthorization(clientId: string, secret: Secret): string {
  const credentials = `${formEncoded(clientId)}:${formEncoded(secret.reveal())}`
  return `Basic ${Buffer.from(credentials).toString('base64')}`
}

const formEncoded = (text: string): string => new URLSearchParams({ '': text }).toString().slice(1)
