import { describe, expect, it } from 'vitest'
import { isPrivateAddress, isPrivateLiteral } from './private-addresses.ts'

describe('the check for private addresses', () => {
  it.each([
    '0.0.0.0',
    '10.1.2.3',
    '100.64.0.1',
    '100.100.100.200', // metadata at Alibaba Cloud
    '127.0.0.1',
    '127.255.255.255',
    '168.63.129.16', // platform address at Azure
    '169.254.169.254', // metadata at most clouds
    '172.16.0.1',
    '172.31.255.255',
    '192.0.0.192', // metadata at Oracle Cloud
    '192.168.1.1',
    '198.19.255.255',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::ffff:127.0.0.1',
    '::ffff:8.8.8.8',
    '64:ff9b::7f00:1',
    'fc00::1',
    'fd00:ec2::254', // metadata at AWS
    'fe80::1',
    'fec0::1',
    'ff02::1',
    '2001::1',
    '2001:db8::1',
    '2002:7f00:1::1',
    'not an address',
  ])('the check treats the host %s as private', (address) => {
    expect(isPrivateAddress(address)).toBe(true)
  })

  it.each(['1.1.1.1', '100.63.255.255', '100.128.0.1', '172.15.0.1', '172.32.0.1', '2606:4700::1'])(
    'the check treats the host %s as public',
    (address) => {
      expect(isPrivateAddress(address)).toBe(false)
    },
  )

  it('the check treats an unresolved host name as public, unless it is a name of this machine', () => {
    expect(isPrivateLiteral('hooks.example.com')).toBe(false)
    expect(isPrivateLiteral('localhost')).toBe(true)
    expect(isPrivateLiteral('a.localhost.')).toBe(true)
    expect(isPrivateLiteral('10.0.0.1')).toBe(true)
  })
})
