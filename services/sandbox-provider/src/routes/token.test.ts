import { createHash } from 'node:crypto'
import { createRemoteJWKSet, jwtVerify } from 'jose'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  basic,
  CLIENT_ID,
  CLIENT_SECRET,
  type ProviderUnderTest,
  REALM,
  startProvider,
  type Tokens,
} from '../provider-under-test.ts'

let provider: ProviderUnderTest

beforeAll(async () => {
  provider = await startProvider()
})
beforeEach(async () => {
  await provider.sandbox('POST', 'reset')
})
afterAll(() => provider[Symbol.asyncDispose]())

const verified = (idToken: string) =>
  jwtVerify(idToken, createRemoteJWKSet(new URL(`${provider.url}/op/v1/jwks`)), {
    issuer: `${provider.url}/op/v1`,
    audience: CLIENT_ID,
    algorithms: ['RS256'],
  })

describe('the exchange of a code', () => {
  it('gives tokens and an id token that is really signed, for this client, request and realm', async () => {
    const code = await provider.code(REALM, { nonce: 'the nonce' })
    const answer = await provider.exchange(code)
    const tokens = (await answer.json()) as Tokens

    expect(answer.status).toBe(200)
    expect(answer.headers.get('Cache-Control')).toBe('no-store')
    expect(tokens).toEqual({
      token_type: 'bearer',
      access_token: expect.stringMatching(/^.{40,}$/),
      expires_in: 3_600,
      refresh_token: expect.stringMatching(/^.{40,}$/),
      x_refresh_token_expires_in: 8_640_000,
      id_token: expect.any(String),
    })
    const { payload } = await verified(tokens.id_token ?? '')
    expect(payload).toMatchObject({ nonce: 'the nonce', realmid: REALM, sub: expect.any(String) })
  })

  it('gives no id token when openid was not asked', async () => {
    const code = await provider.code(REALM, { scope: 'com.intuit.quickbooks.accounting' })
    expect(await (await provider.exchange(code)).json()).not.toHaveProperty('id_token')
  })

  it('tells the hard expiry to a client that asks for it', async () => {
    const form = {
      grant_type: 'refresh_token',
      refresh_token: (await provider.tokens()).refresh_token,
    }
    const answer = await provider.token(form, { 'x-include-refresh-token-hard-expires-in': 'true' })
    expect(await answer.json()).toMatchObject({ x_refresh_token_hard_expires_in: 157_680_000 })
  })

  it('takes a code once; a second use ends what the first one gave', async () => {
    const code = await provider.code()
    const tokens = (await (await provider.exchange(code)).json()) as Tokens
    const second = await provider.exchange(code)
    expect([second.status, await second.text()]).toEqual([400, '{"error":"invalid_grant"}'])
    expect((await provider.refresh(tokens.refresh_token)).status).toBe(400)
    const call = await provider.api(
      `/v3/company/${REALM}/companyinfo/${REALM}`,
      tokens.access_token,
    )
    expect(call.status).toBe(401)
  })

  it.each<[string, Record<string, string>]>([
    ['an unknown code', { code: 'guessed' }],
    ['another redirect URI', { redirect_uri: 'http://127.0.0.1:9/other' }],
    ['a verifier that was never announced', { code_verifier: 'v'.repeat(43) }],
  ])('refuses %s', async (_, form) => {
    const answer = await provider.exchange(await provider.code(), form)
    expect([answer.status, await answer.text()]).toEqual([400, '{"error":"invalid_grant"}'])
  })

  describe('that was announced with a challenge', () => {
    const verifier = 'a-verifier-of-forty-three-characters-or-more'
    const challenge = {
      code_challenge: createHash('sha256').update(verifier).digest('base64url'),
      code_challenge_method: 'S256',
    }

    it('takes the verifier', async () => {
      const code = await provider.code(REALM, challenge)
      expect((await provider.exchange(code, { code_verifier: verifier })).status).toBe(200)
    })

    it.each<[string, Record<string, string>]>([
      ['no verifier', {}],
      ['another verifier', { code_verifier: `${verifier}x` }],
      ['the challenge itself', { code_verifier: challenge.code_challenge }],
    ])('refuses %s', async (_, form) => {
      const answer = await provider.exchange(await provider.code(REALM, challenge), form)
      expect(await answer.json()).toEqual({ error: 'invalid_grant' })
    })
  })
})

describe('a refresh', () => {
  it('answers another refresh token and an id token of the same person, without nonce', async () => {
    const first = (await (
      await provider.exchange(await provider.code(REALM, { nonce: 'n' }))
    ).json()) as Tokens
    const second = (await (await provider.refresh(first.refresh_token)).json()) as Tokens

    expect(second.refresh_token).not.toBe(first.refresh_token)
    const [before, after] = await Promise.all(
      [first, second].map(({ id_token: token }) => verified(token ?? '')),
    )
    expect(after?.payload).toMatchObject({ sub: before?.payload.sub, realmid: REALM })
    expect(after?.payload).not.toHaveProperty('nonce')
  })

  it('answers a client that lost an answer the current token, within the grace and not after', async () => {
    await provider.sandbox('PUT', 'settings', { graceSeconds: 30 })
    const first = await provider.tokens()
    const lost = (await (await provider.refresh(first.refresh_token)).json()) as Tokens
    expect(await (await provider.refresh(first.refresh_token)).json()).toMatchObject({
      refresh_token: lost.refresh_token,
    })
    provider.moveTime(30_000)
    const late = await provider.refresh(first.refresh_token)
    expect([late.status, await late.text()]).toEqual([400, '{"error":"invalid_grant"}'])
  })

  it('counts how many of a realm are in hand at once', async () => {
    await provider.sandbox('PUT', 'settings', { latencyMs: 100 })
    const { refresh_token: token } = await provider.tokens()
    await Promise.all([provider.refresh(token), provider.refresh(token), provider.refresh(token)])
    await provider.refresh(token)
    expect((await provider.counters()).realms[REALM]).toMatchObject({
      refreshes: 4,
      maxConcurrentRefreshes: 3,
    })
  })
})

describe('client authentication', () => {
  const form = { grant_type: 'refresh_token', refresh_token: 'x' }

  it('decodes id and secret after splitting them (RFC 6749 §2.3.1)', async () => {
    const answer = await provider.token(form, { Authorization: basic(CLIENT_ID, CLIENT_SECRET) })
    expect(await answer.json()).toEqual({ error: 'invalid_grant' })
  })

  it.each<[string, string]>([
    ['nothing', ''],
    ['a wrong secret', basic(CLIENT_ID, 'wrong')],
    ['another client', basic('other', CLIENT_SECRET)],
    [
      'id and secret as they are',
      `Basic ${Buffer.from(`${CLIENT_ID}:${CLIENT_SECRET}`).toString('base64')}`,
    ],
    ['a bearer', `Bearer ${CLIENT_SECRET.slice(0, 4)}`],
    ['no base64', 'Basic !!!'],
    ['no colon', `Basic ${Buffer.from('app').toString('base64')}`],
    ['a broken escape', `Basic ${Buffer.from('app:%zz').toString('base64')}`],
  ])('by %s is refused with 401 and a challenge', async (_, header) => {
    const answer = await provider.token(form, { Authorization: header })
    expect(answer.status).toBe(401)
    expect(await answer.json()).toEqual({ error: 'invalid_client' })
    expect(answer.headers.get('WWW-Authenticate')).toMatch(/^Basic /)
    expect((await provider.counters()).clientsRefused).toBe(1)
  })
})

describe('a token call', () => {
  it.each<[string, Record<string, string>, string]>([
    ['without grant type', {}, 'invalid_request'],
    ['with another grant type', { grant_type: 'password' }, 'unsupported_grant_type'],
    ['without code', { grant_type: 'authorization_code' }, 'invalid_request'],
    ['without refresh token', { grant_type: 'refresh_token' }, 'invalid_request'],
    [
      'with an unknown refresh token',
      { grant_type: 'refresh_token', refresh_token: 'x' },
      'invalid_grant',
    ],
  ])('%s is answered 400', async (_, form, error) => {
    const answer = await provider.token(form)
    expect([answer.status, await answer.json()]).toEqual([400, { error }])
  })

  it.each([
    ['as JSON', 'application/json', '{"grant_type":"refresh_token"}'],
    [
      'with a parameter twice',
      'application/x-www-form-urlencoded',
      'grant_type=refresh_token&grant_type=refresh_token',
    ],
  ])('%s is answered 400', async (_, type, body) => {
    const answer = await fetch(`${provider.url}/oauth2/v1/tokens/bearer`, {
      method: 'POST',
      headers: { Authorization: basic(CLIENT_ID, CLIENT_SECRET), 'Content-Type': type },
      body,
    })
    expect([answer.status, await answer.json()]).toEqual([400, { error: 'invalid_request' }])
  })

  it('by GET is answered 405', async () => {
    const answer = await fetch(`${provider.url}/oauth2/v1/tokens/bearer`)
    expect([answer.status, answer.headers.get('Allow')]).toEqual([405, 'POST'])
  })
})

describe('revocation', () => {
  const revoke = (body: string, type: string, header = basic(CLIENT_ID, CLIENT_SECRET)) =>
    fetch(`${provider.url}/v2/oauth2/tokens/revoke`, {
      method: 'POST',
      headers: { Authorization: header, 'Content-Type': type },
      body,
    })
  const FORM = 'application/x-www-form-urlencoded'

  it.each<[string, (token: string) => [string, string]]>([
    ['JSON', (token) => [JSON.stringify({ token }), 'application/json; charset=utf-8']],
    ['a form', (token) => [`token=${token}`, FORM]],
  ])('by %s ends the grant', async (_, bodyOf) => {
    const tokens = await provider.tokens()
    expect((await revoke(...bodyOf(tokens.refresh_token))).status).toBe(200)
    expect((await provider.refresh(tokens.refresh_token)).status).toBe(400)
    const call = await provider.api(
      `/v3/company/${REALM}/companyinfo/${REALM}`,
      tokens.access_token,
    )
    expect(call.status).toBe(401)
    expect((await provider.counters()).realms[REALM]).toMatchObject({ revocations: 1 })
  })

  it.each([
    ['an unknown token', '{"token":"x"}', 'application/json'],
    ['broken JSON', '{"token"', 'application/json'],
    ['a token that is no text', '{"token":1}', 'application/json'],
    ['null', 'null', 'application/json'],
    ['nothing', '', FORM],
  ])('of %s is answered 400', async (_, body, type) => {
    expect((await revoke(body, type)).status).toBe(400)
  })

  it('needs the client', async () => {
    const { refresh_token: token } = await provider.tokens()
    const answer = await revoke(JSON.stringify({ token }), 'application/json', basic('x', 'y'))
    expect(answer.status).toBe(401)
    expect((await provider.refresh(token)).status).toBe(200)
  })
})

describe('userinfo', () => {
  const userinfo = (token: string) => provider.api('/v1/openid_connect/userinfo', token)

  it('names the person of the id token', async () => {
    const code = await provider.code(REALM, { scope: 'openid email' })
    const tokens = (await (await provider.exchange(code)).json()) as Tokens
    const { payload } = await verified(tokens.id_token ?? '')
    expect(await (await userinfo(tokens.access_token)).json()).toMatchObject({
      sub: payload.sub,
      email: expect.stringContaining('@'),
    })
  })

  it('is for access tokens with openid alone', async () => {
    const code = await provider.code(REALM, { scope: 'com.intuit.quickbooks.accounting' })
    const tokens = (await (await provider.exchange(code)).json()) as Tokens
    expect((await userinfo(tokens.access_token)).status).toBe(401)
    expect((await userinfo('guessed')).status).toBe(401)
  })
})

it('every answer carries an intuit_tid of its own', async () => {
  const answers = await Promise.all([
    fetch(`${provider.url}/.well-known/openid_configuration`),
    provider.token({}),
    provider.token({}, { Authorization: '' }),
    provider.api('/v3/company/1/query', 'x'),
    fetch(`${provider.url}/nowhere`),
  ])
  const ids = answers.map((answer) => answer.headers.get('intuit_tid'))
  expect(ids.filter((id) => /^1-[0-9a-f]{8}-[0-9a-f]{24}$/.test(id ?? ''))).toHaveLength(5)
  expect(new Set(ids).size).toBe(5)
})
