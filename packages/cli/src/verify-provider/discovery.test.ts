import { generateKeyPairSync } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { generic } from '@integration-host/shared/provider-profile/profiles'
import { intuit } from '@integration-host/shared/provider-profile/intuit'
import { compareDocument, isProviderHost, readKeys, usableDocument } from './discovery.ts'
import { expectationsOf } from './expectations.ts'

const expectations = expectationsOf(intuit)
const URL_OF_DOCUMENT = 'https://developer.api.intuit.com/.well-known/openid_sandbox_configuration'
const document = {
  issuer: 'https://oauth.platform.intuit.com/op/v1',
  authorization_endpoint: 'https://appcenter.intuit.com/connect/oauth2',
  token_endpoint: 'https://oauth.platform.intuit.com/oauth2/v1/tokens/bearer',
  userinfo_endpoint: 'https://sandbox-accounts.platform.intuit.com/v1/openid_connect/userinfo',
  revocation_endpoint: 'https://developer.api.intuit.com/v2/oauth2/tokens/revoke',
  jwks_uri: 'https://oauth.platform.intuit.com/op/v1/jwks',
  response_types_supported: ['code'],
  subject_types_supported: ['public'],
  id_token_signing_alg_values_supported: ['RS256'],
  scopes_supported: ['openid', 'email', 'profile', 'address', 'phone'],
  token_endpoint_auth_methods_supported: ['client_secret_post', 'client_secret_basic'],
  claims_supported: ['aud', 'exp', 'iat', 'iss', 'realmid', 'sub'],
}
const { revocation_endpoint: _, ...withoutRevocation } = document

describe('comparison of a discovery document with the documentation', () => {
  it('the comparison of a discovery document with the documentation ignores the order of list members', () => {
    expect(compareDocument(document, expectations, false)).toEqual([])
    const claims_supported = document.claims_supported.toReversed()
    expect(compareDocument({ ...document, claims_supported }, expectations, false)).toEqual([])
  })

  it.each([
    ['a missing member', withoutRevocation, 'missing: revocation_endpoint'],
    [
      'an endpoint at another address',
      { ...document, jwks_uri: 'https://elsewhere.example/op/v1/jwks?secret' },
      'other value: jwks_uri (https://elsewhere.example/op/v1/jwks)',
    ],
    [
      'a list with one more value',
      { ...document, subject_types_supported: ['public', 'pairwise'] },
      'other value: subject_types_supported (pairwise, public)',
    ],
    [
      'a member of another type',
      { ...document, scopes_supported: 'openid' },
      'other value: scopes_supported ((not an address))',
    ],
    [
      'an undocumented member',
      { ...document, code_challenge_methods_supported: ['S256'] },
      'extra: code_challenge_methods_supported',
    ],
  ])(
    'the comparison of a discovery document with the documentation reports %s',
    (_name, changed, difference) => {
      expect(compareDocument(changed, expectations, false)).toEqual([difference])
    },
  )

  it('the comparison with the documentation considers only the paths of endpoints if the server is a substitute for the provider', () => {
    const fake = Object.fromEntries(
      Object.entries(document).map(([name, value]) => [
        name,
        typeof value === 'string' ? `http://127.0.0.1:7220${new URL(value).pathname}` : value,
      ]),
    )
    expect(compareDocument(fake, expectations, true)).toEqual([])
    expect(compareDocument(fake, expectations, false)).toHaveLength(1)
    expect(isProviderHost(URL_OF_DOCUMENT, expectations)).toBe(true)
    expect(isProviderHost('http://127.0.0.1:7220/x', expectations)).toBe(false)
  })

  it('the comparison of a discovery document from an unknown provider requires only the members that OpenID Connect Discovery requires', () => {
    const wanted = expectationsOf(generic)
    expect(compareDocument({ ...document, anything: 'else' }, wanted, false)).toEqual([])
    expect(compareDocument({ ...document, jwks_uri: undefined }, wanted, false)).toEqual([
      'missing: jwks_uri',
    ])
  })
})

describe('validation of a discovery document', () => {
  it('the validation rejects a discovery document without an issuer, authorization endpoint or token endpoint', () => {
    expect(usableDocument(document, URL_OF_DOCUMENT)).toMatchObject({ issuer: document.issuer })
    expect(usableDocument(null, URL_OF_DOCUMENT)).toEqual({ unusable: 'not a JSON object' })
    expect(usableDocument({ ...document, token_endpoint: 'nowhere' }, URL_OF_DOCUMENT)).toEqual({
      unusable: 'no usable token_endpoint',
    })
  })

  it('the validation rejects an http token endpoint in a discovery document that was received over https', () => {
    const changed = { ...document, token_endpoint: 'http://oauth.platform.intuit.com/x' }
    expect(usableDocument(changed, URL_OF_DOCUMENT)).toEqual({
      unusable: 'no usable token_endpoint',
    })
    expect(usableDocument(changed, 'http://127.0.0.1:7220/x')).toMatchObject({
      token_endpoint: changed.token_endpoint,
    })
  })
})

describe('parsing of a key set', () => {
  const jwk = generateKeyPairSync('rsa', { modulusLength: 2_048 }).publicKey.export({
    format: 'jwk',
  })

  it('parsing a key set returns the RSA keys that have a kid, and counts the other keys', () => {
    const keys = [
      { ...jwk, kid: 'a' },
      jwk,
      { kty: 'EC', kid: 'b' },
      { kty: 'RSA', kid: 'c', n: 7 },
    ]
    const read = readKeys({ keys })
    expect([[...(read?.keys.keys() ?? [])], read?.others]).toEqual([['a'], 3])
  })

  it('parsing a document that is not a key set returns null', () => {
    expect([readKeys(null), readKeys({}), readKeys({ keys: {} })]).toEqual([null, null, null])
  })
})
