import { describe, expect, it } from 'vitest'
import { presentableBody } from './presentable-body.ts'

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
