import { Secret } from '@integration-host/shared/secrets/secret'
import { describe, expect, it } from 'vitest'
import { signatureOf } from '../../test-support/notifications.ts'
import { isSignedBy } from './accept-delivery.ts'

const [old, current] = ['old-verifier-token-1', 'new-verifier-token-2']
const tokens = [new Secret(current), new Secret(old)]
const body = Buffer.from('{"eventNotifications":[]}')

describe('the signature of a webhook', () => {
  it('the signature of a webhook is valid if it was made with any of the configured tokens', () => {
    expect(isSignedBy(tokens, body, signatureOf(body, old))).toBe(true)
    expect(isSignedBy(tokens, body, signatureOf(body, current))).toBe(true)
  })

  it('the signature of a webhook is invalid if it was made with a token that is not configured', () => {
    expect(isSignedBy(tokens, body, signatureOf(body, 'another-verifier-token'))).toBe(false)
  })

  it('the signature of a webhook is invalid if one byte of the body was changed', () => {
    const altered = Buffer.from(body)
    altered[5] = (altered[5] ?? 0) ^ 1
    expect(isSignedBy(tokens, altered, signatureOf(body, current))).toBe(false)
  })

  const valid = signatureOf(body, current)
  it.each([
    ['', 'empty'],
    [valid.slice(0, -1), 'one character shorter'],
    [`${valid}=`, 'one character longer'],
    [`${valid}, ${valid}`, 'doubled'],
    [valid.toLowerCase(), 'in lower case'],
    [valid.replaceAll('+', '-').replaceAll('/', '_').replace('=', ''), 'in base64url'],
    [` ${valid}`, 'preceded by a space'],
    ['x'.repeat(16_000), '16,000 characters long'],
    ['ü'.repeat(44), 'not ASCII'],
  ])('the signature of a webhook is invalid if it is %2$s', (signature) => {
    expect(isSignedBy(tokens, body, signature)).toBe(false)
  })
})
