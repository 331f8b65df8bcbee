import type { AddressInfo } from 'node:net'

/**
 * The settings that the benchmark passes to a peer, as an environment variable. A peer is a proxy that is compared with
 * the gateway.
 */
export interface ProxySettings {
  readonly upstream: string
  readonly realms: readonly string[]
}

/** Length of an access token in characters. Access tokens of QuickBooks have about the same length. */
const PAD = 'x'.repeat(900)

/** Returns the access token of a realm. The fake token-service and the peers issue the same tokens. */
export const tokenOf = (realm: string): string => `tok-${realm}-${PAD}`

export const settings = (): ProxySettings =>
  JSON.parse(process.env['PEER_SETTINGS'] ?? '') as ProxySettings

const COMPANY = '/v3/company/'

/** Returns the bearer token of the realm in the path, from a map, without authentication, limits or log lines. */
export function bearers({ realms }: ProxySettings): (path: string) => string | undefined {
  const known = new Map(realms.map((realm) => [realm, `Bearer ${tokenOf(realm)}`]))
  return (path) =>
    path.startsWith(COMPANY)
      ? known.get(path.slice(COMPANY.length, path.indexOf('/', COMPANY.length)))
      : undefined
}

/** Prints the server's address as the only line on standard output. */
export const announce = (address: AddressInfo | string | null): void =>
  console.log(`http://127.0.0.1:${(address as AddressInfo).port}`)
