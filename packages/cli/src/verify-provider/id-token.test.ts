import { generateKeyPairSync, sign } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { generic } from '@integration-host/shared/provider-profile/profiles'
import { intuit } from '@integration-host/shared/provider-profile/intuit'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import { expectationsOf } from './expectations.ts'
import { checkIdToken } from './id-token.ts'

const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2_048 })
const NOW = 1_800_000_000
const claims = {
  iss: 'https://issuer.example',
  sub: 'subject-canary-1',
  aud: ['client'],
  realmid: '9341453908059889',
  auth_time: NOW - 5,
  iat: NOW - 5,
  exp: NOW + 3_595,
}

const settings = {
  discoveryUrl: '',
  clientSecrets: [],
  redirect: '',
  scope: 'openid',
  accountingUrl: null,
  mayCreate: false,
  mayUseProduction: false,
}

const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')

function tokenOf(changes: object = {}, header: object = { kid: 'k', alg: 'RS256' }): string {
  const signed = `${encoded(header)}.${encoded({ ...claims, ...changes })}`
  return `${signed}.${sign('RSA-SHA256', Buffer.from(signed), privateKey).toString('base64url')}`
}

async function check(
  token: string,
  profile: ProviderProfile = intuit,
): Promise<Record<string, string>> {
  const session = {
    idToken: token,
    keys: new Map([['k', publicKey]]),
    document: { issuer: claims.iss, isNonceAnnounced: false },
    realm: claims.realmid,
    nonce: 'the nonce',
    settings: { ...settings, clientId: 'client', profile },
    expectations: expectationsOf(profile),
  }
  const lines = await Array.fromAsync(checkIdToken(session, NOW * 1_000))
  return Object.fromEntries(lines.map((line) => [line.check, `${line.verdict}: ${line.seen}`]))
}

describe('the checks of an id token', () => {
  it('the checks of the id token accept a token in the documented form, and print no claim value', async () => {
    const seen = await check(tokenOf())
    expect(Object.values(seen).every((text) => text.startsWith('as documented'))).toBe(true)
    expect(JSON.stringify(seen)).not.toMatch(/canary|9341453908059889/)
  })

  it.each([
    ['audience', { aud: 'client' }, 'differs: a string, equal'],
    ['audience', { aud: ['other'] }, 'failed: without this client id'],
    ['audience', { aud: ['client', 'other'] }, 'differs: an array with 2 entries'],
    ['issuer', { iss: 'https://other.example' }, 'failed: another issuer'],
    ['realm claim', { realmid: '1' }, 'failed: realmid names another company than the callback'],
    [
      'realm claim',
      { realmid: undefined },
      'as documented: missing; claims: aud, auth_time, exp, iat, iss, sub',
    ],
    [
      'realm claim',
      { realmid: undefined, realmId: claims.realmid },
      'as documented: realmId, equal to the realmId of the callback',
    ],
    ['auth_time', { auth_time: undefined }, 'differs: missing'],
    ['nonce', { nonce: 'the nonce' }, 'differs: repeated'],
    ['nonce', { nonce: 'another' }, 'failed: not the one that was sent'],
    ['id token times', { exp: NOW + 7_195 }, 'differs: valid for 7200 s, issued 5 s ago'],
    ['id token times', { exp: NOW - 500 }, /^failed: expired; /],
    ['id token times', { iat: NOW + 600, exp: NOW + 4_200 }, /^failed: .*compare the clocks$/],
    ['id token times', { exp: 'soon' }, 'failed: iat or exp is missing'],
  ])(
    'the check `%s` of the id token reports the expected verdict for a token with %j',
    async (name, changes, verdict) => {
      expect((await check(tokenOf(changes)))[name]).toMatch(verdict)
    },
  )

  it('the checks of the id token reject a token without a nonce if the provider must repeat the nonce', async () => {
    expect((await check(tokenOf(), generic))['nonce']).toBe('failed: missing')
    const repeated = await check(tokenOf({ nonce: 'the nonce' }), generic)
    expect(repeated['nonce']).toBe('as documented: repeated')
  })

  it('the checks of the id token verify the signature with the key whose kid is in the header of the token', async () => {
    const [head, , signature] = tokenOf().split('.')
    const forged = `${head}.${encoded({ ...claims, realmid: '1' })}.${signature}`
    expect((await check(forged))['signature']).toBe('failed: RS256, not valid')
    expect((await check(tokenOf({}, { kid: 'other', alg: 'RS256' })))['signature']).toBe(
      'failed: its kid is not in the key set',
    )
    expect((await check(tokenOf({}, { kid: 'k', alg: 'none' })))['signature']).toBe(
      'failed: another algorithm than RS256',
    )
    expect(await check('no.token')).toEqual({ signature: 'failed: not a JWT in compact form' })
  })
})
