import { describe, expect, it } from 'vitest'
import { Fault } from '@integration-host/shared/contracts/credential'
import { faultOf, isTerminal, presentableBody, RETRY_CAP_MS, retryDelayMs } from './fault.ts'

describe('a fault', () => {
  const at = Date.parse('2026-01-01T00:00:00.000Z')

  it('has the message of the seed, and says what to do', () => {
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
    })
    expect(Fault.parse(fault)).toEqual(fault)
    expect(isTerminal(fault)).toBe(true)
  })

  it('ends a grant only where a new one is needed', () => {
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

describe('a body that is shown', () => {
  it.each([
    '{"error":"invalid_grant"}',
    '{"error":"invalid_grant","error_description":"Incorrect or invalid refresh token"}',
    '<html><body>503 Service Unavailable</body></html>',
    'upstream connect error or disconnect/reset before headers. reset reason: connection termination',
    '',
  ])('stays as it came when it holds no token: %s', (body) => {
    expect(presentableBody(body, ['rt-secret'])).toBe(body)
  })

  it.each([
    ['the token that was sent', 'no such token: rt-canary+/='],
    ['it in a form', 'refresh_token=rt-canary%2B%2F%3D&x=1'],
    ['a token member', '{"access_token":"another-canary","token_type":"mac"}'],
    ['a member cut in the middle', '{"token_type":"bearer","refresh_token":"another-canar'],
    ['a member in a string', '{"detail":"{\\"id_token\\":\\"another-canary\\"}"}'],
    ['a JWT', 'bad eyJhbGciOiJub25lIn0.eyJzdWIiOiJjYW5hcnkifQ.Y2FuYXJ5'],
  ])('shows no token: %s', (_, body) => {
    const shown = presentableBody(body, ['rt-canary+/='])
    expect(shown).toContain('[redacted]')
    expect(shown).not.toMatch(/canar|Y2FuYXJ5/)
  })

  it('is bounded', () => {
    expect(presentableBody('x'.repeat(60_000), [])).toHaveLength(1_001)
  })
})

describe('the delay until the next try', () => {
  it('doubles with jitter up to a quarter of an hour', () => {
    expect([1, 2, 3, 4].map((attempts) => retryDelayMs(attempts, null, 0))).toEqual([
      1_000, 2_000, 4_000, 8_000,
    ])
    expect(retryDelayMs(1, null, 0.999)).toBeLessThan(2_000)
    expect(retryDelayMs(1_000, null, 0.999)).toBeLessThanOrEqual(RETRY_CAP_MS)
    expect(retryDelayMs(1_000, null, 0)).toBe(RETRY_CAP_MS / 2)
  })

  it('is never shorter than the provider asks, and bounded when it asks for years', () => {
    for (const random of [0, 0.5, 0.999]) {
      expect(retryDelayMs(1, 30_000, random)).toBeGreaterThanOrEqual(30_000)
      expect(retryDelayMs(1, 1e12, random)).toBeLessThan(RETRY_CAP_MS * 1.3)
    }
    expect(retryDelayMs(1, 0, 0)).toBe(0)
  })
})
