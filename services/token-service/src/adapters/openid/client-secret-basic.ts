import type { ClientAuth } from 'openid-client'

/**
 * Authenticates the client by HTTP Basic with id and secret form-encoded (RFC 6749 §2.3.1). openid-client's own
 * ClientSecretBasic also encodes `-`, `_` and `.`, which form encoding keeps. A provider that compares the header
 * without decoding it, as Intuit's SDKs suggest that Intuit does, would then reject a secret with a hyphen.
 */
export const clientSecretBasic =
  (secret: string): ClientAuth =>
  (_server, { client_id }, _body, headers) => {
    const credentials = `${formEncoded(client_id)}:${formEncoded(secret)}`
    headers.set('authorization', `Basic ${Buffer.from(credentials).toString('base64')}`)
  }

const formEncoded = (text: string): string => new URLSearchParams({ '': text }).toString().slice(1)
