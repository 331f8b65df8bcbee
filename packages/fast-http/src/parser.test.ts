import { assert as holds, integer, property, uniqueArray } from 'fast-check'
import { describe, expect, it } from 'vitest'
import { HttpParser, type MessageReceiver } from './parser.ts'

const LONGEST_HEAD = 1_000

/**
 * Parses `bytes`, split into the given pieces. Returns everything that the parser reported; `null` if the bytes are not
 * valid HTTP.
 */
function parsed(
  type: 'request' | 'response',
  bytes: Buffer,
  ends: readonly number[] = [],
  maxHeadBytes = LONGEST_HEAD,
) {
  const messages: unknown[] = []
  let body = ''
  const receiver: MessageReceiver = {
    onMessageBegin: () => true,
    onHead({ status, target, headers, isUpgrade }) {
      messages.push({ status, target, headers, isUpgrade })
      return 'body'
    },
    onBody(part) {
      body += part.toString('latin1')
      return true
    },
    onMessageComplete(trailers, isReusable) {
      messages.push({ body, trailers: [...trailers], isReusable })
      body = ''
      return true
    },
  }
  const parser = new HttpParser(type, receiver, maxHeadBytes)
  let from = 0
  let isHttp = true
  for (const to of [...ends, bytes.length]) {
    isHttp &&= parser.read(bytes.subarray(from, to))
    from = to
  }
  const isWhole = isHttp && parser.finish()
  parser.free()
  return isHttp ? { messages, isWhole } : null
}

const RESPONSES = Buffer.from(
  'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n' +
    'HTTP/1.1 200 OK\r\nX-Empty:\r\nX-Spaced:  a b \t\r\nX-Latin: \xe9\r\nContent-Length: 5\r\n\r\nhello' +
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 9 \r\n\r\n' +
    'HTTP/1.1 200 OK\r\nServer: s\r\n\r\nto the end',
  'latin1',
)

describe('the HTTP/1.1 parser', () => {
  it('the HTTP parser reports heads, bodies and trailers, without the white space around header values', () => {
    expect(parsed('response', RESPONSES)).toEqual({
      isWhole: true,
      messages: [
        { status: 103, target: '', headers: ['Link', '</a>'], isUpgrade: false },
        { body: '', trailers: [], isReusable: true },
        {
          status: 200,
          target: '',
          headers: Object.entries({
            'X-Empty': '',
            'X-Spaced': 'a b',
            'X-Latin': '\xe9',
            'Content-Length': '5',
          }).flat(),
          isUpgrade: false,
        },
        { body: 'hello', trailers: [], isReusable: true },
        { status: 200, target: '', headers: ['Transfer-Encoding', 'chunked'], isUpgrade: false },
        { body: 'abcde', trailers: ['X-Sum', '9'], isReusable: true },
        { status: 200, target: '', headers: ['Server', 's'], isUpgrade: false },
        { body: 'to the end', trailers: [], isReusable: false },
      ],
    })
  })

  it('the HTTP parser reports the same messages regardless of how the received bytes are split', () => {
    const whole = parsed('response', RESPONSES)
    const cuts = uniqueArray(integer({ min: 0, max: RESPONSES.length }), { maxLength: 60 })
    holds(
      property(cuts, (ends) => {
        expect(
          parsed(
            'response',
            RESPONSES,
            ends.toSorted((a, b) => a - b),
          ),
        ).toEqual(whole)
      }),
      { seed: 1, numRuns: 500 },
    )
  })

  it('the HTTP parser removes the white space after a value within linear time', () => {
    // Removal in quadratic time would need minutes for a head of this size, which is larger than any that is accepted.
    const value = `a${'\t'.repeat(1_000_000)}b`
    const read = parsed(
      'request',
      Buffer.from(`GET / HTTP/1.1\r\nX: ${value} \t\r\n\r\n`),
      [],
      2_000_000,
    )
    expect(read?.messages[0]).toMatchObject({ headers: ['X', value] })
  })

  it('the HTTP parser parses a chunk that is larger than the memory window of the parser', () => {
    const length = 200_000
    const head = `HTTP/1.1 200 OK\r\nContent-Length: ${length}\r\n\r\n`
    const read = parsed('response', Buffer.from(head + 'x'.repeat(length)))
    expect(read?.messages.at(-1)).toMatchObject({ body: 'x'.repeat(length) })
  })

  it('the HTTP parser reports a message as incomplete if the connection ends before the end of the message', () => {
    const cut = Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel')
    expect(parsed('response', cut)?.isWhole).toBe(false)
  })

  it.each([
    ['a bare line feed', 'HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n'],
    ['a folded header', 'HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n'],
    ['a control character in a value', 'HTTP/1.1 200 OK\r\nA: b\x01c\r\n\r\n'],
    ['a carriage return in a value', 'HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n'],
    ['a NUL in a value', 'HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n'],
    ['a space before the colon', 'HTTP/1.1 200 OK\r\nA : b\r\n\r\n'],
    [
      'two Content-Length headers',
      'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na',
    ],
    ['a Content-Length that is not a number', 'HTTP/1.1 200 OK\r\nContent-Length: 1a\r\n\r\na'],
    [
      'a chunk size that is not a number',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n',
    ],
    ['the protocol ICY in place of HTTP', 'ICY 200 OK\r\n\r\n'],
    ['a header beyond the size limit', `HTTP/1.1 200 OK\r\nA: ${'b'.repeat(LONGEST_HEAD)}\r\n\r\n`],
    [
      'many headers that together exceed the size limit',
      `HTTP/1.1 200 OK\r\n${'A: b\r\n'.repeat(600)}\r\n`,
    ],
  ])('the HTTP parser rejects a response with %s', (_what, bytes) => {
    expect(parsed('response', Buffer.from(bytes, 'latin1'))).toBeNull()
  })

  it('the HTTP parser rejects a request with both Content-Length and Transfer-Encoding', () => {
    const bytes =
      'POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'
    expect(parsed('request', Buffer.from(bytes))).toBeNull()
  })

  it('after a reset within a message or after an error, the HTTP parser parses a new message', () => {
    const heads: string[] = []
    const parser = new HttpParser(
      'request',
      {
        onMessageBegin: () => true,
        onHead: ({ target }) => (heads.push(target), 'body'),
        onBody: () => true,
        onMessageComplete: () => true,
      },
      LONGEST_HEAD,
    )
    expect(parser.read(Buffer.from('GET /half HTTP/1.1\r\nHos'))).toBe(true)
    parser.reset()
    expect(parser.read(Buffer.from('GET /whole HTTP/1.1\r\nHost: a\r\n\r\n'))).toBe(true)
    expect(parser.read(Buffer.from('no HTTP\r\n\r\n'))).toBe(false)
    parser.reset()
    expect(parser.read(Buffer.from('GET /next HTTP/1.1\r\nHost: a\r\n\r\n'))).toBe(true)
    expect(heads).toEqual(['/whole', '/next'])
    parser.free()
  })
})
