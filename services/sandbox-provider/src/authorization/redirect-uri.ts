import { isLoopback } from '@integration-host/shared/http/loopback'

/** Whether a redirect URI may be registered at all, whatever is configured. */
type RedirectUriRule = (uri: URL) => boolean

const isHttpsOrLoopback: RedirectUriRule = (uri) =>
  uri.protocol === 'https:' || (uri.protocol === 'http:' && isLoopback(uri.hostname))

export const redirectUriRules = {
  /**
   * Intuit's: https without an IP address, or localhost with either scheme (development keys; production keys
   * allow https only), and no query.
   *
   * A loopback address in place of localhost (`http://127.0.0.1:7217/callback`) is an exception of this
   * sandbox: Intuit would reject it. The compose stack and the embedded host publish that address, because
   * `localhost` may lead to ::1, where nothing listens.
   */
  intuit: (uri) => {
    if (uri.search !== '' || uri.href.endsWith('?')) return false
    return isLoopback(uri.hostname)
      ? isHttpsOrLoopback(uri)
      : uri.protocol === 'https:' && !isIpAddress(uri.hostname)
  },
  /** RFC 6749 §3.1.2 and RFC 8252 §7.3: https, or http to the loopback interface; a query may be there. */
  standard: isHttpsOrLoopback,
} as const satisfies Readonly<Record<string, RedirectUriRule>>

export type RedirectUriRules = keyof typeof redirectUriRules

/** For a host as `URL` normalises it: IPv4 in four decimal parts, IPv6 in brackets. */
const isIpAddress = (hostname: string): boolean =>
  /^\d+(?:\.\d+){3}$/.test(hostname) || hostname.startsWith('[')

/** Whether an authorization request may name this redirect URI. */
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
  /** Compared character by character; `null`: any on the loopback interface. */
  readonly redirectUris: readonly string[] | null
  readonly rules: RedirectUriRules
}
