/** Why a TLS connection failed, in words that are safe to log. */
export interface TlsFailure {
  readonly reason: string
  /** The action that an operator can take. `*` stands for the prefix of the backend's settings, such as `REDIS`. */
  readonly remedy: string
}

const CLIENT_CERTIFICATE_REMEDY = 'Set *_CERT_FILE and *_KEY_FILE.'
const TRUSTED_CERTIFICATE_REMEDY = 'Set *_CERT_FILE to a certificate that the server trusts.'

/**
 * Patterns of an error's code and message, in lower case and with spaces in place of punctuation. The codes come from
 * Node (X.509 verification) and OpenSSL (alerts of the server, which contain the word `alert`).
 */
const failures: readonly (readonly [pattern: RegExp, reason: string, remedy: string])[] = [
  [
    /^(unable to (verify leaf signature|get issuer cert)|(depth zero )?self signed cert|cert untrusted)/,
    "the server's certificate is from an unknown authority",
    'Set *_CA_FILE to the certificate of the authority that issued it.',
  ],
  [
    /^err tls cert altname invalid/,
    "the host name does not match the server's certificate",
    'Use a name or IP address that the certificate contains.',
  ],
  [/^cert has expired/, "the server's certificate has expired", 'Renew it at the server.'],
  [
    /^cert not yet valid/,
    "the server's certificate is not valid yet",
    'Check the clocks of both machines.',
  ],
  [
    /alert certificate required/,
    'the server requires a client certificate',
    CLIENT_CERTIFICATE_REMEDY,
  ],
  [
    // A TLS 1.2 server sends this alert if the client certificate is missing.
    /alert handshake failure/,
    'the server rejects the TLS handshake: it may require a client certificate',
    CLIENT_CERTIFICATE_REMEDY,
  ],
  [/alert certificate expired/, 'the client certificate has expired', 'Renew *_CERT_FILE.'],
  [
    /alert unknown ca/,
    'the server does not know the authority of the client certificate',
    TRUSTED_CERTIFICATE_REMEDY,
  ],
  [
    /alert (bad certificate|certificate unknown|certificate revoked|unsupported certificate)/,
    'the server rejects the client certificate',
    TRUSTED_CERTIFICATE_REMEDY,
  ],
  [
    /alert protocol version|unsupported protocol|no protocols available/,
    'the server supports no TLS version that this client supports',
    'Enable TLS 1.2 or newer at the server.',
  ],
  [
    /wrong version number|packet length too long|record layer failure/,
    'the server does not speak TLS on this port',
    'Use the TLS port of the server, or a URL without TLS.',
  ],
  [
    /^err tls handshake timeout/,
    'the server does not respond to the TLS handshake: it may not speak TLS on this port',
    'Use the TLS port of the server, or a URL without TLS.',
  ],
  [
    /before secure tls connection was established/,
    'the server ended the TLS handshake',
    'Check that the server speaks TLS on this port.',
  ],
]

/** Returns why TLS failed; `null` if `error` is not a TLS error. */
export function tlsFailure(error: unknown): TlsFailure | null {
  if (!(error instanceof Error)) return null
  const { code } = error as { code?: unknown }
  const text = `${typeof code === 'string' ? code : ''} ${error.message}`
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, ' ')
    .trim()
  const [, reason, remedy] = failures.find(([pattern]) => pattern.test(text)) ?? []
  return reason === undefined || remedy === undefined ? null : { reason, remedy }
}
