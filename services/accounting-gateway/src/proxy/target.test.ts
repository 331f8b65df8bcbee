import { describe, expect, it } from 'vitest'
import { isBatch, scopeOf, readTarget, upstreamBase } from './target.ts'

describe('a raw request target', () => {
  it.each([
    ['/v3/company/123/query?query=select%20*%20from%20CompanyInfo', '123'],
    ['/v3/company/9341453908059889/invoice/5', '9341453908059889'],
    ['/v3/company/a_B-9/', 'a_B-9'],
    [`/v3/company/${'r'.repeat(64)}/x`, 'r'.repeat(64)],
    ['/v3/company/123/x?a=../..&b=\\&c=//evil&d=http://evil/&e=%2e%2E', '123'],
    ['/v3/company/123//x', '123'],
    ['/v3/company/123/a...b/..c/.d', '123'],
    ['/v3/company/123/x?q=\xe9\xff', '123'],
    ["/v3/company/123/x;v=1/it's(a)@b:c!$&+,=~%20%C3%A9", '123'],
  ])(
    'the gateway accepts the target %j as a call of realm %s, and keeps its bytes unchanged',
    (target, realm) => {
      expect(readTarget(target)).toEqual({ kind: 'company', realm, path: target })
    },
  )

  it.each([
    ['a URL (absolute form)', 'http://127.0.0.1/v3/company/1/x'],
    ['a URL with userinfo', 'http://user@evil/v3/company/1/x'],
    ['an asterisk (asterisk form)', '*'],
    ['a host and port (authority form)', 'evil:443'],
    ['a leading @', '@evil/v3/company/1/x'],
    ['an empty target', ''],
    ['an authority in the path', '//evil/v3/company/1/x'],
    ['an authority after a backslash', '/\\evil/v3/company/1/x'],
    ['a backslash', '/v3/company/1/x\\y'],
    ['an encoded backslash', '/v3/company/1/x%5cy'],
    ['a dot segment', '/v3/company/1/../2/x'],
    ['a dot segment at the end', '/v3/company/1/..'],
    ['a single dot segment', '/v3/company/1/./x'],
    ['an encoded dot segment', '/v3/company/1/%2e%2e/2/x'],
    ['a partly encoded dot segment', '/v3/company/1/.%2E/2/x'],
    ['a doubly encoded dot segment', '/v3/company/1/%252e%252e/2/x'],
    ['a dot segment with a parameter', '/v3/company/1/..;a=b/2/x'],
    ['an encoded slash', '/v3/company/1%2f..%2f2/x'],
    ['a fragment', '/v3/company/1/x#/health/live'],
    ['a fragment in the query', '/v3/company/1/x?a#b'],
    ['an encoded control character', '/v3/company/1/x%0d%0aHost:evil'],
    ['a bare percent sign', '/v3/company/1/100%'],
    ['a byte outside ASCII in the path', '/v3/company/1/\xe9'],
    ['a realm with a dot', '/v3/company/1.2/x'],
    ['an empty realm', '/v3/company//x'],
    ['a realm that is too long', `/v3/company/${'r'.repeat(65)}/x`],
    ['a realm with an encoded character', '/v3/company/%31/x'],
    ['a dot segment outside the company paths', '/health/../v3/company/1/x'],
  ])('the gateway rejects a request target: %s', (_what, target) => {
    expect(readTarget(target)).toMatchObject({ kind: 'rejected' })
  })

  it.each([
    '/',
    '/health/live',
    '/v3',
    '/v3/companyx/1/x',
    '/V3/company/1/x',
    '/v3/company/1',
    '/metrics?a=b',
  ])('the gateway does not forward a request for the path %j', (target) => {
    expect(readTarget(target)).toEqual({ kind: 'own' })
  })

  it('the gateway never accepts a path that another parser would read as a different origin, realm or path', () => {
    const bits = [
      '/',
      '//',
      '.',
      '..',
      '%2e',
      '%2f',
      '\\',
      '%5c',
      '@',
      ':',
      '?',
      '#',
      ';',
      'v3',
      'company',
      '1',
      'x',
      '%',
      '%00',
      ' ',
      '\t',
      '[',
      ']',
      '|',
      '^',
      '`',
      '{',
      '"',
      '<',
      "'",
      'é',
    ]
    const origin = 'https://api.example:8443'
    // The seed is fixed, so that a failure can be reproduced.
    let seed = 42
    const next = (n: number) => {
      seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
      return seed % n
    }
    let accepted = 0
    for (let round = 0; round < 20_000; round += 1) {
      let target = '/v3/company/1/'
      for (let n = next(7); n >= 0; n -= 1) target += bits[next(bits.length)]
      const read = readTarget(target)
      if (read.kind !== 'company') continue
      accepted += 1
      expect(read).toEqual({ kind: 'company', realm: '1', path: target })
      const url = new URL(origin + target)
      expect(url.origin).toBe(origin)
      // The WHATWG URL parser must read the same path as the gateway, byte for byte. The same realm is not enough.
      expect(url.pathname).toBe(target.split('?')[0])
    }
    expect(accepted).toBeGreaterThan(500)
  })
})

it('upstreamBase() keeps the path of ACCOUNTING_URL, and removes the trailing slash', () => {
  expect(upstreamBase('http://h:1/base/')).toEqual({ origin: 'http://h:1', pathPrefix: '/base' })
})

it.each([
  ['/v3/company/1/batch', true],
  ['/v3/company/1/Batch?minorversion=75', true],
  ['/v3/company/1/batch/', true],
  ['/v3/company/1/batches', false],
  ['/v3/company/batch/query', false],
  ['/v3/company/1/query?x=/batch', false],
])('for the path %s, isBatch() returns %s', (path, is) => {
  expect(isBatch(path)).toBe(is)
})

it.each([
  ['GET', '/v3/company/1/invoice/1', 'gateway:read'],
  ['HEAD', '/v3/company/1/invoice/1', 'gateway:read'],
  ['POST', '/v3/company/1/query?query=select', 'gateway:read'],
  ['POST', '/v3/company/1/Query', 'gateway:write'],
  ['POST', '/v3/company/1/invoice', 'gateway:write'],
  ['PUT', '/v3/company/1/query', 'gateway:write'],
  ['DELETE', '/v3/company/1/invoice/1', 'gateway:write'],
])('a call %s %s needs the scope %s', (method, path, scope) => {
  expect(scopeOf(method, { kind: 'company', path, realm: '1' })).toBe(scope)
})
