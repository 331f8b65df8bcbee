import { describe, expect, it } from 'vitest'
import { decode, redactSecrets, spansOf } from './redact-secrets.ts'

const secret = 'rt+canary/=&"<%41>-0123456789'
const each = (escape: (code: number, character: string) => string): string =>
  Array.from(secret, (character) => escape(character.charCodeAt(0), character)).join('')
const hex = (code: number, width = 2): string => code.toString(16).padStart(width, '0')

describe('redactSecrets(): the removal of secrets from a text', () => {
  it.each([
    ['in plain text', secret],
    ['as a JSON string', JSON.stringify(secret)],
    ['as a JSON string within a JSON string', JSON.stringify(JSON.stringify(secret))],
    ['in a form', encodeURIComponent(secret)],
    ['in a form that was encoded twice', encodeURIComponent(encodeURIComponent(secret))],
    ['with JSON escapes for each character', each((code) => `\\u${hex(code, 4)}`)],
    ['with percent escapes for each character', each((code) => `%${hex(code).toUpperCase()}`)],
    ['with hexadecimal entities', each((code) => `&#x00${hex(code)};`)],
    ['with decimal entities', each((code) => `&#0${code};`)],
    [
      'with named entities',
      secret.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;'),
    ],
    ['with a backslash before each punctuation mark', secret.replace(/[^\w]/g, '\\$&')],
  ])('redactSecrets() redacts a secret %s, and keeps the text around it', (_, spelled) => {
    expect(redactSecrets(`before ${spelled} after %41`, ['x', secret])).toMatch(
      /^before "?(\\")?\[redacted\](\\")?"? after %41$/,
    )
  })

  it('redactSecrets() redacts every occurrence of several secrets', () => {
    expect(redactSecrets('one two one%20two', ['one', 'two'])).toBe(
      '[redacted] [redacted] [redacted]%20[redacted]',
    )
  })

  it('redactSecrets() redacts the percent-encoded UTF-8 of a secret that is not ASCII', () => {
    expect(redactSecrets('x=%C3%BCn%C3%AFc&y', ['ünïc'])).toBe('x=[redacted]&y')
  })

  it('redactSecrets() redacts a truncated secret of which at least the first 32 characters are left', () => {
    const long = 'abcdefgh'.repeat(10)
    expect(redactSecrets(`echo ${long.slice(0, 50)}`, [long])).toBe('echo [redacted]')
  })

  it('redactSecrets() does not change a text without the secret, even if the text contains escapes', () => {
    const text = 'a%20b &amp; \\u0041 \\" 100% & &#x; &#99999999;'
    expect(redactSecrets(text, [secret, ''])).toBe(text)
    expect(redactSecrets(text, [])).toBe(text)
  })
})

describe('the time that redactSecrets() takes', () => {
  const code = '&'.repeat(2_048)
  const echoes = [
    ['the code without its last character', code.slice(1)],
    ['three truncated codes with entities', `${'&#x26;'.repeat(2_047)} `.repeat(3)],
    ['percent escapes that were encoded many times', `%${'25'.repeat(20_000)}26`],
    ['a megabyte of the code', '&'.repeat(1_048_576)],
  ] as const

  it.each(echoes)(
    'redactSecrets() decodes a text at most 4 times and searches each position once: %s',
    (_, echo) => {
      const decoded = decode(echo)
      expect(decoded.rounds).toBeLessThanOrEqual(4)
      expect(decoded.text.length).toBeLessThanOrEqual(echo.length)
      expect(decoded.offsets).toHaveLength(decoded.text.length + 1)
      // Each span has at least 32 characters and begins after the end of the previous one, so the search never moves
      // backwards.
      let from = 0
      for (const { start, end } of spansOf(decoded.text, code)) {
        expect(start).toBeGreaterThanOrEqual(from)
        expect(end - start).toBeGreaterThanOrEqual(32)
        from = end
      }
      expect(redactSecrets(echo, [code])).not.toMatch(/(?:&(?!#)){32}|(?:&#x26;){32}/)
    },
  )
})
