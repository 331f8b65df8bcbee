import { BlockList, isIP } from 'node:net'

/**
 * The IPv4 ranges that are not public: the IANA special-purpose registry (RFC 6890), multicast and reserved ranges. The
 * last entry is Azure's platform address, which every virtual machine on Azure can reach.
 */
const SPECIAL_V4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
  '168.63.129.16/32',
]
/**
 * In IPv6, only addresses in 2000::/3 are public (RFC 4291 §2.4), except in the ranges below. All other addresses are
 * private, for example loopback, link-local, unique local, and IPv4 addresses in IPv6 form (::ffff:0:0/96,
 * 64:ff9b::/96).
 */
const GLOBAL_V6 = '2000::/3'
/**
 * The ranges in 2000::/3 that are not public: protocol assignments (such as Teredo), documentation addresses, and 6to4
 * addresses, which embed an IPv4 address.
 */
const SPECIAL_V6 = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20']

const listOf = (family: 'ipv4' | 'ipv6', ranges: readonly string[]): BlockList => {
  const list = new BlockList()
  for (const range of ranges) {
    const [address = '', prefix] = range.split('/')
    list.addSubnet(address, Number(prefix), family)
  }
  return list
}
const specialV4 = listOf('ipv4', SPECIAL_V4)
const specialV6 = listOf('ipv6', SPECIAL_V6)
const globalV6 = listOf('ipv6', [GLOBAL_V6])

/**
 * Whether an IP address cannot be reached over the public internet. The result is also true for a text that is not an
 * IP address.
 */
export function isPrivateAddress(address: string): boolean {
  const family = isIP(address)
  if (family === 4) return specialV4.check(address)
  if (family === 6) return !globalV6.check(address, 'ipv6') || specialV6.check(address, 'ipv6')
  return true
}

/**
 * Whether a host is a private IP address. The result is false for a host name, which is checked when it is resolved.
 */
export const isPrivateLiteral = (host: string): boolean =>
  isIP(host) === 0 ? /(?:^|\.)localhost\.?$/.test(host) : isPrivateAddress(host)
