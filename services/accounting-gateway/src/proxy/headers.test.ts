import { describe, expect, it } from 'vitest'
import { headerFault, requestHeaders, responseHeaders, transferCodingFault } from './headers.ts'

const TOKEN = 'the-bearer-token-of-the-realm'
const sent = (...raw: string[]) => requestHeaders(raw, TOKEN)
const ownHeaders = ['via', '1.1 integration-host', 'authorization', `Bearer ${TOKEN}`]

describe('request headers sent upstream', () => {
  it('the gateway keeps order, spelling and repetition of request headers, and adds the bearer token last', () => {
    const raw = ['Accept', 'a/b', 'X-Custom', '1', 'x-custom', '2', 'Content-Type', 'text/plain']
    expect(sent(...raw)).toEqual([...raw, ...ownHeaders])
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
    'X-Host',
    'X-Client-IP',
    'Client-IP',
    'True-Client-IP',
    'true_client_ip',
    'CF-Connecting-IP',
    'CF_CONNECTING_IP',
    'Proxy',
    'Content_Length',
    'traceparent',
    'Send-Once',
    'tracestate',
  ])('the gateway removes the header %s from a request', (name) => {
    expect(sent('Accept', '*/*', name, 'x')).toEqual(['Accept', '*/*', ...ownHeaders])
  })

  it('the gateway removes from a request the Connection header and all headers that the Connection header lists', () => {
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
    expect(sent(...raw)).toEqual(['X-Kept', '3', ...ownHeaders])
  })

  it('the gateway appends its own entry to the Via header', () => {
    expect(sent('Via', '1.0 fred')).toEqual(['Via', '1.0 fred', ...ownHeaders])
  })

  it('the gateway sends Authorization and Content-Length upstream even if the Connection header lists them', () => {
    const raw = ['Connection', 'authorization, host, content-length', 'Content-Length', '5']
    expect(sent(...raw)).toEqual(['Content-Length', '5', ...ownHeaders])
  })
})

describe('response headers sent to the caller', () => {
  const returned = (...raw: string[]) => responseHeaders(raw, TOKEN)

  it('the gateway keeps intuit_tid, Content-Encoding, Location and repeated headers of a response', () => {
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

  it('the gateway keeps only the first of repeated response headers that may stand once', () => {
    const raw = ['ETag', '"1"', 'Link', '<a>', 'etag', '"2"', 'Link', '<b>', 'Location', '/']
    expect(returned(...raw, 'location', '/x')).toEqual([
      'ETag',
      '"1"',
      'Link',
      '<a>',
      'Link',
      '<b>',
      'Location',
      '/',
    ])
  })

  it('a header that the gateway adds replaces the header of the accounting API if it may stand once', () => {
    const raw = ['retry-after', '1.5', 'Server-Timing', 'db;dur=1', 'X-RequestID', 'theirs']
    const added = ['Retry-After', '60', 'Server-Timing', 'gateway;dur=1', 'X-RequestId', 'ours']
    expect(responseHeaders(raw, TOKEN, 429, added)).toEqual(['Server-Timing', 'db;dur=1', ...added])
  })

  it.each([
    [204, []],
    [103, []],
    [200, ['Content-Length', '4']],
    [304, ['Content-Length', '4']],
  ])(
    'of a response with status %i, the gateway returns the length headers %j',
    (status, expected) => {
      expect(responseHeaders(['Content-Length', '4'], TOKEN, status)).toEqual(expected)
    },
  )

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
  ])('the gateway removes the header %s from a response', (name) => {
    expect(returned('A', '1', name, 'x')).toEqual(['A', '1'])
  })

  it('the gateway removes from a response all headers that its Connection header lists', () => {
    expect(returned('Connection', 'x-internal', 'X-Internal', '1', 'B', '2')).toEqual(['B', '2'])
  })

  it('the gateway removes a response header whose value contains the token', () => {
    expect(returned('X-Debug', `got Bearer ${TOKEN}!`, 'B', '2')).toEqual(['B', '2'])
  })
})

describe('headers that make a request ambiguous', () => {
  it.each([
    ['two Host headers', ['Host', 'a', 'hOST', 'b']],
    ['two Authorization headers', ['Authorization', 'a', 'authorization', 'b']],
    ['an Upgrade header', ['Host', 'a', 'Upgrade', 'websocket']],
  ])('the gateway rejects a request with %s', (_what, raw) => {
    expect(headerFault(raw)).not.toBeNull()
  })

  it('the gateway accepts the headers of an ordinary request', () => {
    expect(headerFault(['Host', 'a', 'Authorization', 'b', 'Accept', 'c'])).toBeNull()
  })

  it.each(['From', 'Accept-Ranges', 'Refresh'])(
    'the gateway accepts a repeated header of the length of one that it checks: %s',
    (name) => {
      expect(headerFault(['Host', 'a', 'Authorization', 'b', name, 'c', name, 'd'])).toBeNull()
    },
  )
})

describe('the Transfer-Encoding of a request to the gateway', () => {
  it.each([
    ['is absent', '1.1', []],
    ['is absent in HTTP/1.0', '1.0', []],
    ['is chunked', '1.1', ['Transfer-Encoding', 'chunked']],
    ['is chunked in another case', '1.1', ['TRANSFER-ENCODING', 'Chunked']],
  ])('the gateway accepts a request whose Transfer-Encoding %s', (_what, version, raw) => {
    expect(transferCodingFault(['Host', 'x', ...raw], version)).toBeNull()
  })

  it.each([
    ['gzip before chunked', ['Transfer-Encoding', 'gzip, chunked']],
    ['gzip alone', ['Transfer-Encoding', 'gzip']],
    ['identity', ['Transfer-Encoding', 'identity']],
    ['chunked with a parameter', ['Transfer-Encoding', 'chunked;q=1']],
    ['gzip in a header of its own', ['Transfer-Encoding', 'gzip', 'Transfer-Encoding', 'chunked']],
    ['an empty value', ['Transfer-Encoding', '']],
  ])('the gateway responds 501 to a request whose Transfer-Encoding is %s', (_what, raw) => {
    expect(transferCodingFault(raw, '1.1')).toMatchObject({ code: 'transfer_coding_unsupported' })
  })

  it('the gateway responds 400 to an HTTP/1.0 request that has a Transfer-Encoding header', () => {
    const raw = ['Transfer-Encoding', 'chunked']
    expect(transferCodingFault(raw, '1.0')).toMatchObject({ code: 'target_invalid' })
  })
})
