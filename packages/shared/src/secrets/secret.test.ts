import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { createLogger, describeError, scrub } from '../observability/logger.ts'
import { Secret } from './secret.ts'

const TOKEN = 'AT-canary-7f3a9c51d2e84b06'

/** Returns everything that a logger wrote during `write`. */
function logged(write: (logger: ReturnType<typeof createLogger>) => void): string {
  const lines: string[] = []
  write(createLogger('test', 'trace', { write: (line: string) => void lines.push(line) }))
  return lines.join('')
}

describe('a wrapped secret', () => {
  it('a wrapped secret is revealed by reveal() only, and never printed or serialised', () => {
    const value = new Secret(TOKEN)
    const shown = [
      String(value),
      JSON.stringify({ value }),
      inspect({ value }, { depth: 9 }),
      logged((logger) => logger.info({ value, deep: { list: [value] } }, 'secret received')),
    ]
    expect(shown.join()).not.toContain(TOKEN)
    expect(value.reveal()).toBe(TOKEN)
  })

  it('a wrapped secret equals only the same text, and can be compared with a text of another length', () => {
    const value = new Secret(TOKEN)
    expect([
      value.equals(TOKEN),
      value.equals(`${TOKEN}x`),
      value.equals(''),
      value.equals(TOKEN.toLowerCase()),
    ]).toEqual([true, false, false, false])
  })
})

describe('logging an error', () => {
  it.each([
    [
      'a bearer token in an error about a header',
      new TypeError(`Invalid header value "Bearer ${TOKEN}"`),
    ],
    [
      'a token in a JSON parse error that quotes the body',
      new SyntaxError(`Unexpected token, "{"access_token":"${TOKEN}"" is not valid JSON`),
    ],
    ['the password in a URL', new Error(`connect failed redis://user:${TOKEN}@localhost:6379`)],
    [
      'the arguments of a failed Redis command',
      Object.assign(new Error('NOAUTH'), { command: { name: 'auth', args: [TOKEN] } }),
    ],
    ['a token in the cause of an error', new Error('outer', { cause: new Error(TOKEN) })],
  ])('the logger removes %s from the log', (_, error) => {
    const output = logged((logger) => logger.error({ err: error }, 'request failed'))
    expect(output).not.toContain(TOKEN)
    expect(output).toContain(error.name)
  })

  it('the logger keeps class, code, message and stack frames of an error, and removes secrets', () => {
    const refused = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:6379'), {
      code: 'ECONNREFUSED',
    })
    expect(describeError(refused)).toMatchObject({
      type: 'Error',
      code: 'ECONNREFUSED',
      message: 'connect ECONNREFUSED 127.0.0.1:6379',
      stack: expect.stringContaining('secret.test.ts'),
    })
  })

  it('the logger redacts a base64url token with padding', () => {
    expect(scrub('x eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.sig_nature== y')).toBe('x [redacted] y')
  })

  it('the logger writes one parseable line for a message with line breaks and escape sequences', () => {
    const output = logged((logger) =>
      logger.info({ number: 'a\n{"level":"fatal"}\u001b[31m' }, 'transaction queued'),
    )
    expect(output.trimEnd().split('\n')).toHaveLength(1)
    expect(JSON.parse(output)).toMatchObject({
      level: 'info',
      msg: 'transaction queued',
      service: 'test',
    })
  })
})
