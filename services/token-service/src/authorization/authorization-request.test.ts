import { describe, expect, it } from 'vitest'
import { generateKeyRing, parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import {
  AUTHORIZATION_TTL_MS,
  type AuthorizationRequest,
  createAuthorization,
  createRequestSeal,
} from './authorization-request.ts'

const seal = createRequestSeal(parseKeyRing(generateKeyRing()))
let clock = 1_700_000_000_000
const kept = new Map<string, unknown>()
const open = (returnToOrigins: readonly string[] | null = null) =>
  createAuthorization({
    keys: { hasEnded: (keyId) => keyId === 'ended' },
    seal,
    authorizations: { keepLabels: async (state, labels) => void kept.set(state, labels) },
    provider: {
      usesPkce: async () => true,
      authorizationUrl: async ({ state }) => `https://provider.example/?state=${state}`,
      issuer: async () => ({ identifier: 'https://provider.example', isAlwaysSent: false }),
    },
    scope: 'openid',
    realmScopes: [],
    returnToOrigins,
    now: () => clock,
  })
const callback = (state: string, browser: string | null = 'cookie') => ({
  state,
  browser,
  code: 'code',
  realm: '1',
  error: null,
  issuer: null,
})
const wanted = { returnTo: null, realm: null, browser: 'cookie' }

describe('an authorization request', () => {
  it('an authorization request stores its label and tags under its state; without a label and tags, nothing is stored', async () => {
    const authorization = open()
    const empty = await authorization.start({ ...wanted, label: null, tags: {} })
    expect(kept.get(empty.state)).toBeUndefined()
    const labelled = await authorization.start({ ...wanted, label: 'Acme', tags: {} })
    expect(kept.get(labelled.state)).toStrictEqual({ label: 'Acme' })
    expect(authorization.requestOf(callback(labelled.state)).hasLabels).toBe(true)
    expect(labelled.state.length - empty.state.length).toBeLessThan(5)
  })

  it('an authorization of a connect link stores nothing, however often the link starts one, because the link has its label', async () => {
    const authorization = open()
    const { state } = await authorization.start({ ...wanted, label: 'Acme', linkId: 'link' })
    expect(kept.get(state)).toBeUndefined()
    expect(authorization.requestOf(callback(state))).toMatchObject({
      hasLabels: true,
      linkId: 'link',
    })
  })

  it('a callback is rejected if the key that started its authorization has ended', async () => {
    const authorization = open()
    const { state } = await authorization.start({ ...wanted, keyId: 'erp' })
    expect(authorization.requestOf(callback(state))).toMatchObject({ keyId: 'erp' })
    const ended = await authorization.start({ ...wanted, keyId: 'ended' })
    expect(() => authorization.requestOf(callback(ended.state))).toThrow('has ended')
  })

  it('an authorization request expires after ten minutes, and later callbacks with its state are rejected', async () => {
    const authorization = open()
    const { state, expiresAt } = await authorization.start(wanted)
    expect(expiresAt).toBe(clock + AUTHORIZATION_TTL_MS)
    clock += AUTHORIZATION_TTL_MS - 1
    expect(authorization.requestOf(callback(state))).toMatchObject({ expiresAt })
    clock += 1
    expect(() => authorization.requestOf(callback(state))).toThrow('the state has expired')
  })

  it('a callback is rejected if it comes from another browser than the authorization request', async () => {
    const authorization = open()
    const { state } = await authorization.start(wanted)
    for (const browser of [null, 'another cookie'])
      expect(() => authorization.requestOf(callback(state, browser))).toThrow('another browser')
  })

  it.each([
    'https://app.example.com',
    'https://app.example.com/',
    `https://app.example.com/${'x'.repeat(488)}`,
  ])('an authorization request accepts return_to %s of an allowed origin', async (returnTo) => {
    const authorization = open(['https://app.example.com'])
    const { state } = await authorization.start({ ...wanted, returnTo })
    expect(authorization.requestOf(callback(state)).returnTo).toBe(returnTo)
  })

  it.each([
    'blob:https://app.example.com/x',
    'https:app.example.com',
    'https:app.example.com/x',
    'https:/app.example.com/x',
    'https://app.example.com?x',
    'https://APP.example.com/',
    'https://app.example.com:443/',
    `https://app.example.com/${'x'.repeat(489)}`,
  ])(
    'an authorization request rejects return_to %s, which does not begin with an allowed origin or is too long',
    async (returnTo) => {
      const authorization = open(['https://app.example.com', 'null'])
      await expect(authorization.start({ ...wanted, returnTo })).rejects.toMatchObject({
        code: 'invalid_request',
      })
    },
  )
})

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
    const own = createRequestSeal(ring(fresh))
    const state = own.seal(smallest)
    for (let at = 0; at < state.length; at += 1) {
      const changed = state[at] === 'A' ? 'B' : 'A'
      expect(own.open(state.slice(0, at) + changed + state.slice(at + 1)), `${at}`).toBeNull()
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
      expect(own.open(other), other).toBeNull()
  })

  it('a state is rejected if it was encrypted with a key of CREDENTIAL_KEYS instead of the derived key', () => {
    const keys = ring(fresh)
    const place = { name: 'authorization', field: 'state', version: 1 }
    const text = JSON.stringify([smallest.expiresAt, 'n', null, null, null, null])
    expect(createRequestSeal(keys).open(keys.seal(text, place))).toBeNull()
  })
})
