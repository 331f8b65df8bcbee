import { createHash } from 'node:crypto'
import { createRemoteJWKSet, jwtVerify } from 'jose'
import { beforeEach, describe, expect, it } from 'vitest'
import {
  basic,
  CLIENT_ID,
  CLIENT_SECRET,
  REALM,
  type Tokens,
  useProvider,
} from '../../test-support/provider-fixture.ts'

const provider = useProvider()

const INVALID_CODE = { error: 'invalid_grant', error_description: 'Invalid authorization code' }
const INVALID_REFRESH_TOKEN = {
  error: 'invalid_grant',
  error_description: 'Incorrect or invalid refresh token',
}

const verified = (idToken: string) =>
  jwtVerify(idToken, createRemoteJWKSet(new URL(`${provider.url}/op/v1/jwks`)), {
    issuer: `${provider.url}/op/v1`,
    audience: CLIENT_ID,
    algorithms: ['RS256'],
  })

describe('authorization code exchange', () => {
  it('the token endpoint exchanges a code for tokens and a signed id token that names the client and the realm', async () => {
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
      x_refresh_token_expires_in: 8_726_400,
      id_token: expect.any(String),
    })
    const { payload, protectedHeader } = await verified(tokens.id_token ?? '')
    // As in Intuit's samples, the id token has no nonce, even if the authorization request had one, and its header has
    // no `typ`.
    expect(protectedHeader).toEqual({ alg: 'RS256', kid: expect.any(String) })
    expect(payload).toEqual({
      sub: expect.stringMatching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/),
      aud: [CLIENT_ID],
      realmid: REALM,
      auth_time: expect.any(Number),
      iss: `${provider.url}/op/v1`,
      exp: (payload.iat ?? 0) + 3_600,
      iat: expect.any(Number),
    })
  })

  it('with the personality strict, the id token repeats the nonce of the authorization request', async () => {
    await provider.sandbox('PUT', 'settings', { personality: 'strict', pkce: false })
    const code = await provider.code(REALM, { nonce: 'the nonce' })
    const { id_token: idToken } = (await (await provider.exchange(code)).json()) as Tokens
    expect((await verified(idToken ?? '')).payload).toMatchObject({ nonce: 'the nonce' })
  })

  it('the id token contains no realm if only the scope openid was requested', async () => {
    const code = await provider.code(REALM, { scope: 'openid' })
    const { id_token: idToken } = (await (await provider.exchange(code)).json()) as Tokens
    expect((await verified(idToken ?? '')).payload).not.toHaveProperty('realmid')
  })

  it('the token endpoint returns no id token if the scope openid was not requested', async () => {
    const code = await provider.code(REALM, { scope: 'com.intuit.quickbooks.accounting' })
    expect(await (await provider.exchange(code)).json()).not.toHaveProperty('id_token')
  })

  it('the token response contains x_refresh_token_hard_expires_in if a request header requests this member', async () => {
    const form = {
      grant_type: 'refresh_token',
      refresh_token: (await provider.tokens()).refresh_token,
    }
    const answer = await provider.token(form, { 'x-include-refresh-token-hard-expires-in': 'true' })
    expect(await answer.json()).toMatchObject({ x_refresh_token_hard_expires_in: 157_680_000 })
  })

  it('the token endpoint rejects the second use of a code and ends the grant that the first use created', async () => {
    const code = await provider.code()
    const tokens = (await (await provider.exchange(code)).json()) as Tokens
    const second = await provider.exchange(code)
    expect([second.status, await second.json()]).toEqual([400, INVALID_CODE])
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
  ])('the token endpoint rejects a code exchange with %s', async (_, form) => {
    const answer = await provider.exchange(await provider.code(), form)
    expect([answer.status, await answer.json()]).toEqual([400, INVALID_CODE])
  })

  describe('authorization code exchange with a code challenge (PKCE)', () => {
    const verifier = 'a-verifier-of-forty-three-characters-or-more'
    const challenge = {
      code_challenge: createHash('sha256').update(verifier).digest('base64url'),
      code_challenge_method: 'S256',
    }
    const bad: [string, Record<string, string>][] = [
      ['no code verifier', {}],
      ['another code verifier', { code_verifier: `${verifier}x` }],
      ['the code challenge in place of the verifier', { code_verifier: challenge.code_challenge }],
    ]

    it.each(['intuit', 'strict'])(
      'with the personality %s, the token endpoint accepts a code with the matching code verifier',
      async (personality) => {
        await provider.sandbox('PUT', 'settings', { personality })
        const code = await provider.code(REALM, challenge)
        expect((await provider.exchange(code, { code_verifier: verifier })).status).toBe(200)
      },
    )

    it.each(bad)(
      'with the personality strict, the token endpoint rejects a code exchange with %s',
      async (_, form) => {
        await provider.sandbox('PUT', 'settings', { personality: 'strict' })
        const answer = await provider.exchange(await provider.code(REALM, challenge), form)
        expect([answer.status, await answer.json()]).toEqual([400, INVALID_CODE])
      },
    )

    it.each(bad)(
      'with the personality intuit, the token endpoint ignores PKCE and accepts a code exchange with %s',
      async (_, form) => {
        const answer = await provider.exchange(await provider.code(REALM, challenge), form)
        expect(answer.status).toBe(200)
      },
    )
  })
})

describe('refresh at the token endpoint', () => {
  const DAY_MS = 86_400_000
  const refreshed = async (token: string) =>
    (await (await provider.refresh(token)).json()) as Tokens

  it('a refresh returns an id token with the same subject and without a nonce', async () => {
    await provider.sandbox('PUT', 'settings', { nonce: true })
    const code = await provider.code(REALM, { nonce: 'n' })
    const first = (await (await provider.exchange(code)).json()) as Tokens
    const second = await refreshed(first.refresh_token)
    const [before, after] = await Promise.all(
      [first, second].map(({ id_token: token }) => verified(token ?? '')),
    )
    expect(after?.payload).toMatchObject({ sub: before?.payload.sub, realmid: REALM })
    expect(after?.payload).not.toHaveProperty('nonce')
  })

  it('with the personality intuit, the sandbox rotates the refresh token after 24 hours and rejects the previous token', async () => {
    const first = await provider.tokens()
    provider.moveTime(DAY_MS - 1_000)
    const same = await refreshed(first.refresh_token)
    expect(same).toMatchObject({
      refresh_token: first.refresh_token,
      x_refresh_token_expires_in: 8_726_400 - 86_399,
    })
    expect(same.access_token).not.toBe(first.access_token)
    provider.moveTime(1_000)
    const next = await refreshed(first.refresh_token)
    expect(next).toMatchObject({ x_refresh_token_expires_in: 8_726_400 })
    expect(next.refresh_token).not.toBe(first.refresh_token)
    const late = await provider.refresh(first.refresh_token)
    expect([late.status, await late.json()]).toEqual([400, INVALID_REFRESH_TOKEN])
    expect((await provider.refresh(next.refresh_token)).status).toBe(200)
  })

  it('with the personality strict, every refresh rotates the refresh token, and a superseded refresh token ends the grant', async () => {
    await provider.sandbox('PUT', 'settings', { personality: 'strict', pkce: false })
    const first = await provider.tokens()
    const second = await refreshed(first.refresh_token)
    expect(second.refresh_token).not.toBe(first.refresh_token)
    expect((await provider.refresh(first.refresh_token)).status).toBe(400)
    expect((await provider.refresh(second.refresh_token)).status).toBe(400)
  })

  it('the token endpoint accepts the previous refresh token within the grace period and rejects it after the grace period', async () => {
    await provider.sandbox('PUT', 'settings', { rotation: 'always', graceSeconds: 30 })
    const first = await provider.tokens()
    const lost = await refreshed(first.refresh_token)
    expect(await refreshed(first.refresh_token)).toMatchObject({
      refresh_token: lost.refresh_token,
    })
    provider.moveTime(30_000)
    const late = await provider.refresh(first.refresh_token)
    expect([late.status, await late.json()]).toEqual([400, INVALID_REFRESH_TOKEN])
    expect((await provider.refresh(lost.refresh_token)).status).toBe(200)
  })

  it('the sandbox counts the refreshes of a realm, and the largest number of refreshes in flight at the same time', async () => {
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

describe('client authentication at the token endpoint', () => {
  const form = { grant_type: 'refresh_token', refresh_token: 'x' }

  it('the token endpoint splits Basic credentials at the colon before it form-decodes both parts (RFC 6749 §2.3.1)', async () => {
    const answer = await provider.token(form, { Authorization: basic(CLIENT_ID, CLIENT_SECRET) })
    expect(await answer.json()).toEqual(INVALID_REFRESH_TOKEN)
  })

  it.each<[string, string, number]>([
    ['intuit', CLIENT_SECRET, 400],
    ['intuit', 'wrong', 401],
    ['strict', CLIENT_SECRET, 401],
  ])(
    'with the personality %s, the token endpoint responds to the secret %s in the form (client_secret_post) with status %i',
    async (personality, client_secret, status) => {
      await provider.sandbox('PUT', 'settings', { personality })
      const response = await fetch(`${provider.url}/oauth2/v1/tokens/bearer`, {
        method: 'POST',
        body: new URLSearchParams({ ...form, client_id: CLIENT_ID, client_secret }),
      })
      expect([response.status, await response.json()]).toEqual([
        status,
        status === 400 ? INVALID_REFRESH_TOKEN : { error: 'invalid_client' },
      ])
    },
  )

  it.each<[string, string]>([
    ['an empty header', ''],
    ['a wrong secret', basic(CLIENT_ID, 'wrong')],
    ['another client id', basic('other', CLIENT_SECRET)],
    [
      'an id and secret that are not form-encoded',
      `Basic ${Buffer.from(`${CLIENT_ID}:${CLIENT_SECRET}`).toString('base64')}`,
    ],
    ['a bearer token', `Bearer ${CLIENT_SECRET.slice(0, 4)}`],
    ['Basic credentials that are not base64', 'Basic !!!'],
    ['Basic credentials without a colon', `Basic ${Buffer.from('app').toString('base64')}`],
    [
      'Basic credentials with an invalid percent-encoding',
      `Basic ${Buffer.from('app:%zz').toString('base64')}`,
    ],
  ])(
    'the token endpoint responds with 401 and a challenge to client authentication by %s',
    async (_, header) => {
      const answer = await provider.token(form, { Authorization: header })
      expect(answer.status).toBe(401)
      expect(await answer.json()).toEqual({ error: 'invalid_client' })
      expect(answer.headers.get('WWW-Authenticate')).toMatch(/^Basic /)
      expect((await provider.counters()).clientsRefused).toBe(1)
    },
  )
})

describe('validation of token requests', () => {
  it.each<[string, Record<string, string>, string]>([
    ['a token request without grant_type', {}, 'invalid_request'],
    [
      'a token request with an unsupported grant_type',
      { grant_type: 'password' },
      'unsupported_grant_type',
    ],
    ['a code exchange without code', { grant_type: 'authorization_code' }, 'invalid_request'],
    ['a refresh without refresh_token', { grant_type: 'refresh_token' }, 'invalid_request'],
  ])('the token endpoint responds with 400 to %s', async (_, form, error) => {
    const answer = await provider.token(form)
    expect([answer.status, await answer.json()]).toEqual([400, { error }])
  })

  it.each([
    ['a JSON body', 'application/json', '{"grant_type":"refresh_token"}'],
    [
      'a form with a repeated parameter',
      'application/x-www-form-urlencoded',
      'grant_type=refresh_token&grant_type=refresh_token',
    ],
  ])('the token endpoint rejects a token request with %s', async (_, type, body) => {
    const answer = await fetch(`${provider.url}/oauth2/v1/tokens/bearer`, {
      method: 'POST',
      headers: { Authorization: basic(CLIENT_ID, CLIENT_SECRET), 'Content-Type': type },
      body,
    })
    expect([answer.status, await answer.json()]).toEqual([400, { error: 'invalid_request' }])
  })

  it('the token endpoint responds with 405 to a GET request', async () => {
    const answer = await fetch(`${provider.url}/oauth2/v1/tokens/bearer`)
    expect([answer.status, answer.headers.get('Allow')]).toEqual([405, 'POST'])
  })
})

describe('the token revocation endpoint', () => {
  const revoke = (body: string, type: string, header = basic(CLIENT_ID, CLIENT_SECRET)) =>
    fetch(`${provider.url}/v2/oauth2/tokens/revoke`, {
      method: 'POST',
      headers: { Authorization: header, 'Content-Type': type },
      body,
    })
  const FORM = 'application/x-www-form-urlencoded'

  type BodyOf = (token: string) => readonly [body: string, type: string]
  const asJson: BodyOf = (token) => [JSON.stringify({ token }), 'application/json; charset=utf-8']
  const asForm: BodyOf = (token) => [`token=${token}`, FORM]
  const personalities: readonly {
    readonly personality: string
    readonly body: BodyOf
    readonly otherBody: BodyOf
    readonly ofInvalidToken: readonly [status: number, text: string]
  }[] = [
    { personality: 'intuit', body: asJson, otherBody: asForm, ofInvalidToken: [400, ''] },
    { personality: 'strict', body: asForm, otherBody: asJson, ofInvalidToken: [200, ''] },
  ]

  describe.each(personalities)(
    'token revocation with the personality $personality',
    ({ personality, ...expected }) => {
      beforeEach(() => provider.sandbox('PUT', 'settings', { personality, pkce: false }))

      it.each(['refresh_token', 'access_token'] as const)(
        'revoking the %s ends the grant',
        async (which) => {
          const tokens = await provider.tokens()
          expect((await revoke(...expected.body(tokens[which]))).status).toBe(200)
          expect((await provider.refresh(tokens.refresh_token)).status).toBe(400)
          const call = await provider.api(
            `/v3/company/${REALM}/companyinfo/${REALM}`,
            tokens.access_token,
          )
          expect(call.status).toBe(401)
          expect((await provider.counters()).realms[REALM]).toMatchObject({ revocations: 1 })
        },
      )

      it('the revocation endpoint rejects a body format that the imitated provider does not accept, and keeps the grant', async () => {
        const { refresh_token: token } = await provider.tokens()
        const response = await revoke(...expected.otherBody(token))
        expect([response.status, await response.json()]).toEqual([
          400,
          { error: 'invalid_request' },
        ])
        expect((await provider.refresh(token)).status).toBe(200)
      })

      it('the revocation endpoint responds to an invalid token like the imitated provider', async () => {
        const { refresh_token: token } = await provider.tokens()
        await revoke(...expected.body(token))
        for (const invalid of [token, 'unknown']) {
          const response = await revoke(...expected.body(invalid))
          expect([response.status, await response.text()]).toEqual(expected.ofInvalidToken)
        }
      })

      it.each([
        ['broken JSON', '{"token"', 'application/json'],
        ['a token that is not a text', '{"token":1}', 'application/json'],
        ['a JSON null', 'null', 'application/json'],
        ['an empty JSON body', '', 'application/json'],
        ['an empty form', '', FORM],
        ['a form with two tokens', 'token=a&token=b', FORM],
      ])(
        'the revocation endpoint responds with 400 to a revocation request with %s',
        async (_, body, type) => {
          expect((await revoke(body, type)).status).toBe(400)
        },
      )
    },
  )

  it('the revocation endpoint rejects a revocation without valid client authentication', async () => {
    const { refresh_token: token } = await provider.tokens()
    const answer = await revoke(JSON.stringify({ token }), 'application/json', basic('x', 'y'))
    expect(answer.status).toBe(401)
    expect((await provider.refresh(token)).status).toBe(200)
  })
})

describe('the userinfo endpoint', () => {
  const userinfo = (token: string) => provider.api('/v1/openid_connect/userinfo', token)

  it('the userinfo endpoint returns the subject of the id token', async () => {
    const code = await provider.code(REALM, { scope: 'openid email' })
    const tokens = (await (await provider.exchange(code)).json()) as Tokens
    const { payload } = await verified(tokens.id_token ?? '')
    expect(await (await userinfo(tokens.access_token)).json()).toMatchObject({
      sub: payload.sub,
      email: expect.stringContaining('@'),
    })
  })

  it('the userinfo endpoint rejects an access token without the scope openid', async () => {
    const code = await provider.code(REALM, { scope: 'com.intuit.quickbooks.accounting' })
    const tokens = (await (await provider.exchange(code)).json()) as Tokens
    expect((await userinfo(tokens.access_token)).status).toBe(401)
    expect((await userinfo('guessed')).status).toBe(401)
  })
})

it('every response of the sandbox provider has a unique intuit_tid header', async () => {
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
