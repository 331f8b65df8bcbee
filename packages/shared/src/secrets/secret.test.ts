import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { createLogger, describeError, scrub } from '../observability/logger.ts'
import { Secret } from './secret.ts'

const TOKEN = 'AT-canary-7f3a9c51d2e84b06'

/** Everything that a logger wrote. */
function logged(write: (logger: ReturnType<typeof createLogger>) => void): string {
  const lines: string[] = []
  write(createLogger('test', 'trace', { write: (line: string) => void lines.push(line) }))
  return lines.join('')
}

describe('a secret', () => {
  it('is shown by reveal only', () => {
    const value = new Secret(TOKEN)
    const shown = [
      String(value),
      JSON.stringify({ value }),
      inspect({ value }, { depth: 9 }),
      logged((logger) => logger.info({ value, deep: { list: [value] } }, 'm')),
    ]
    expect(shown.join()).not.toContain(TOKEN)
    expect(value.reveal()).toBe(TOKEN)
  })

  it('equals only the same text, whatever the length', () => {
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
      'a header message that quotes the bearer',
      new TypeError(`Invalid header value "Bearer ${TOKEN}"`),
    ],
    [
      'a JSON error that quotes the body',
      new SyntaxError(`Unexpected token, "{"access_token":"${TOKEN}"" is not valid JSON`),
    ],
    [
      'an address with a password',
      new Error(`connect failed redis://user:${TOKEN}@localhost:6379`),
    ],
    [
      'arguments of the failed command',
      Object.assign(new Error('NOAUTH'), { command: { name: 'auth', args: [TOKEN] } }),
    ],
    ['a secret in the cause', new Error('outer', { cause: new Error(TOKEN) })],
  ])('leaves out %s', (_, error) => {
    const output = logged((logger) => logger.error({ err: error }, 'failed'))
    expect(output).not.toContain(TOKEN)
    expect(output).toContain(error.name)
  })

  it('keeps class, code, stack frames and messages of our own errors', () => {
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

  it('scrubs a base64 token of any alphabet', () => {
    expect(scrub('x eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.sig_nature== y')).toBe('x [redacted] y')
  })

  it('writes one parseable line whatever the text holds', () => {
    const output = logged((logger) =>
      logger.info({ number: 'a\n{"level":"fatal"}\u001b[31m' }, 'queued'),
    )
    expect(output.trimEnd().split('\n')).toHaveLength(1)
    expect(JSON.parse(output)).toMatchObject({ level: 'info', msg: 'queued', service: 'test' })
  })
})
