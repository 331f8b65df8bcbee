/**
 * The network from which a request comes. Limits for clients without a key are counted for each network, so that a
 * client that uses up its limit delays only its own network.
 */
import { BlockList, isIP, isIPv4 } from 'node:net'
import type { IncomingMessage } from 'node:http'
import type { Context } from 'hono'
import { z } from 'zod'

/** Returns the network of the client that has sent a request. */
export type NetworkOf = (c: Context) => string

/** The prefix that one client has: an IPv4 address has neighbours, and an IPv6 client usually has a whole /64. */
const IPV4_OCTETS = 3
const IPV6_GROUPS = 4

/**
 * The setting `TRUSTED_PROXIES`: a comma list of addresses and CIDR blocks, such as `10.0.0.7,fd00::/8`; empty by
 * default. The header `X-Forwarded-For` counts only in requests of these peers.
 */
export const trustedProxies = () =>
  z
    .string()
    .default('')
    .transform((list, context): BlockList => {
      const proxies = new BlockList()
      for (const entry of list.split(',').map((one) => one.trim())) {
        if (entry !== '' && !addBlock(proxies, entry))
          context.addIssue({
            code: 'custom',
            message: 'must be a comma list of addresses and CIDR blocks such as 10.0.0.0/8',
          })
      }
      return proxies
    })

function addBlock(proxies: BlockList, entry: string): boolean {
  const [, address = '', prefix] = /^([^/]{1,45})(?:\/(\d{1,3}))?$/.exec(entry) ?? []
  const family = isIP(address)
  const bits = family === 4 ? 32 : 128
  if (family === 0 || address.includes('%') || Number(prefix ?? bits) > bits) return false
  proxies.addSubnet(address, Number(prefix ?? bits), family === 4 ? 'ipv4' : 'ipv6')
  return true
}

/** Returns the function that reads the network of a request. */
export const peerNetworks =
  (trusted: BlockList): NetworkOf =>
  (c) => {
    const { incoming } = (c.env ?? {}) as { readonly incoming?: IncomingMessage }
    const peer = incoming?.socket.remoteAddress ?? ''
    return networkOf(clientAddress(peer, c.req.header('X-Forwarded-For'), trusted))
  }

/**
 * Returns the address of the client of a request. Each proxy appends the address of its own peer to `X-Forwarded-For`,
 * so the list is read from the right: the first address that is not a trusted proxy is the client, and what stands
 * before it may be made up. The header `Forwarded` (RFC 7239) is not read, because a proxy that appends to one of the
 * two headers passes on what the client has written into the other.
 */
export function clientAddress(
  peer: string,
  forwardedFor: string | undefined,
  trusted: BlockList,
): string {
  let address = peer
  const added = forwardedFor === undefined ? [] : forwardedFor.split(',')
  while (isTrusted(trusted, address)) {
    const before = addressIn(added.pop())
    if (before === null) break
    address = before
  }
  return address
}

function isTrusted(trusted: BlockList, address: string): boolean {
  const plain = withoutMapping(address)
  return isIP(plain) !== 0 && trusted.check(plain, isIPv4(plain) ? 'ipv4' : 'ipv6')
}

/** Returns the address of an entry of `X-Forwarded-For`, which some proxies write with a port; `null` if it has none. */
function addressIn(entry: string | undefined): string | null {
  const text = entry?.trim() ?? ''
  const [, bracketed, withPort] =
    /^(?:\[([^\]]{2,45})\]|([\d.]{7,15}))(?::\d{1,5})?$/.exec(text) ?? []
  const address = bracketed ?? withPort ?? text
  return isIP(address) === 0 ? null : address
}

/**
 * Returns the network of an address: the /24 of an IPv4 address, such as `192.0.2.0/24`, or the /64 of an IPv6 address,
 * such as `2001:db8:0:1::/64`. Returns `unknown` for any other text.
 */
export function networkOf(address: string): string {
  const plain = withoutMapping(address)
  if (isIPv4(plain)) return `${plain.split('.').slice(0, IPV4_OCTETS).join('.')}.0/24`
  return isIP(plain) === 0 ? 'unknown' : `${ipv6Groups(plain).slice(0, IPV6_GROUPS).join(':')}::/64`
}

/** Returns the IPv4 address that an IPv6 address such as `::ffff:192.0.2.1` contains; otherwise the address itself. */
function withoutMapping(address: string): string {
  if (isIP(address) !== 6) return address
  const groups = ipv6Groups(address)
  if (groups.slice(0, 6).join(':') !== '0:0:0:0:0:ffff') return address.split('%')[0] ?? ''
  return groups
    .slice(6)
    .map((group) => Number.parseInt(group, 16))
    .flatMap((group) => [group >> 8, group & 255])
    .join('.')
}

/** Returns the eight groups of an IPv6 address as hex digits without leading zeros. */
function ipv6Groups(address: string): readonly string[] {
  // The URL parser writes every IPv6 address in the form of RFC 5952.
  const { hostname } = new URL(`http://[${address.split('%')[0]}]`)
  const [head = '', tail] = hostname.slice(1, -1).split('::')
  const before = head === '' ? [] : head.split(':')
  const after = tail === undefined || tail === '' ? [] : tail.split(':')
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => '0')
  return [...before, ...zeros, ...after]
}
