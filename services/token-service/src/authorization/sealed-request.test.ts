import { describe, expect, it } from 'vitest'
import { generateKeyRing, parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { type AuthorizationRequest, createRequestSeal } from './sealed-request.ts'

const entry = (id: string) => generateKeyRing().reveal().replace('k1', id)
const ring = (...entries: string[]) => parseKeyRing(new Secret(entries.join(',')))
const [old, fresh] = [entry('old'), entry('fresh')]
const smallest: AuthorizationRequest = {
  expiresAt: 1_700_000_000_000,
  nonce: 'n'.repeat(43),
  codeVerifier: null,
  realm: null,
  returnTo: null,
  browser: null,
  hasLabels: false,
  isByVisitor: false,
  linkId: null,
  keyId: null,
}
const largest: AuthorizationRequest = {
  expiresAt: 1_700_000_000_000,
  nonce: 'n'.repeat(43),
  codeVerifier: 'v'.repeat(43),
  realm: '9'.repeat(64),
  returnTo: `https://app.example.com/${'x'.repeat(488)}`,
  browser: 'b'.repeat(43),
  hasLabels: true,
  isByVisitor: true,
  linkId: 'l'.repeat(43),
  keyId: 'a'.repeat(31),
}

describe('a sealed authorization request', () => {
  it.each([
    ['smallest', smallest, 167],
    ['largest', largest, 1_140],
  ])(
    'another replica decrypts the state of the %s authorization request, and the state is not longer than expected',
    (_, request, size) => {
      const state = createRequestSeal(ring(fresh)).seal(request)
      expect(createRequestSeal(ring(fresh)).open(state)).toEqual(request)
      expect(state).toMatch(/^[\w.-]+$/)
      expect(state.length).toBeLessThanOrEqual(size)
    },
  )

  it('a state is decrypted after a key rotation only while the key ring still has the old key', () => {
    const state = createRequestSeal(ring(old)).seal(largest)
    expect(createRequestSeal(ring(fresh, old)).open(state)).toEqual(largest)
    expect(createRequestSeal(ring(fresh)).open(state)).toBeNull()
  })

  it('the state contains the nonce and the PKCE verifier only in encrypted form', () => {
    const state = createRequestSeal(ring(fresh)).seal(largest)
    const text = state
      .split('.')
      .map((part) => Buffer.from(part, 'base64url').toString('latin1'))
      .join(' ')
    expect(`${state} ${text}`).not.toMatch(/nnnn|vvvv/)
  })

  it('a state is rejected if a character was changed or its base64url encoding is not canonical', () => {
    const seal = createRequestSeal(ring(fresh))
    const state = seal.seal(smallest)
    for (let at = 0; at < state.length; at += 1) {
      const changed = state[at] === 'A' ? 'B' : 'A'
      expect(seal.open(state.slice(0, at) + changed + state.slice(at + 1)), `${at}`).toBeNull()
    }
    for (const other of [
      `${state}A`,
      `${state}=`,
      ` ${state}`,
      `${state}.`,
      '',
      '...',
      '1.fresh..',
    ])
      expect(seal.open(other), other).toBeNull()
  })

  it('a state is rejected if it was encrypted with a key of CREDENTIAL_KEYS instead of the derived key', () => {
    const keys = ring(fresh)
    const place = { name: 'authorization', field: 'state', version: 1 }
    const text = JSON.stringify([smallest.expiresAt, 'n', null, null, null, null])
    expect(createRequestSeal(keys).open(keys.seal(text, place))).toBeNull()
  })
})
