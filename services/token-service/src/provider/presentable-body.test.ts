import { describe, expect, it } from 'vitest'
import { decode, presentableBody, redactSecrets, spansOf } from './presentable-body.ts'

describe('presentableBody(): the redacted body of a provider response', () => {
  it.each([
    '{"error":"invalid_grant"}',
    '{"error":"invalid_grant","error_description":"Incorrect or invalid refresh token"}',
    '<html><body>503 Service Unavailable</body></html>',
    'upstream connect error or disconnect/reset before headers. reset reason: connection termination',
    '{"Fault":{"Error":[{"Message":"message=AuthenticationFailed","code":"3200"}],"type":"AUTHENTICATION"}}',
    '{"error":"invalid_access_token","error_code":"E-17","hint":"see https://developer.example/docs/oauth-2.0/refreshing-the-access-token"}',
    'Basic authentication is required',
    'request 0f8fad5b-d9cb-469f-a165-70867728950e of 4bf92f3577b34da6a3ce929d0e0e4736 failed',
    '',
  ])('presentableBody() returns a body without a token unchanged: %s', (body) => {
    expect(presentableBody(body, ['rt-secret'])).toBe(body)
  })

  const sent = 'rt-canary+/=-0123456789-abcdefghijklmnop'
  const issued = 'at-issued-canary-9876543210-zyxwvutsrqpon'
  const encoded = (encoding: 'base64' | 'base64url' | 'hex', before: string) =>
    Buffer.from(`${before}${sent}&x=1`).toString(encoding)

  it.each([
    ['the token that was sent', `no such token: ${sent}`],
    ['the token that was sent, in a form', `refresh_token=${encodeURIComponent(sent)}&x=1`],
    ['the token that was sent, in base64', encoded('base64', '')],
    ['the token that was sent, within longer base64', encoded('base64', 'refresh_token=')],
    ['the token that was sent, within longer base64url', encoded('base64url', '?refresh_token=')],
    ['the token that was sent, in hex', encoded('hex', '')],
    [
      'client credentials in an echoed header',
      `Authorization: Basic ${btoa(`client:canary-secret`)}`,
    ],
    ['a short bearer token in an echoed header', 'authorization: bearer canary-0123456789'],
    ['a member access_token', '{"access_token":"another-canary","token_type":"mac"}'],
    ['a member accessToken', '{"accessToken":"another-canary"}'],
    [
      'a member refresh_token in truncated JSON',
      '{"token_type":"bearer","refresh_token":"another-canar',
    ],
    [
      'a member id_token in JSON within a string',
      '{"detail":"{\\"id_token\\":\\"another-canary\\"}"}',
    ],
    [
      'an XML element refresh_token',
      '<r><refresh_token type="x">another-canary</refresh_token></r>',
    ],
    ['an issued token in a member of another name', `{"token":{"value":"${issued}"}}`],
    ['an issued token within a sentence', `could not save ${issued} for you`],
    ['a JSON web token', 'bad eyJhbGciOiJub25lIn0.eyJzdWIiOiJjYW5hcnkifQ.Y2FuYXJ5'],
  ])('presentableBody() redacts %s', (_, body) => {
    const shown = presentableBody(body, [sent])
    expect(shown).toContain('[redacted]')
    const canary = /canar|Y2FuYXJ5|63616e617279/
    expect(shown).not.toMatch(canary)
    // Additionally, no part of the output may decode to the token.
    for (const run of shown.match(/[\w+/-]{8,}/g) ?? [])
      for (const skipped of [0, 1, 2, 3])
        expect(Buffer.from(run.slice(skipped), 'base64').toString('latin1')).not.toMatch(canary)
  })

  it('presentableBody() truncates a body to 1,000 characters', () => {
    expect(presentableBody('an error '.repeat(7_000), [])).toHaveLength(1_001)
    expect(presentableBody('x'.repeat(60_000), []).length).toBeLessThanOrEqual(1_001)
  })

  it.each([
    '<access_token',
    '"access_token"  ',
    'Bearer ',
    'eyJ',
    'refresh_token=',
    `${'x'.repeat(39)} `,
  ])('presentableBody() takes linear time for a body of 1 MiB that repeats %j', (part) => {
    // With quadratic cost, this input would take a minute.
    const body = part.repeat(1_048_576 / part.length)
    expect(presentableBody(body, [sent]).length).toBeLessThanOrEqual(1_001)
  })
})

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
