import type { ClientAuth } from 'openid-client'

/**
 * HTTP Basic with id and secret form-encoded (RFC 6749 §2.3.1). The library's own also encodes `-`, `_` and `.`,
 * which form encoding leaves as they are, and providers that do not decode, as Intuit's SDKs suggest of
 * Intuit, would compare with `%2D`.
 */
export const clientSecretBasic =
  (secret: string): ClientAuth =>
  (_server, { client_id }, _body, headers) => {
    const credentials = `${formEncoded(client_id)}:${formEncoded(secret)}`
    headers.set('authorization', `Basic ${Buffer.from(credentials).toString('base64')}`)
  }

const formEncoded = (text: string): string => new URLSearchParams({ '': text }).toString().slice(1)
