import type { ClientAuth } from 'openid-client'

/**
 * Authenticates the client by HTTP Basic with the form-encoded client id and secret (RFC 6749 §2.3.1). openid-client's
 * own ClientSecretBasic also percent-encodes `-`, `_` and `.`, which form encoding leaves unchanged. Intuit's SDKs do
 * not encode these characters. A provider that compares the header without decoding it would reject a secret with a
 * percent-encoded hyphen.
 */
export const clientSecretBasic =
  (secret: string): ClientAuth =>
  (_server, { client_id }, _body, headers) => {
    const credentials = `${formEncoded(client_id)}:${formEncoded(secret)}`
    headers.set('authorization', `Basic ${Buffer.from(credentials).toString('base64')}`)
  }

const formEncoded = (text: string): string => new URLSearchParams({ '': text }).toString().slice(1)
