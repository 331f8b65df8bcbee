import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createHealth } from '@integration-host/shared/health'
import { Secret } from '@integration-host/shared/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import {
  CLIENT_ID,
  CLIENT_SECRET,
  type Scripted,
  type ScriptedProvider,
  startScriptedProvider,
} from '../../../test-support/scripted-provider.ts'
import { silent } from '../../../test-support/service-fixture.ts'
import type { Provider, TokenOutcome, TokenSet } from '../../provider/provider.ts'
import { type Discovery, watchDiscovery } from './discovery.ts'
import { createOpenIdProvider } from './provider.ts'
import { retryAfter } from './token-answer.ts'

const REDIRECT = 'http://127.0.0.1:7217/callback'

let scripted: ScriptedProvider
let discovery: Discovery
let provider: Provider
let idTokensRefused: number

beforeEach(async () => {
  scripted = await startScriptedProvider()
  open()
})
afterEach(async () => {
  await discovery[Symbol.asyncDispose]()
  await scripted[Symbol.asyncDispose]()
})

function open(secrets: readonly string[] = [CLIENT_SECRET], deadlineMs = 2_000): void {
  idTokensRefused = 0
  discovery = watchDiscovery(
    new URL(scripted.discoveryUrl),
    createHealth(silent).dependency('provider'),
  )
  provider = createOpenIdProvider({
    discovery,
    clientId: CLIENT_ID,
    clientSecrets: secrets.map((secret) => new Secret(secret)),
    redirectUri: REDIRECT,
    scope: 'openid com.intuit.quickbooks.accounting',
    now: Date.now,
    deadlineMs,
    onIdTokenRefused: () => (idTokensRefused += 1),
  })
}
async function reopen(secrets?: readonly string[], deadlineMs?: number): Promise<void> {
  await discovery[Symbol.asyncDispose]()
  open(secrets, deadlineMs)
}

/** A grant through the authorize URL, as a browser would get it. */
async function authorize(): Promise<TokenOutcome> {
  const codeVerifier = new Secret('v'.repeat(43))
  const { url, usesPkce } = await provider.authorizationUrl({
    state: 's',
    nonce: 'n',
    codeVerifier,
  })
  const code = new Secret(scripted.authorize(new URL(url)))
  return provider.exchangeCode({ code, codeVerifier: usesPkce ? codeVerifier : null, nonce: 'n' })
}
async function granted(): Promise<TokenSet> {
  const outcome = await authorize()
  if (outcome.kind !== 'granted') throw new Error(outcome.kind)
  return outcome.tokens
}
const refreshWith = async (...steps: Scripted[]): Promise<TokenOutcome> => {
  const { refreshToken } = await granted()
  scripted.script(...steps)
  return provider.refresh(refreshToken as Secret)
}

describe('the provider over HTTP', () => {
  it('exchanges a code with Basic authentication and exactly the form parameters of the seed', async () => {
    const tokens = await granted()
    expect(tokens.lifetimeSeconds).toBe(3600)
    const [request] = scripted.requests
    expect(Buffer.from(request?.authorization.slice(6) ?? '', 'base64').toString()).toBe(
      `${encodeURIComponent(CLIENT_ID).replace('-', '%2D')}:${encodeURIComponent(CLIENT_SECRET).replaceAll('-', '%2D')}`,
    )
    expect(request?.form.get('grant_type')).toBe('authorization_code')
    expect(request?.form.get('redirect_uri')).toBe(REDIRECT)
    expect([...(request?.form.keys() ?? [])].toSorted()).toEqual([
      'code',
      'code_verifier',
      'grant_type',
      'redirect_uri',
    ])
  })

  it('refreshes with Basic authentication and exactly the form parameters of the seed', async () => {
    const outcome = await refreshWith()
    expect(outcome.kind).toBe('granted')
    const request = scripted.requests[1]
    expect(request?.authorization).toMatch(/^Basic /)
    expect([...(request?.form.keys() ?? [])].toSorted()).toEqual([
      'grant_type',
      'redirect_uri',
      'refresh_token',
    ])
    expect(request?.form.get('redirect_uri')).toBe(REDIRECT)
    expect(idTokensRefused).toBe(0)
  })

  it('asks for a code without a challenge where the provider offers no S256', async () => {
    scripted.knobs.pkce = false
    await reopen()
    const { url, usesPkce } = await provider.authorizationUrl({
      state: 's',
      nonce: 'n',
      codeVerifier: new Secret('v'.repeat(43)),
    })
    expect(usesPkce).toBe(false)
    expect(Object.fromEntries(new URL(url).searchParams)).toEqual({
      client_id: CLIENT_ID,
      response_type: 'code',
      scope: 'openid com.intuit.quickbooks.accounting',
      redirect_uri: REDIRECT,
      state: 's',
      nonce: 'n',
    })
    expect((await authorize()).kind).toBe('granted')
  })

  it('takes a code that another application asked for, whatever nonce it used', async () => {
    const at = new URL('http://x/?nonce=of-the-application')
    const code = new Secret(scripted.authorize(at))
    expect((await provider.exchangeCode({ code, codeVerifier: null, nonce: null })).kind).toBe(
      'granted',
    )
  })

  it.each([':%+/= secret', 'ünïcödé', 'a&b=c#d?e', '-_.~!*()'])(
    'sends a secret that holds %s so that it arrives',
    async (secret) => {
      scripted.knobs.secrets = [secret]
      await reopen([secret])
      expect((await authorize()).kind).toBe('granted')
    },
  )

  it('gives all client secrets one time together: a stranger waits no longer for them', async () => {
    await reopen(['wrong', 'wrong as well'], 400)
    scripted.knobs.secrets = ['another']
    scripted.knobs.latencyMs = 300
    // The first is refused in time, the second could not be.
    expect(await provider.refresh(new Secret('any'))).toMatchObject({ kind: 'unknown' })
  })

  it('tries the client secrets in order, and the one that works first from then on', async () => {
    await reopen(['the-new-secret', CLIENT_SECRET])
    const { refreshToken } = await granted()
    expect(scripted.requests).toHaveLength(2)
    expect((await provider.refresh(refreshToken as Secret)).kind).toBe('granted')
    expect(scripted.requests).toHaveLength(3)
  })

  it('revokes by RFC 7009, and says whether it was confirmed', async () => {
    const { refreshToken } = await granted()
    expect(await provider.revoke(refreshToken as Secret)).toBe(true)
    expect(Object.fromEntries(scripted.revocations[0] ?? [])).toEqual({
      token: refreshToken?.reveal(),
      token_type_hint: 'refresh_token',
    })
    scripted.knobs.revocationStatus = 503
    expect(await provider.revoke(refreshToken as Secret)).toBe(false)
  })
})

const html = '<html><body>Sign in</body></html>'
const grant = {
  access_token: 'at-x',
  token_type: 'bearer',
  expires_in: 3600,
  refresh_token: 'rt-x',
}
const body = (value: unknown): Scripted => ({
  body: typeof value === 'string' || Buffer.isBuffer(value) ? value : JSON.stringify(value),
})
const grantText = JSON.stringify(grant)
const revealing = (value: string): unknown =>
  expect.toSatisfy((secret: Secret) => secret.reveal() === value)
const members = (value: Record<string, unknown>): Scripted => ({ members: value })
const later = new Date(Date.now() + 90_000).toUTCString()

/** Rows P-01 to P-22 of the catalogue: what a token endpoint may answer, and what it means. */
const answers: readonly (readonly [string, Scripted, Record<string, unknown>])[] = [
  [
    'P-01 a login page with 200',
    { body: html, headers: { 'Content-Type': 'text/html' } },
    { kind: 'unknown', status: 200, body: html },
  ],
  ['P-02 nothing', body(''), { kind: 'unknown' }],
  ['P-02 null', body('null'), { kind: 'unknown' }],
  ['P-02 a list', body('[]'), { kind: 'unknown' }],
  ['P-02 a text', body('"x"'), { kind: 'unknown' }],
  ['P-02 a number', body('0'), { kind: 'unknown' }],
  [
    'P-03 JSON cut in the middle',
    body('{"access_token":"at-secr'),
    { kind: 'unknown', body: '{"access_token":"[redacted]' },
  ],
  [
    'P-01 an XML fault with 200',
    { body: '<Fault type="SERVICE"/>', headers: { 'Content-Type': 'application/xml' } },
    { kind: 'unknown', status: 200 },
  ],
  ['P-02 an object without members', body('{}'), { kind: 'unknown' }],
  ['P-02 a token response in a list', body([grant]), { kind: 'unknown' }],
  ['P-02 two token responses', body(grantText + grantText), { kind: 'unknown' }],
  [
    'P-02 a token response that is a form',
    body('access_token=at-x&token_type=bearer'),
    {
      kind: 'unknown',
    },
  ],
  ...[201, 204, 206].map((status): readonly [string, Scripted, Record<string, unknown>] => [
    `P-02 tokens with ${status}`,
    { status, body: status === 204 ? '' : grantText },
    { kind: 'unknown', status },
  ]),
  [
    'P-03 a length that is too short',
    { body: grantText, headers: { 'Content-Length': '40' } },
    {
      kind: 'unknown',
    },
  ],
  [
    'P-03 a length that is too long',
    { body: grantText, headers: { 'Content-Length': '4000' }, latencyMs: 0 },
    { kind: 'unknown', status: null },
  ],
  ['P-03 a connection cut in the body', { cuts: 'within' }, { kind: 'unknown', status: null }],
  [
    'P-03 a connection cut before the answer',
    { cuts: 'before' },
    { kind: 'unknown', status: null },
  ],
  ['P-04 no access token', members({ access_token: undefined }), { kind: 'unknown' }],
  ['P-04 an empty access token', members({ access_token: '' }), { kind: 'unknown' }],
  ['P-04 a number for an access token', members({ access_token: 7 }), { kind: 'unknown' }],
  [
    'P-04 an access token with a line end',
    members({ access_token: 'a\r\nX-Injected: 1' }),
    { kind: 'unknown' },
  ],
  ...['at x', 'at\u0000x', 'at-é', '\t', null, {}, ['at-x'], true].map(
    (value): readonly [string, Scripted, Record<string, unknown>] => [
      `P-04 the access token ${JSON.stringify(value)}`,
      members({ access_token: value }),
      { kind: 'unknown' },
    ],
  ),
  [
    'P-04 an access token of 1 MB',
    members({ access_token: 'a'.repeat(1_000_000) }),
    { kind: 'unknown', status: null },
  ],
  ['P-04 tokens of a prototype', body(`{"__proto__":${grantText}}`), { kind: 'unknown' }],
  [
    'P-04 an access token of 40 kB',
    members({ access_token: 'a'.repeat(40_000) }),
    { kind: 'unknown' },
  ],
  [
    'P-05 invalid_grant with 200',
    body({ error: 'invalid_grant' }),
    { kind: 'refused', error: 'invalid_grant', body: '{"error":"invalid_grant"}' },
  ],
  [
    'P-05 invalid_grant with 200 beside tokens',
    body({ ...grant, error: 'invalid_grant' }),
    { kind: 'refused', error: 'invalid_grant' },
  ],
  ['P-05 an error that is no text', body({ ...grant, error: 5 }), { kind: 'unknown' }],
  [
    'P-06 a refresh token with a line end',
    members({ refresh_token: 'r\r\nX-Injected: 1' }),
    { kind: 'unknown' },
  ],
  ['P-06 a list for a refresh token', members({ refresh_token: ['rt-x'] }), { kind: 'unknown' }],
  [
    'P-06 no refresh token',
    members({ refresh_token: undefined }),
    { kind: 'granted', tokens: expect.objectContaining({ refreshToken: null }) },
  ],
  [
    'P-06 an empty refresh token',
    members({ refresh_token: '' }),
    { kind: 'granted', tokens: expect.objectContaining({ refreshToken: null }) },
  ],
  ['a number for a refresh token', members({ refresh_token: 7 }), { kind: 'unknown' }],
  ['P-07 no token type', members({ token_type: undefined }), { kind: 'unknown' }],
  ['P-07 the token type mac', members({ token_type: 'mac' }), { kind: 'unknown' }],
  ['P-07 the token type BEARER', members({ token_type: 'BEARER' }), { kind: 'granted' }],
  [
    'P-08 expires_in as text',
    members({ expires_in: '1800' }),
    { kind: 'granted', tokens: expect.objectContaining({ lifetimeSeconds: 1800 }) },
  ],
  ...[-1, 0, '', 'abc', '-1', '1e3', '0x10', null, {}, [3600], true, undefined].map(
    (value): readonly [string, Scripted, Record<string, unknown>] => [
      `P-09 expires_in ${JSON.stringify(value)}`,
      members({ expires_in: value }),
      { kind: 'granted', tokens: expect.objectContaining({ lifetimeSeconds: 3000 }) },
    ],
  ),
  [
    'P-10 expires_in 1e309',
    body(JSON.stringify(grant).replace('3600', '1e309')),
    { kind: 'granted', tokens: expect.objectContaining({ lifetimeSeconds: 86_400 }) },
  ],
  ...['NaN', 'Infinity', '-Infinity', '+3600', '03600'].map(
    (literal): readonly [string, Scripted, Record<string, unknown>] => [
      `P-10 expires_in ${literal}, which is no JSON`,
      body(grantText.replace('3600', literal)),
      { kind: 'unknown' },
    ],
  ),
  ...[9e15, 1e12, 1e10, '1000000000000'].map(
    (value): readonly [string, Scripted, Record<string, unknown>] => [
      `P-10 expires_in ${JSON.stringify(value)}`,
      members({ expires_in: value }),
      { kind: 'granted', tokens: expect.objectContaining({ lifetimeSeconds: 86_400 }) },
    ],
  ),
  [
    'P-10 expires_in 3600.5',
    members({ expires_in: 3600.5 }),
    { kind: 'granted', tokens: expect.objectContaining({ lifetimeSeconds: 3600.5 }) },
  ],
  [
    'P-11 a refresh token said to be past',
    members({ x_refresh_token_expires_in: -5 }),
    { kind: 'granted' },
  ],
  [
    'P-12 invalid_grant',
    { status: 400, body: '{"error":"invalid_grant"}' },
    {
      kind: 'refused',
      error: 'invalid_grant',
      status: 400,
      body: '{"error":"invalid_grant"}',
      traceId: 'trace-1-0123456789',
    },
  ],
  [
    'P-12 invalid_grant with 401',
    { status: 401, body: '{"error":"invalid_grant"}' },
    { kind: 'refused', error: 'invalid_grant' },
  ],
  [
    'P-13 invalid_client',
    { status: 400, body: '{"error":"invalid_client"}' },
    { kind: 'client_refused' },
  ],
  [
    'P-13 a bare 401 with a challenge',
    { status: 401, body: '', headers: { 'WWW-Authenticate': 'Basic realm="x"' } },
    { kind: 'client_refused' },
  ],
  [
    'P-14 invalid_scope',
    { status: 400, body: '{"error":"invalid_scope"}' },
    { kind: 'refused', error: 'invalid_scope' },
  ],
  ...['unauthorized_client', 'unsupported_grant_type', 'something_of_tomorrow'].map(
    (error): readonly [string, Scripted, Record<string, unknown>] => [
      `P-14 ${error}`,
      { status: 400, ...body({ error }) },
      { kind: 'refused', error },
    ],
  ),
  [
    'P-14 a description with markup and line ends',
    { status: 400, body: '{"error":"invalid_scope","error_description":"<script>\\r\\nX: 1"}' },
    {
      kind: 'refused',
      error: 'invalid_scope',
      body: '{"error":"invalid_scope","error_description":"<script>\\r\\nX: 1"}',
    },
  ],
  [
    'P-14 an XML fault with 400',
    { status: 400, body: '<Fault type="AUTHENTICATION"/>' },
    { kind: 'refused', error: 'http_400', body: '<Fault type="AUTHENTICATION"/>' },
  ],
  [
    'P-14 a trace id that is no header value of ours',
    { status: 400, body: '{"error":"x"}', headers: { intuit_tid: 't'.repeat(200) } },
    { kind: 'refused', traceId: null },
  ],
  [
    'P-14 an error code with a quote',
    { status: 400, body: '{"error":"a\\"b\\r\\n"}' },
    { kind: 'refused', error: 'http_400' },
  ],
  ['P-14 a 404 page', { status: 404, body: html }, { kind: 'refused', error: 'http_404' }],
  [
    'P-15 429 with seconds',
    { status: 429, body: '', headers: { 'Retry-After': '30' } },
    { kind: 'throttled', retryAfterMs: 30_000 },
  ],
  [
    'P-16 429 with a date',
    { status: 429, body: '', headers: { 'Retry-After': later } },
    { kind: 'throttled', retryAfterMs: expect.any(Number) },
  ],
  [
    'P-17 429 with nonsense',
    { status: 429, body: '', headers: { 'Retry-After': 'soon' } },
    { kind: 'throttled', retryAfterMs: null },
  ],
  [
    'P-17 429 with an XML fault',
    { status: 429, body: '<Fault type="SERVICE"/>' },
    { kind: 'throttled', retryAfterMs: null },
  ],
  ['P-18 503', { status: 503, body: 'down' }, { kind: 'unknown', status: 503, body: 'down' }],
  [
    'P-18 503 with Retry-After',
    { status: 503, body: '', headers: { 'Retry-After': '7' } },
    { kind: 'throttled', retryAfterMs: 7_000 },
  ],
  [
    'P-19 429 with a date in the past',
    { status: 429, body: '', headers: { 'Retry-After': 'Tue, 01 Jan 2019 00:00:00 GMT' } },
    { kind: 'throttled', retryAfterMs: 0 },
  ],
  ['P-15 429 without a time', { status: 429, body: '' }, { kind: 'throttled', retryAfterMs: null }],
  ...[408, 425, 502, 504, 599].map(
    (status): readonly [string, Scripted, Record<string, unknown>] => [
      `P-18 ${status}`,
      { status, body: 'try again' },
      { kind: 'unknown', status, body: 'try again' },
    ],
  ),
  ['a 500', { status: 500, body: '{"error":"server_error"}' }, { kind: 'unknown', status: 500 }],
  [
    'P-20 a redirect',
    { status: 307, body: '', headers: { Location: 'http://127.0.0.1:1/evil' } },
    { kind: 'unknown', status: 307 },
  ],
  [
    'P-21 no answer in time',
    { latencyMs: 5_000 },
    { kind: 'unknown', status: null, body: 'no answer (deadline)' },
  ],
  [
    'P-22 10 MB',
    body(JSON.stringify({ ...grant, pad: 'x'.repeat(10_000_000) })),
    { kind: 'unknown', body: 'no answer (the answer is too large)' },
  ],
  [
    'P-22 a gzip bomb, which nobody asked for',
    { body: gzipSync(Buffer.alloc(40_000_000, 'x')), headers: { 'Content-Encoding': 'gzip' } },
    { kind: 'unknown', status: 200 },
  ],
  [
    'P-22 tokens behind a hundred encodings',
    {
      body: gzipSync(grantText),
      headers: { 'Content-Encoding': Array(100).fill('gzip').join(', ') },
    },
    { kind: 'unknown', status: 200 },
  ],
  [
    'P-22 30,000 levels',
    body(grantText.replace('}', `,"x":${'['.repeat(30_000)}${']'.repeat(30_000)}}`)),
    { kind: 'granted' },
  ],
  ['P-22 30,000 levels that never end', body('['.repeat(60_000)), { kind: 'unknown' }],
  [
    'another content type',
    { body: grantText, headers: { 'Content-Type': 'text/plain' } },
    { kind: 'granted' },
  ],
  [
    'a charset that it is not in',
    { body: grantText, headers: { 'Content-Type': 'application/json; charset=utf-16' } },
    { kind: 'granted' },
  ],
  ['UTF-16', body(Buffer.from(grantText, 'utf16le')), { kind: 'unknown' }],
  [
    'bytes that are no text',
    body(Buffer.from([0xff, 0xfe, 0x7b, 0x7d, 0x80])),
    { kind: 'unknown' },
  ],
  ['a byte order mark', body(`\ufeff${grantText}`), { kind: 'unknown' }],
  ['white space around', body(` \n${grantText}\n`), { kind: 'granted' }],
  [
    'members that are there twice: the last counts, as everywhere in JSON.parse',
    body(grantText.replace('{', '{"access_token":"at-first",')),
    { kind: 'granted', tokens: expect.objectContaining({ accessToken: revealing('at-x') }) },
  ],
  [
    'an id token that is none',
    members({ id_token: 'x.y.z' }),
    { kind: 'granted', tokens: expect.objectContaining({ idToken: null }) },
  ],
]

describe('what a token endpoint may answer to a refresh', () => {
  it.each(answers)('%s', async (_, step, expected) => {
    await reopen(undefined, step.latencyMs === undefined ? 2_000 : 200)
    const outcome = await refreshWith(step)
    expect(outcome).toMatchObject(expected)
    // One POST for the code and one for the refresh: the library tried nothing again.
    expect(scripted.requests).toHaveLength(2)
    expect(JSON.stringify(outcome)).not.toMatch(/at-secr|rt-[0-9a-f]{8}/)
  })

  it.each([301, 302, 303, 307, 308])(
    'P-20 does not follow a %d, and tells the tokens in it to nobody',
    async (status) => {
      let connections = 0
      const evil = createServer((socket) => {
        connections += 1
        socket.destroy()
      }).listen(0, '127.0.0.1')
      await once(evil, 'listening')
      const Location = `http://127.0.0.1:${(evil.address() as AddressInfo).port}/token`
      const outcome = await refreshWith({ status, body: grantText, headers: { Location } })
      expect(outcome).toMatchObject({ kind: 'unknown', status })
      expect([connections, scripted.requests.length]).toEqual([0, 2])
      evil.close()
    },
  )

  it('says never sent when nobody listens at the token endpoint', async () => {
    const { refreshToken } = await granted()
    await scripted[Symbol.asyncDispose]()
    expect(await provider.refresh(refreshToken as Secret)).toMatchObject({
      kind: 'never_sent',
      body: 'no answer (ECONNREFUSED)',
    })
    scripted = await startScriptedProvider()
  })

  it('says never sent while the discovery document was never had', async () => {
    scripted.knobs.discoveryStatus = 500
    await reopen()
    expect(await provider.refresh(new Secret('rt-x'))).toMatchObject({ kind: 'never_sent' })
    await expect(
      provider.authorizationUrl({ state: 's', nonce: 'n', codeVerifier: new Secret('v') }),
    ).rejects.toMatchObject({ code: 'provider_unavailable' })
    expect(scripted.requests).toHaveLength(0)
    scripted.knobs.discoveryStatus = 200
    await eventually(async () =>
      expect((await provider.refresh(new Secret('rt-x'))).kind).toBe('refused'),
    )
  })

  it('ends one byte a second by the deadline', async () => {
    await reopen(undefined, 300)
    const sockets = new Set<Socket>()
    let dripped = 0
    const slow: Server = createServer((socket) => {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.write(
        'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n',
      )
      const drip = setInterval(() => {
        socket.write(' ')
        dripped += 1
      }, 50)
      socket.on('close', () => clearInterval(drip))
    }).listen(0, '127.0.0.1')
    await once(slow, 'listening')
    const { exchangeHttp } = await import('./http-exchange.ts')
    const url = new URL(`http://127.0.0.1:${(slow.address() as AddressInfo).port}/`)
    await expect(
      exchangeHttp(url, { method: 'POST', headers: {}, body: 'x=1', deadlineMs: 300 }),
    ).rejects.toMatchObject({ wasSent: true, reason: 'deadline' })
    expect(dripped).toBeLessThan(1_000)
    for (const socket of sockets) socket.destroy()
    slow.close()
  })
})

describe('an id token that comes with a code', () => {
  const claims = (value: Record<string, unknown>) => ({ idTokenClaims: value, idTokenHeader: {} })
  const header = (value: Record<string, unknown>) => ({ idTokenClaims: {}, idTokenHeader: value })
  const seconds = Math.floor(Date.now() / 1_000)

  it.each([
    ['P-25 with alg none', header({ alg: 'none' })],
    ['P-25 with alg HS256', header({ alg: 'HS256' })],
    ['P-25 of an unknown key', header({ kid: 'another' })],
    ['with a header that was not signed', header({ typ: 'JWT', crit: ['x'] })],
    ['P-26 for another client', claims({ aud: 'another' })],
    ['P-26 for others only', claims({ aud: ['a', 'b'] })],
    ['P-26 for two, without azp', claims({ aud: [CLIENT_ID, 'b'] })],
    ['P-28 of another issuer', claims({ iss: 'http://127.0.0.1:1' })],
    ['P-29 past', claims({ exp: seconds - 61 })],
    ['P-29 with exp as text', claims({ exp: 'later' })],
    ['P-29 without exp', claims({ exp: undefined })],
    ['P-30 with another nonce', claims({ nonce: 'another' })],
    ['P-30 without a nonce', claims({ nonce: undefined })],
  ])('%s is refused, and with it the whole answer', async (_, knobs) => {
    Object.assign(scripted.knobs, knobs)
    expect(await authorize()).toMatchObject({ kind: 'refused', error: 'invalid_id_token' })
  })

  it.each([
    ['for a list that holds us', { aud: [CLIENT_ID] }],
    ['for two, with azp', { aud: [CLIENT_ID, 'b'], azp: CLIENT_ID }],
    ['of a clock a little ahead', { exp: seconds - 10 }],
  ])('%s is taken', async (_, value) => {
    scripted.knobs.idTokenClaims = value
    expect((await authorize()).kind).toBe('granted')
  })

  it('with a signature that is not right is refused', async () => {
    const { url } = await provider.authorizationUrl({
      state: 's',
      nonce: 'n',
      codeVerifier: new Secret('v'.repeat(43)),
    })
    const unsigned = (await granted()).idToken?.reveal().split('.') ?? []
    scripted.script(members({ id_token: `${unsigned[0]}.${unsigned[1]}.${'A'.repeat(342)}` }))
    const code = new Secret(scripted.authorize(new URL(url)))
    expect(
      await provider.exchangeCode({ code, codeVerifier: new Secret('v'.repeat(43)), nonce: 'n' }),
    ).toMatchObject({ error: 'invalid_id_token' })
  })
})

describe('an id token that comes with a refresh and does not check out', () => {
  it('is not kept, and the new pair is: the old one may be dead', async () => {
    const { refreshToken } = await granted()
    scripted.knobs.idTokenClaims = { aud: 'another' }
    const outcome = await provider.refresh(refreshToken as Secret)
    expect(outcome).toMatchObject({ kind: 'granted', tokens: { idToken: null } })
    expect(outcome.kind === 'granted' && outcome.tokens.refreshToken?.reveal()).not.toBe(
      refreshToken?.reveal(),
    )
    expect(idTokensRefused).toBe(1)
  })
})

describe('Retry-After', () => {
  const now = Date.parse('2026-01-01T00:00:00.000Z')
  it.each([
    ['30', 30_000],
    [' 120', 120_000],
    ['0', 0],
    ['-5', null],
    ['1.5', null],
    ['1e9', null],
    ['abc', null],
    ['', null],
    [null, null],
    ['30, 60', null],
    ['Thu, 01 Jan 2026 00:01:00 GMT', 60_000],
    ['Thursday, 01-Jan-26 00:01:00 GMT', 60_000],
    ['Thu Jan  1 00:01:00 2026', 60_000],
    ['Thu, 01 Jan 2015 00:00:00 GMT', 0],
  ])('%j is %j ms', (header, expected) => {
    expect(retryAfter(header, now)).toBe(expected)
  })
})
