import { describe, expect, it } from 'vitest'
import { Fault } from '@integration-host/shared/contracts/credential'
import {
  faultOf,
  isGrantRejected,
  isProvisional,
  isTerminal,
  presentableBody,
  RETRY_CAP_MS,
  retryDelayMs,
} from './fault.ts'

describe('a fault', () => {
  const at = Date.parse('2026-01-01T00:00:00.000Z')

  it('has the documented message and a remedy', () => {
    const fault = faultOf(
      'ACC-12',
      'invalid_grant',
      { body: '{"error":"invalid_grant"}', traceId: 'tid-1' },
      { at, attempts: 2 },
    )
    expect(fault).toEqual({
      Code: 'invalid_grant',
      Message: `Couldn't refresh token for realm ACC-12, {"error":"invalid_grant"}`,
      At: '2026-01-01T00:00:00.000Z',
      Attempts: 2,
      TraceId: 'tid-1',
      Remedy: expect.stringContaining('Reconnect'),
      Final: true,
    })
    expect(Fault.parse(fault)).toEqual(fault)
    expect(isTerminal(fault)).toBe(true)
  })

  it('is provisional and has NextTryAt if the rejected refresh token will be tried again', () => {
    const fault = faultOf(
      'ACC-12',
      'invalid_grant',
      { body: '{"error":"invalid_grant"}', traceId: null },
      { at, attempts: 1, rejections: 1, retryAt: at + 300_000 },
    )
    expect(fault).toMatchObject({
      Message: `Couldn't refresh token for realm ACC-12, {"error":"invalid_grant"}`,
      Final: false,
      Rejections: 1,
      NextTryAt: '2026-01-01T00:05:00.000Z',
      Remedy: expect.stringContaining('tried again at NextTryAt'),
    })
    expect(Fault.parse(fault)).toEqual(fault)
    expect([isTerminal(fault), isProvisional(fault), isGrantRejected(fault)]).toEqual([
      false,
      true,
      true,
    ])
  })

  it('is final for a rejected grant if it was stored without the member Final', () => {
    const { Final: _, ...stored } = faultOf(
      'ACC-1',
      'invalid_grant',
      { body: '', traceId: null },
      { at, attempts: 1 },
    )
    expect([isTerminal(stored), isProvisional(stored)]).toEqual([true, false])
  })

  it('is terminal only in the classes that need a new authorization', () => {
    const of = (
      code: 'provider_unavailable' | 'provider_rejected' | 'rotation_lost' | 'no_refresh_token',
    ) => isTerminal(faultOf('ACC-1', code, { body: '', traceId: null }, { at, attempts: 1 }))
    expect([
      of('rotation_lost'),
      of('no_refresh_token'),
      of('provider_unavailable'),
      of('provider_rejected'),
    ]).toEqual([true, true, false, false])
    expect(isTerminal(null)).toBe(false)
  })
})

describe('presentableBody', () => {
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
  ])('returns a body without a token unchanged: %s', (body) => {
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
  ])('redacts %s', (_, body) => {
    const shown = presentableBody(body, [sent])
    expect(shown).toContain('[redacted]')
    const canary = /canar|Y2FuYXJ5|63616e617279/
    expect(shown).not.toMatch(canary)
    // No part of the output may decode to the token either.
    for (const run of shown.match(/[\w+/-]{8,}/g) ?? [])
      for (const skipped of [0, 1, 2, 3])
        expect(Buffer.from(run.slice(skipped), 'base64').toString('latin1')).not.toMatch(canary)
  })

  it('truncates a body to 1,000 characters', () => {
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
  ])('needs linear time for a megabyte of %j', (part) => {
    // With a cost that grows with the square of the length, this takes a minute.
    const body = part.repeat(1_048_576 / part.length)
    expect(presentableBody(body, [sent]).length).toBeLessThanOrEqual(1_001)
  })
})

describe('retryDelayMs', () => {
  it('doubles with each attempt, with jitter, up to a quarter of an hour', () => {
    expect([1, 2, 3, 4].map((attempts) => retryDelayMs(attempts, null, 0))).toEqual([
      1_000, 2_000, 4_000, 8_000,
    ])
    expect(retryDelayMs(1, null, 0.999)).toBeLessThan(2_000)
    expect(retryDelayMs(1_000, null, 0.999)).toBeLessThanOrEqual(RETRY_CAP_MS)
    expect(retryDelayMs(1_000, null, 0)).toBe(RETRY_CAP_MS / 2)
  })

  it('is never shorter than Retry-After, and is bounded if Retry-After is years', () => {
    for (const random of [0, 0.5, 0.999]) {
      expect(retryDelayMs(1, 30_000, random)).toBeGreaterThanOrEqual(30_000)
      expect(retryDelayMs(1, 1e12, random)).toBeLessThan(RETRY_CAP_MS * 1.3)
    }
    expect(retryDelayMs(1, 0, 0)).toBe(0)
  })
})
