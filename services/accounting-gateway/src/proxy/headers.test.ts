import { describe, expect, it } from 'vitest'
import { headerFault, requestHeaders, responseHeaders } from './headers.ts'

const TOKEN = 'the-bearer-token-of-the-realm'
const sent = (...raw: string[]) => requestHeaders(raw, TOKEN)
const own = ['via', '1.1 integration-host', 'authorization', `Bearer ${TOKEN}`]

describe('the headers sent upstream', () => {
  it('keep order, spelling and repetition, and end with the bearer', () => {
    const raw = ['Accept', 'a/b', 'X-Custom', '1', 'x-custom', '2', 'Content-Type', 'text/plain']
    expect(sent(...raw)).toEqual([...raw, ...own])
  })

  it.each([
    'Authorization',
    'Cookie',
    'Proxy-Authorization',
    'X-Forwarded-For',
    'X-FORWARDED-HOST',
    'X_Forwarded_For',
    'Forwarded',
    'Host',
    'Keep-Alive',
    'Proxy-Connection',
    'TE',
    'Trailer',
    'Transfer-Encoding',
    'Upgrade',
    'HTTP2-Settings',
    'Expect',
    'X-Original-URL',
    'X-HTTP-Method-Override',
  ])('never have the caller’s %s', (name) => {
    expect(sent('Accept', '*/*', name, 'x')).toEqual(['Accept', '*/*', ...own])
  })

  it('lack the fields listed in Connection, and Connection itself', () => {
    const raw = [
      'Connection',
      'close, X-Hop ,  x-other',
      'X-Hop',
      '1',
      'X-OTHER',
      '2',
      'X-Kept',
      '3',
    ]
    expect(sent(...raw)).toEqual(['X-Kept', '3', ...own])
  })

  it('append the gateway to Via', () => {
    expect(sent('Via', '1.0 fred')).toEqual(['Via', '1.0 fred', ...own])
  })

  it('keep Authorization and Content-Length, whatever Connection lists', () => {
    const raw = ['Connection', 'authorization, host, content-length', 'Content-Length', '5']
    expect(sent(...raw)).toEqual(['Content-Length', '5', ...own])
  })
})

describe('the headers returned to the caller', () => {
  const returned = (...raw: string[]) => responseHeaders(raw, TOKEN)

  it('are upstream’s, intuit_tid and compression included', () => {
    const raw = [
      'intuit_tid',
      't',
      'Content-Encoding',
      'gzip',
      'Vary',
      'a',
      'Vary',
      'b',
      'Location',
      'http://x/',
    ]
    expect(returned(...raw)).toEqual(raw)
  })

  it.each([
    'Set-Cookie',
    'Connection',
    'Keep-Alive',
    'Transfer-Encoding',
    'Proxy-Authenticate',
    'Upgrade',
    'Alt-Svc',
    'Clear-Site-Data',
    'X-Request-Id',
  ])('never have %s', (name) => {
    expect(returned('A', '1', name, 'x')).toEqual(['A', '1'])
  })

  it('lack the fields listed in Connection', () => {
    expect(returned('Connection', 'x-internal', 'X-Internal', '1', 'B', '2')).toEqual(['B', '2'])
  })

  it('lack a value that echoes the token', () => {
    expect(returned('X-Debug', `got Bearer ${TOKEN}!`, 'B', '2')).toEqual(['B', '2'])
  })
})

describe('ambiguous headers', () => {
  it.each([
    ['two hosts', ['Host', 'a', 'hOST', 'b']],
    ['two authorizations', ['Authorization', 'a', 'authorization', 'b']],
    ['an upgrade', ['Host', 'a', 'Upgrade', 'websocket']],
  ])('are %s', (_what, raw) => {
    expect(headerFault(raw)).not.toBeNull()
  })

  it('are not those of an ordinary request', () => {
    expect(headerFault(['Host', 'a', 'Authorization', 'b', 'Accept', 'c'])).toBeNull()
  })
})
