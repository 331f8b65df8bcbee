import { describe, expect, it } from 'vitest'
import { clientAddress, networkOf, trustedProxies } from './peer-network.ts'

const none = trustedProxies().parse(undefined)
const proxies = trustedProxies().parse('10.0.0.0/8, 192.0.2.7,fd00::/8')

describe('the address of the client of a request', () => {
  it.each([
    [
      'the header of a peer that is not a trusted proxy',
      '198.51.100.4',
      '203.0.113.9',
      '198.51.100.4',
    ],
    ['a missing header', '10.0.0.1', undefined, '10.0.0.1'],
    ['what the client itself has written', '10.0.0.1', '127.0.0.1, 203.0.113.9', '203.0.113.9'],
    ['several trusted proxies', '10.0.0.1', '1.1.1.1, 203.0.113.9, 192.0.2.7', '203.0.113.9'],
    ['an address with a port', '10.0.0.1', '203.0.113.9:4711', '203.0.113.9'],
    ['an IPv6 address in brackets', '10.0.0.1', '[2001:db8::1]:4711', '2001:db8::1'],
    ['a trusted proxy that is named in IPv6', 'fd00::5', '2001:db8::1', '2001:db8::1'],
    ['a socket that has both protocols', '::ffff:10.0.0.1', '203.0.113.9', '203.0.113.9'],
    ['a text that is no address', '10.0.0.1', '203.0.113.9, unknown', '10.0.0.1'],
    ['an empty header', '10.0.0.1', '', '10.0.0.1'],
    ['a list of trusted proxies only', '10.0.0.1', '10.0.0.3, 10.0.0.2', '10.0.0.3'],
    ['a very long list', '10.0.0.1', `${'1.1.1.1,'.repeat(2_000)}203.0.113.9`, '203.0.113.9'],
  ])('the address of the client is right for %s', (_, peer, header, address) => {
    expect(clientAddress(peer, header, proxies)).toBe(address)
  })

  it('the header X-Forwarded-For has no effect without trusted proxies', () => {
    expect(clientAddress('10.0.0.1', '203.0.113.9', none)).toBe('10.0.0.1')
  })
})

describe('the network of an address', () => {
  it.each([
    ['192.0.2.7', '192.0.2.0/24'],
    ['192.0.2.250', '192.0.2.0/24'],
    ['::ffff:192.0.2.7', '192.0.2.0/24'],
    ['::ffff:c000:207', '192.0.2.0/24'],
    ['2001:db8:0:1::5', '2001:db8:0:1::/64'],
    ['2001:0DB8:0000:0001:ffff:ffff:ffff:ffff', '2001:db8:0:1::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['', 'unknown'],
    ['localhost', 'unknown'],
  ])('the network of %s is %s', (address, network) => {
    expect(networkOf(address)).toBe(network)
  })
})

describe('the setting TRUSTED_PROXIES', () => {
  it.each([
    '10.0.0.0/33',
    '10.0.0/8',
    'ingress',
    'fd00::/129',
    '10.0.0.1/',
    '10.0.0.1/8/8',
    'fe80::1%eth0',
  ])('the list %s is rejected', (list) => {
    expect(trustedProxies().safeParse(list).success).toBe(false)
  })
})
