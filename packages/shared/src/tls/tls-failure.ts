/** Why a TLS connection failed, in words that are safe to log. */
export interface TlsFailure {
  readonly reason: string
  /** The action that an operator can take. `*` stands for the prefix of the backend's settings, such as `REDIS`. */
  readonly remedy: string
}

const UNKNOWN_AUTHORITY: TlsFailure = {
  reason: "the server's certificate is from an unknown authority",
  remedy: 'Set *_CA_FILE to the certificate of the authority that issued it.',
}
const CLIENT_CERTIFICATE_NEEDED: TlsFailure = {
  reason: 'the server requires a client certificate',
  remedy: 'Set *_CERT_FILE and *_KEY_FILE.',
}

/**
 * Patterns of an error's code and message, in lower case and with spaces in place of punctuation. The codes come from
 * Node (X.509 verification) and OpenSSL (alerts of the server, which contain the word `alert`).
 */
const failures: readonly (readonly [RegExp, TlsFailure])[] = [
  [
    /^(unable to (verify leaf signature|get issuer cert)|(depth zero )?self signed cert|cert untrusted)/,
    UNKNOWN_AUTHORITY,
  ],
  [
    /^err tls cert altname invalid/,
    {
      reason: "the host name does not match the server's certificate",
      remedy: 'Use a name or IP address that the certificate contains.',
    },
  ],
  [
    /^cert has expired/,
    { reason: "the server's certificate has expired", remedy: 'Renew it at the server.' },
  ],
  [
    /^cert not yet valid/,
    {
      reason: "the server's certificate is not valid yet",
      remedy: 'Check the clocks of both machines.',
    },
  ],
  [/alert certificate required/, CLIENT_CERTIFICATE_NEEDED],
  [
    // A TLS 1.2 server sends this alert if the client certificate is missing.
    /alert handshake failure/,
    {
      reason: 'the server rejects the TLS handshake: it may require a client certificate',
      remedy: CLIENT_CERTIFICATE_NEEDED.remedy,
    },
  ],
  [
    /alert certificate expired/,
    { reason: 'the client certificate has expired', remedy: 'Renew *_CERT_FILE.' },
  ],
  [
    /alert unknown ca/,
    {
      reason: 'the server does not know the authority of the client certificate',
      remedy: 'Set *_CERT_FILE to a certificate that the server trusts.',
    },
  ],
  [
    /alert (bad certificate|certificate unknown|certificate revoked|unsupported certificate)/,
    {
      reason: 'the server rejects the client certificate',
      remedy: 'Set *_CERT_FILE to a certificate that the server trusts.',
    },
  ],
  [
    /alert protocol version|unsupported protocol|no protocols available/,
    {
      reason: 'the server supports no TLS version that this client supports',
      remedy: 'Enable TLS 1.2 or newer at the server.',
    },
  ],
  [
    /wrong version number|packet length too long|record layer failure/,
    {
      reason: 'the server does not speak TLS on this port',
      remedy: 'Use the TLS port of the server, or a URL without TLS.',
    },
  ],
  [
    /^err tls handshake timeout/,
    {
      reason: 'the server does not respond to the TLS handshake: it may not speak TLS on this port',
      remedy: 'Use the TLS port of the server, or a URL without TLS.',
    },
  ],
  [
    /before secure tls connection was established/,
    {
      reason: 'the server ended the TLS handshake',
      remedy: 'Check that the server speaks TLS on this port.',
    },
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
  return failures.find(([pattern]) => pattern.test(text))?.[1] ?? null
}
