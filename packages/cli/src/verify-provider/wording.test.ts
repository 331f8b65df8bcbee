import { describe, expect, it } from 'vitest'
import { intuit } from '@integration-host/shared/provider-profile/intuit'
import type { ProviderResponse } from './provider-call.ts'
import { address, createRedaction, described, errorCode, maskedRealm, names } from './wording.ts'

const response = (status: number, text: string): ProviderResponse => {
  let json: ProviderResponse['json'] = null
  try {
    json = JSON.parse(text) as ProviderResponse['json']
  } catch {
    // The body is not JSON, so `json` stays null.
  }
  return { status, headers: new Headers(), text, json }
}

describe('the descriptions of responses in the verify-provider report', () => {
  it.each([
    [400, '{"error":"invalid_grant","error_description":"secret-1"}', '400 invalid_grant, JSON'],
    [400, '{"error":"Secret 1"}', '400 (an error code not shown), JSON'],
    [400, '', '400, empty body'],
    [502, '<!DOCTYPE html><p>secret-1', '502, HTML'],
    [500, 'secret-1', '500, neither JSON nor XML'],
    [
      401,
      '{"fault":{"error":[{"code":"003200","detail":"secret-1"}]}}',
      '401, JSON with fault, code 3200',
    ],
    [400, '{"Fault":{"Error":[{"code":"610"}]}}', '400, JSON with Fault, code 610'],
    [429, '<IntuitResponse><Fault><Error code="3001">secret-1', '429, XML, code 3001'],
  ])(
    'the verify-provider report describes the response %i %s by its status, format and error code',
    (status, text, shown) => {
      expect(described(response(status, text), intuit)).toBe(shown)
    },
  )

  it('the verify-provider report shows the name of a response member only if the name looks like an identifier', () => {
    expect(names(['sub', 'iss', 'sub'])).toBe('iss, sub')
    expect(names(['x_refresh_token_expires_in', 'RS256', 'openid'])).not.toContain('not shown')
    expect(names(['9341453908059889'])).toBe('(a name not shown)')
    expect(names(['realmId', 'com.intuit.quickbooks.accounting', 'x-retry-after'])).not.toContain(
      'not shown',
    )
    const others = ['two words', '\u001b[2J', 'iWKuToIvEZNp', 'canary-iWKutoIveZNp', '']
    expect(names(others)).toBe('(a name not shown)')
    expect(errorCode('access_denied')).toBe('access_denied')
    expect(errorCode(17)).toBeNull()
  })

  it('the verify-provider report contains addresses without user and query, and only the last three digits of a realm id', () => {
    expect(address('https://user:secret@host.example/a?code=secret#x')).toBe(
      'https://host.example/a',
    )
    expect(address('secret')).toBe('(not an address)')
    expect(maskedRealm('9341453908059889')).toBe('…889')
    expect(maskedRealm('889')).toBe('…')
  })

  it('the redaction of the verify-provider report replaces known secrets, the longest first', () => {
    const redaction = createRedaction()
    redaction.add('secret-1', 'secret-1-longer', null, 'a')
    expect(redaction.hide('a secret-1-longer secret-1')).toBe('a [hidden] [hidden]')
  })
})
