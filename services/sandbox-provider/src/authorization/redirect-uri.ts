import { isLoopback } from '@integration-host/shared/http/origin-guard'

/** Returns whether a provider accepts a redirect URI for registration. */
type RedirectUriRule = (uri: URL) => boolean

const isHttpsOrLoopback: RedirectUriRule = (uri) =>
  uri.protocol === 'https:' || (uri.protocol === 'http:' && isLoopback(uri.hostname))

export const redirectUriRules = {
  /**
   * Intuit's rule: the URI has no query, and is either https with a host name, or http or https with the host
   * localhost. (Intuit allows localhost only for development keys.)
   *
   * This sandbox also accepts a loopback address such as `http://127.0.0.1:7217/callback`, which Intuit rejects. The
   * compose stack and the embedded host use such an address. They do not listen on ::1, to which a browser may resolve
   * `localhost`.
   */
  intuit: (uri) => {
    if (uri.search !== '' || uri.href.endsWith('?')) return false
    return isLoopback(uri.hostname)
      ? isHttpsOrLoopback(uri)
      : uri.protocol === 'https:' && !isIpAddress(uri.hostname)
  },
  /** The rule of RFC 6749 §3.1.2 and RFC 8252 §7.3: https, or http to the loopback interface; a query is allowed. */
  standard: isHttpsOrLoopback,
} as const satisfies Readonly<Record<string, RedirectUriRule>>

export type RedirectUriRules = keyof typeof redirectUriRules

/**
 * Returns whether a host name is an IP address. The host name must come from a `URL` object, because `URL` normalizes
 * IPv4 addresses to four decimal parts and puts IPv6 addresses in brackets.
 */
const isIpAddress = (hostname: string): boolean =>
  /^\d+(?:\.\d+){3}$/.test(hostname) || hostname.startsWith('[')

/** Returns whether an authorization request may use this redirect URI. */
export function isRegistered(
  redirectUri: string,
  { redirectUris, rules }: RegisteredRedirectUris,
): boolean {
  if (!URL.canParse(redirectUri) || redirectUri.includes('#')) return false
  const uri = new URL(redirectUri)
  if (uri.username !== '' || uri.password !== '' || !redirectUriRules[rules](uri)) return false
  return redirectUris === null ? isLoopback(uri.hostname) : redirectUris.includes(redirectUri)
}

export interface RegisteredRedirectUris {
  /**
   * The registered redirect URIs, which are compared character by character. `null` accepts any redirect URI with a
   * loopback host.
   */
  readonly redirectUris: readonly string[] | null
  readonly rules: RedirectUriRules
}
