import { once } from 'node:events'
import { createServer, type Server, type Socket, type AddressInfo } from 'node:net'
import {
  brotliCompressSync,
  deflateRawSync,
  deflateSync,
  gzipSync,
  zstdCompressSync,
} from 'node:zlib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { withoutProxy } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { createHealth, type Health } from '@integration-host/shared/observability/health'
import { generic } from '@integration-host/shared/provider-profile/profiles'
import { intuit } from '@integration-host/shared/provider-profile/intuit'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import {
  CLIENT_ID,
  CLIENT_SECRET,
  type Scripted,
  type ScriptedProvider,
  startScriptedProvider,
} from '../../../test-support/scripted-provider.ts'
import { silent } from '../../../test-support/service-fixture.ts'
import type { ExchangeOutcome, Provider, TokenOutcome, TokenSet } from '../../provider/provider.ts'
import { type Discovery, watchDiscovery } from './discovery.ts'
import { createOpenIdProvider } from './provider.ts'

const REDIRECT = 'http://127.0.0.1:7217/callback'

let scripted: ScriptedProvider
let discovery: Discovery
let provider: Provider
let health: Health
let rejectedMembers: string[]

beforeEach(async () => {
  scripted = await startScriptedProvider()
  open()
})
afterEach(async () => {
  await discovery[Symbol.asyncDispose]()
  await scripted[Symbol.asyncDispose]()
})

function open(
  secrets: readonly string[] = [CLIENT_SECRET],
  deadlineMs = 2_000,
  profile = intuit,
): void {
  rejectedMembers = []
  health = createHealth(silent)
  discovery = watchDiscovery(new URL(scripted.discoveryUrl), health.dependency('provider'), {
    needsKeys: true,
    proxyFor: withoutProxy,
  })
  provider = createOpenIdProvider({
    discovery,
    profile,
    clientId: CLIENT_ID,
    clientSecrets: secrets.map((secret) => new Secret(secret)),
    redirectUri: REDIRECT,
    scope: 'openid com.intuit.quickbooks.accounting',
    requestsIdToken: true,
    now: Date.now,
    deadlineMs,
    proxyFor: withoutProxy,
    onIdTokenRejected: (member) => void rejectedMembers.push(member),
  })
}
async function reopen(...options: Parameters<typeof open>): Promise<void> {
  await discovery[Symbol.asyncDispose]()
  open(...options)
}

/** Obtains a grant: gets a code for the authorization URL, and exchanges it at the token endpoint. */
async function authorize(): Promise<ExchangeOutcome> {
  const codeVerifier = (await provider.usesPkce()) ? new Secret('v'.repeat(43)) : null
  const url = await provider.authorizationUrl({ state: 's', nonce: 'n', codeVerifier })
  const code = new Secret(scripted.authorize(new URL(url)))
  return provider.exchangeCode({ code, codeVerifier, nonce: 'n' })
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

describe('the provider adapter over HTTP', () => {
  it('a code exchange uses Basic authentication and exactly the form parameters of RFC 6749 §4.1.3', async () => {
    const tokens = await granted()
    expect(tokens.lifetimeSeconds).toBe(3600)
    const [request] = scripted.requests
    expect(Buffer.from(request?.authorization.slice(6) ?? '', 'base64').toString()).toBe(
      `${CLIENT_ID}:${CLIENT_SECRET}`, // Hyphens are not encoded, because a provider may compare without decoding.
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

  it('a refresh request uses Basic authentication and exactly the expected form parameters', async () => {
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
    expect(rejectedMembers).toEqual([])
  })

  it('an authorization request has no PKCE challenge if the provider does not support S256', async () => {
    scripted.knobs.pkce = false
    await reopen()
    expect(await provider.usesPkce()).toBe(false)
    const url = await provider.authorizationUrl({ state: 's', nonce: 'n', codeVerifier: null })
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

  it('the provider adapter exchanges a code that another application requested, whatever nonce the id token has', async () => {
    const at = new URL('http://x/?nonce=of-the-application')
    const code = new Secret(scripted.authorize(at))
    expect((await provider.exchangeCode({ code, codeVerifier: null, nonce: null })).kind).toBe(
      'granted',
    )
  })

  it.each([':%+/= secret', 'ünïcödé', 'a&b=c#d?e', '-_.~!*()'])(
    'the provider can decode the client secret %s from the Basic header',
    async (secret) => {
      scripted.knobs.secrets = [secret]
      await reopen([secret])
      expect((await authorize()).kind).toBe('granted')
    },
  )

  it('the attempts of a token request with several client secrets share one deadline', async () => {
    await reopen(['wrong', 'wrong as well'], 1_500)
    scripted.knobs.secrets = ['another']
    scripted.knobs.latencyMs = 1_000
    // The first request takes 1,000 of the 1,500 ms, so the deadline aborts the second request.
    expect(await provider.refresh(new Secret('any'))).toMatchObject({ kind: 'unknown' })
  })

  it('a refresh tries the client secrets in order, and later requests begin with the accepted one', async () => {
    await reopen(['the-new-secret', CLIENT_SECRET])
    const { refreshToken } = await granted()
    expect(scripted.requests).toHaveLength(2)
    expect((await provider.refresh(refreshToken as Secret)).kind).toBe('granted')
    expect(scripted.requests).toHaveLength(3)
  })

  it('with the provider profile intuit, a revocation is sent as JSON and not as a form', async () => {
    const { refreshToken } = await granted()
    expect(await provider.revoke(refreshToken as Secret)).toBe(true)
    scripted.knobs.revocationStatus = 415
    expect(await provider.revoke(refreshToken as Secret)).toBe(false)
    const members = { token: refreshToken?.reveal() }
    expect(scripted.revocations).toEqual([
      { contentType: 'application/json', members },
      { contentType: 'application/json', members },
    ])
  })

  it('with the provider profile generic, a revocation is sent as a form and not as JSON (RFC 7009 §2.1)', async () => {
    await reopen(undefined, undefined, generic)
    const { refreshToken } = await granted()
    expect(await provider.revoke(refreshToken as Secret)).toBe(true)
    scripted.knobs.revocationStatus = 503
    expect(await provider.revoke(refreshToken as Secret)).toBe(false)
    const form = {
      contentType: expect.stringMatching(/^application\/x-www-form-urlencoded/),
      members: { token: refreshToken?.reveal(), token_type_hint: 'refresh_token' },
    }
    expect(scripted.revocations).toEqual([form, form])
  })

  it('status 204 confirms a revocation, and only status 401 causes another attempt with the next client secret', async () => {
    await reopen([CLIENT_SECRET, 'another'])
    const { refreshToken } = await granted()
    scripted.knobs.revocationStatus = 204
    expect(await provider.revoke(refreshToken as Secret)).toBe(true)
    scripted.knobs.revocationStatus = 429
    expect(await provider.revoke(refreshToken as Secret)).toBe(false)
    expect(scripted.revocations).toHaveLength(2)
    scripted.knobs.revocationStatus = 401
    expect(await provider.revoke(refreshToken as Secret)).toBe(false)
    expect(scripted.revocations).toHaveLength(4)
  })

  it.each([
    [
      'returns true after a 400 without a body, which means that the grant had already ended',
      400,
      '',
      true,
    ],
    ['returns false after a 400 with a body', 400, '{"error":"invalid_request"}', false],
    ['returns false after a 401', 401, '{"error":"invalid_client"}', false],
    ['returns false after a 503 without a body', 503, '', false],
  ])('revoke() %s', async (_, status, text, confirmed) => {
    const { refreshToken } = await granted()
    Object.assign(scripted.knobs, { revocationStatus: status, revocationBody: text })
    expect(await provider.revoke(refreshToken as Secret)).toBe(confirmed)
  })

  it('a refresh requests the expiry time of the grant only with the provider profile intuit', async () => {
    await granted()
    await reopen(undefined, undefined, generic)
    await granted()
    const asked = scripted.requests.map(
      ({ headers }) => headers['x-include-refresh-token-hard-expires-in'],
    )
    expect(asked).toEqual(['true', undefined])
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
const withHeaders = (value: string | Buffer, headers: Scripted['headers']): Scripted => ({
  ...body(value),
  ...(headers && { headers }),
})
const coded = (coding: string, bytes: Buffer): Scripted =>
  withHeaders(bytes, { 'Content-Encoding': coding })
const utf16be = (text: string): Buffer => Buffer.from(text, 'utf16le').swap16()
/** A response with status, body and headers. */
const at = (status: number, text: string, headers?: Scripted['headers']): Scripted => ({
  status,
  ...withHeaders(text, headers),
})

type Odd = readonly [what: string, step: Scripted, oddities: readonly string[]]
const compressed = 'the body is compressed'
const notAnObject = 'the body is not a JSON object with tokens'
const mark = 'the body begins with a byte order mark'
/** Test cases that are all odd for the same reasons. */
const oddly = (oddities: readonly string[], steps: Readonly<Record<string, Scripted>>): Odd[] =>
  Object.entries(steps).map(([what, step]) => [what, step, oddities])

/** Responses of a token endpoint that contain a usable token pair in an unusual form, and what is odd about them. */
const odd: readonly Odd[] = [
  ...[null, '', false, {}, [], 'invalid_grant', 'invalid_client', 5, { code: 7 }].map(
    (error, index): Odd => [
      `the error ${JSON.stringify(error)}`,
      body({ ...grant, error }),
      [index < 5 ? 'error is empty' : 'error is set'],
    ],
  ),
  ...[201, 202, 203, 206, 299].map((status): Odd => [
    `status ${status}`,
    at(status, grantText),
    [`the status is ${status}`],
  ]),
  ...oddly([compressed], {
    gzip: coded('gzip', gzipSync(grantText)),
    'the coding X-GZIP': coded('X-GZIP', gzipSync(grantText)),
    br: coded('br', brotliCompressSync(grantText)),
    deflate: coded('deflate', deflateSync(grantText)),
    'deflate without a zlib header': coded('deflate', deflateRawSync(grantText)),
    zstd: coded('zstd', zstdCompressSync(grantText)),
    'two codings': coded('gzip, identity, br', brotliCompressSync(gzipSync(grantText))),
    'gzip without a header that says so': body(gzipSync(grantText)),
    'zstd without a header that says so': body(zstdCompressSync(grantText)),
    'br without a header that says so': body(brotliCompressSync(grantText)),
    'deflate without a header that says so': body(deflateSync(grantText)),
    'raw deflate without a header that says so': body(deflateRawSync(grantText)),
  }),
  ...oddly([compressed, compressed], {
    'gzip in gzip without a header that says so': body(gzipSync(gzipSync(grantText))),
    'br in gzip without a header that says so': body(gzipSync(brotliCompressSync(grantText))),
  }),
  ...['gzip', 'deflate', 'br', 'zstd', 'gzip, br', 'br, deflate'].map((coding): Odd => [
    `the header ${coding} although the body is not compressed`,
    coded(coding, Buffer.from(grantText)),
    ['the body is compressed: invalid'],
  ]),
  ...['deflate', 'br', 'zstd', 'gzip, br', 'br, gzip'].map((coding): Odd => [
    `the header ${coding} although the body is gzip`,
    coded(coding, gzipSync(grantText)),
    ['the body is compressed: invalid', compressed],
  ]),
  [
    'gzip whose checksum is wrong',
    coded('gzip', Buffer.concat([gzipSync(grantText).subarray(0, -8), Buffer.alloc(8, 1)])),
    ['the body is compressed: invalid'],
  ],
  [
    'gzip whose last bytes are missing',
    coded('gzip', gzipSync(grantText).subarray(0, -4)),
    ['the body is compressed: cut off', 'the response is incomplete (the response was cut off)'],
  ],
  [
    'a hundred content codings',
    coded(Array(100).fill('gzip').join(', '), gzipSync(grantText)),
    ['the body is compressed: unknown', compressed],
  ],
  ['a byte order mark', body(`\ufeff${grantText}`), [mark]],
  ['UTF-16', body(Buffer.from(grantText, 'utf16le')), ['the body is not UTF-8']],
  [
    'UTF-16 with a byte order mark',
    body(utf16be(`\ufeff${grantText}`)),
    [mark, 'the body is not UTF-8'],
  ],
  [
    'the content type text/html',
    withHeaders(grantText, { 'Content-Type': 'text/html' }),
    ['the content type is not JSON'],
  ],
  ['no token type', body({ ...grant, token_type: undefined }), ['token_type is missing']],
  ...oddly(['token_type is not bearer'], {
    'the token type mac': body({ ...grant, token_type: 'mac' }),
    'the token type "bearer "': body({ ...grant, token_type: 'bearer ' }),
  }),
  ...oddly(['a token has white space around it'], {
    'a line end after the refresh token': body({ ...grant, refresh_token: 'rt-x\n' }),
    'a space before the access token': body({ ...grant, access_token: ' at-x' }),
  }),
  ...oddly([notAnObject], {
    'an array around the object': body([grant]),
    'an object around the object': body({ data: grant }),
    'a JSON string around the object': body(JSON.stringify(grantText)),
    'another response after it': body(`${grantText}{"access_token":"at-y"}`),
    'text before and after it': body(`)]}',\n${grantText}\n<!-- 3 ms -->`),
    'other names': body({ accessToken: 'at-x', Refresh_Token: 'rt-x', tokenType: 'Bearer' }),
    'another name of the refresh token alone': body({
      access_token: 'at-x',
      token_type: 'bearer',
      refreshToken: 'rt-x',
    }),
    'the refresh token within another object': body({
      access_token: 'at-x',
      refresh_token: null,
      token_type: 'bearer',
      more: grant,
    }),
    'empty tokens before the object with the tokens': body({
      access_token: '',
      refresh_token: '',
      data: grant,
    }),
    'null tokens before the object with the tokens': body({
      access_token: null,
      refresh_token: null,
      data: grant,
    }),
    'no end of the object': body(grantText.slice(0, -1)),
    'too many members to be parsed': body({ ...grant, roles: Array(25_000).fill(0) }),
  }),
  ...['NaN', '-Infinity', '+3600', '03600', "'3600'"].map((literal): Odd => [
    `expires_in ${literal}, which is not JSON`,
    body(grantText.replace('3600', literal)),
    [notAnObject],
  ]),
  [
    'a form',
    body('access_token=at-x&token_type=bearer&refresh_token=rt-x'),
    ['the body is a form'],
  ],
  [
    'a Content-Length that is too short',
    withHeaders(grantText, { 'Content-Length': '60' }),
    ['the response is incomplete (HPE_CLOSED_CONNECTION)', notAnObject],
  ],
  [
    'a Content-Length that is too long',
    { ...withHeaders(grantText, { 'Content-Length': '4000' }), latencyMs: 0 },
    ['the response is incomplete (the response was cut off)'],
  ],
  [
    'a second Content-Length',
    withHeaders(grantText, { 'Content-Length': ['87', '87'] }),
    [
      'the content type is not JSON',
      'the response is incomplete (HPE_UNEXPECTED_CONTENT_LENGTH)',
      notAnObject,
    ],
  ],
  [
    'headers of 40 KB',
    withHeaders(grantText, { 'Content-Security-Policy': 'x'.repeat(40_000) }),
    [],
  ],
  [
    '10 MB after the tokens',
    body({ ...grant, pad: 'x'.repeat(10_000_000) }),
    ['the response is incomplete (the response is too large)', notAnObject],
  ],
]

describe('a new token pair in an unusual response', () => {
  it.each(odd)(
    'a refresh keeps the token pair of a response with %s',
    async (_, step, oddities) => {
      await reopen(undefined, step.latencyMs === undefined ? 2_000 : 200)
      const outcome = await refreshWith(step)
      expect(outcome).toMatchObject({
        kind: 'granted',
        tokens: { accessToken: revealing('at-x'), refreshToken: revealing('rt-x') },
      })
      expect('oddities' in outcome ? outcome.oddities : []).toEqual(oddities)
      expect(scripted.requests).toHaveLength(2)
    },
  )

  it('a code exchange keeps the token pair of a response that is compressed and has an empty error', async () => {
    scripted.script({ members: { error: null }, coding: 'gzip' })
    expect(await authorize()).toMatchObject({
      kind: 'granted',
      oddities: ['the content type is not JSON', compressed, 'error is empty'],
    })
  })

  it.each([
    ['bytes in a coding that is not known', coded('exi', Buffer.from([0x80, 0x81, 0x82]))],
    ['gzip that ends before the tokens', coded('gzip', gzipSync(grantText).subarray(0, 20))],
    ['XML', body('<r><access_token>at-x</access_token><RefreshToken>rt-x</RefreshToken></r>')],
    ['an error beside an access token', body({ error: 'invalid_grant', access_token: 'at-x' })],
    ['tokens that are objects', body({ access_token: { value: 'at-x' }, refresh_token: { v: 1 } })],
    [
      'names in escapes, and too many members to be parsed',
      body(
        `{"access\\u005ftoken":"at-x","refresh\\u005ftoken":"rt-x","a":[${'0,'.repeat(25_000)}0]}`,
      ),
    ],
    [
      'arrays that are nested too deeply to be parsed',
      body(`${'['.repeat(2_000)}${']'.repeat(2_000)}`),
    ],
  ])('a refresh says that a response may hold tokens: %s', async (_, step: Scripted) => {
    expect(await refreshWith(step)).toMatchObject({ kind: 'unknown', mayHoldTokens: true })
  })

  it.each([
    ['no byte', body('')],
    ['null', body('null')],
    ['null in UTF-16', body(Buffer.from('null', 'utf16le'))],
    ['null in UTF-16 with the high byte first', body(utf16be('null'))],
    ['a byte order mark before null', body('\ufeffnull')],
    ['XML without a token', body('<Fault type="SERVICE"/>')],
  ])('a refresh does not say that a response without tokens may hold some: %s', async (_, step) => {
    const outcome = await refreshWith(step)
    expect(outcome).toMatchObject({ kind: 'unknown', status: 200 })
    expect(outcome).not.toHaveProperty('mayHoldTokens')
  })

  it.each([
    { error: 'invalid_grant', error_description: 'Incorrect refresh_token' },
    { error: 'invalid_grant', access_token: null, refresh_token: '', accessToken: false },
  ])('a refresh reads the error of the response %j, which holds no tokens', async (value) => {
    expect(await refreshWith(body(value))).toMatchObject({
      kind: 'refused',
      error: 'invalid_grant',
    })
  })

  it.each([
    ['an access token alone in an array', body([{ access_token: 'at-x' }])],
    ['no end of the refresh token', body('{"access_token":"at-x","refresh_token":"rt-x')],
    [
      'a form whose end is missing',
      {
        ...body('access_token=at-x&refresh_token=rt-'),
        headers: { 'Content-Length': '40' },
        latencyMs: 0,
      },
    ],
  ])('a refresh takes no token pair from a response with %s', async (_, step: Scripted) => {
    await reopen(undefined, step.latencyMs === undefined ? 2_000 : 200)
    expect(await refreshWith(step)).toMatchObject({ kind: 'unknown' })
  })
})

type Answer = readonly [what: string, step: Scripted, expected: Record<string, unknown>]
const members = (value: Record<string, unknown>): Scripted => ({ members: value })
const later = new Date(Date.now() + 90_000).toUTCString()
const challenge = (value: string) => ({ 'WWW-Authenticate': value })
/** Test cases with the same outcome. */
const all = (
  expected: Record<string, unknown>,
  steps: Readonly<Record<string, Scripted>>,
): Answer[] => Object.entries(steps).map(([what, step]) => [what, step, expected])
const refused = (error: string): Record<string, unknown> => ({ kind: 'refused', error })
const withTokens = (tokens: Record<string, unknown>) => ({
  kind: 'granted',
  tokens: expect.objectContaining(tokens),
})
const throttled = (retryAfterMs: unknown) => ({ kind: 'throttled', retryAfterMs })

/** The responses of a token endpoint to a refresh, with the expected outcome of each response. */
const answers: readonly Answer[] = [
  [
    'a login page with status 200',
    withHeaders(html, { 'Content-Type': 'text/html' }),
    { kind: 'unknown', status: 200, body: html },
  ],
  [
    'an XML fault with status 200',
    withHeaders('<Fault type="SERVICE"/>', { 'Content-Type': 'application/xml' }),
    { kind: 'unknown', status: 200 },
  ],
  [
    'truncated JSON',
    body('{"access_token":"at-secr'),
    { kind: 'unknown', body: '{"access_token":"[redacted]' },
  ],
  ['status 204, which has no body', { status: 204 }, { kind: 'unknown', status: 204 }],
  ...all(
    { kind: 'unknown', status: null },
    {
      'a connection that closes within the body': { cuts: 'within' },
      'a connection that closes before the response': { cuts: 'before' },
      'an access token of 1 MB': members({ access_token: 'a'.repeat(1_000_000) }),
    },
  ),
  ...['', 'null', '[]', '"x"', '0', '{}', '['.repeat(60_000)].map((text): Answer => [
    `the body ${text.slice(0, 9)}`,
    body(text),
    { kind: 'unknown' },
  ]),
  ...['', 'at x', 'at\u0000x', 'at-é', '\t', 'a\r\nX-Injected: 1', 7, null, {}, ['at-x'], true]
    .concat([undefined, 'a'.repeat(40_000)] as never[])
    .map((value): Answer => [
      `the access token ${JSON.stringify(value)}`.slice(0, 40),
      members({ access_token: value }),
      { kind: 'unknown' },
    ]),
  ...all(
    { kind: 'unknown' },
    {
      'a refresh token with a line end': members({ refresh_token: 'r\r\nX-Injected: 1' }),
      'an array as refresh token': members({ refresh_token: ['rt-x'] }),
      'a number as refresh token': members({ refresh_token: 7 }),
      'bytes that are not UTF-8': body(Buffer.from([0xff, 0xfe, 0x7b, 0x7d, 0x80])),
    },
  ),
  [
    'the error invalid_grant with status 200',
    body({ error: 'invalid_grant' }),
    { ...refused('invalid_grant'), body: '{"error":"invalid_grant"}' },
  ],
  ...all(
    { kind: 'unknown', status: 200 },
    {
      'the error invalid_grant with status 200 beside an access token alone': body({
        ...grant,
        refresh_token: undefined,
        error: 'invalid_grant',
      }),
      'the error invalid_client with status 200 beside a refresh token that cannot be read': body({
        ...grant,
        refresh_token: 'r\u0000',
        error: 'invalid_client',
      }),
    },
  ),
  ...all(withTokens({ refreshToken: null }), {
    'no refresh token': members({ refresh_token: undefined }),
    'an empty refresh token': members({ refresh_token: '' }),
  }),
  ...[-1, 0, '', 'abc', '-1', '1e3', '0x10', null, {}, [3600], true, undefined].map(
    (value): Answer => [
      `expires_in ${JSON.stringify(value)}`,
      members({ expires_in: value }),
      withTokens({ lifetimeSeconds: 3000 }),
    ],
  ),
  ...[9e15, 1e12, 1e10, '1000000000000'].map((value): Answer => [
    `expires_in ${JSON.stringify(value)}`,
    members({ expires_in: value }),
    withTokens({ lifetimeSeconds: 86_400 }),
  ]),
  [
    'expires_in 1e309',
    body(grantText.replace('3600', '1e309')),
    withTokens({ lifetimeSeconds: 86_400 }),
  ],
  [
    'expires_in as a string',
    members({ expires_in: '1800' }),
    withTokens({ lifetimeSeconds: 1800 }),
  ],
  ['expires_in 3600.5', members({ expires_in: 3600.5 }), withTokens({ lifetimeSeconds: 3600.5 })],
  ...all(
    { kind: 'granted' },
    {
      'the token type BEARER': members({ token_type: 'BEARER' }),
      'a refresh token that expires in -5 seconds': members({ x_refresh_token_expires_in: -5 }),
      '30,000 nested arrays beside the tokens': body(
        grantText.replace('}', `,"x":${'['.repeat(30_000)}${']'.repeat(30_000)}}`),
      ),
      'tokens with Content-Type text/plain': withHeaders(grantText, {
        'Content-Type': 'text/plain',
      }),
      'tokens with the wrong charset in Content-Type': withHeaders(grantText, {
        'Content-Type': 'application/json; charset=utf-16',
      }),
      'a token response with white space around it': body(` \n${grantText}\n`),
    },
  ),
  [
    'a duplicate member, of which the last one counts as in JSON.parse',
    body(grantText.replace('{', '{"access_token":"at-first",')),
    withTokens({ accessToken: revealing('at-x') }),
  ],
  ['a malformed id token', members({ id_token: 'x.y.z' }), withTokens({ idToken: null })],
  [
    'the error invalid_grant',
    at(400, '{"error":"invalid_grant"}'),
    {
      ...refused('invalid_grant'),
      status: 400,
      body: '{"error":"invalid_grant"}',
      traceId: 'trace-1-0123456789',
    },
  ],
  ...all(refused('invalid_grant'), {
    'the error invalid_grant with status 401': at(401, '{"error":"invalid_grant"}'),
    'the error invalid_grant with status 401 and a Basic challenge': at(
      401,
      '{"error":"invalid_grant"}',
      challenge('Basic realm="x"'),
    ),
  }),
  ...all(
    { kind: 'client_refused' },
    {
      'the error invalid_client': at(400, '{"error":"invalid_client"}'),
      'status 401 with a Basic challenge and an empty body': at(
        401,
        '',
        challenge('Basic realm="x"'),
      ),
      'status 401 with a Basic challenge after another one': at(
        401,
        '{}',
        challenge('Bearer realm="x", basic realm="y"'),
      ),
    },
  ),
  ...all(
    { kind: 'unknown', status: 401 },
    {
      'an empty response with status 401 and without a challenge': at(401, ''),
      'status 401 with a Bearer challenge': at(401, '', challenge('Bearer realm="Basic"')),
      'status 401 with an error code that RFC 6749 does not have': at(
        401,
        '{"error":"invalid_code"}',
      ),
    },
  ),
  [
    'the error unauthorized_client with status 401',
    at(401, '{"error":"unauthorized_client"}'),
    refused('unauthorized_client'),
  ],
  ...['invalid_scope', 'unauthorized_client', 'unsupported_grant_type', 'an_unknown_error'].map(
    (error): Answer => [error, { status: 400, ...body({ error }) }, refused(error)],
  ),
  [
    'an error_description with markup and line breaks',
    at(400, '{"error":"invalid_scope","error_description":"<script>\\r\\nX: 1"}'),
    { body: '{"error":"invalid_scope","error_description":"<script>\\r\\nX: 1"}' },
  ],
  [
    'an XML fault with status 400',
    at(400, '<Fault type="AUTHENTICATION"/>'),
    { ...refused('http_400'), body: '<Fault type="AUTHENTICATION"/>' },
  ],
  [
    'a trace id that is longer than 128 characters',
    at(400, '{"error":"x"}', { intuit_tid: 't'.repeat(200) }),
    { kind: 'refused', traceId: null },
  ],
  ['an error code with a quote', at(400, '{"error":"a\\"b\\r\\n"}'), refused('http_400')],
  ['an HTML page with status 404', at(404, html), refused('http_404')],
  [
    'status 429 with Retry-After in seconds',
    at(429, '', { 'Retry-After': '30' }),
    throttled(30_000),
  ],
  [
    'status 429 with Retry-After as a date',
    at(429, '', { 'Retry-After': later }),
    throttled(expect.any(Number)),
  ],
  [
    'status 429 with Retry-After as a date in the past',
    at(429, '', { 'Retry-After': 'Tue, 01 Jan 2019 00:00:00 GMT' }),
    throttled(0),
  ],
  ...all(throttled(null), {
    'status 429 with a malformed Retry-After': at(429, '', { 'Retry-After': 'soon' }),
    'status 429 with an XML fault': at(429, '<Fault type="SERVICE"/>'),
    'status 429 without Retry-After': at(429, ''),
  }),
  ['status 503 with Retry-After', at(503, '', { 'Retry-After': '7' }), throttled(7_000)],
  ...[408, 425, 500, 502, 503, 504, 599].map((status): Answer => [
    `status ${status}`,
    at(status, 'try again'),
    { kind: 'unknown', status, body: 'try again' },
  ]),
  // The outage of a provider must not end a grant.
  ...[500, 503].map((status): Answer => [
    `status ${status} with an OAuth error`,
    at(status, '{"error":"invalid_grant"}'),
    { kind: 'unknown', status },
  ]),
  [
    'no response before the deadline',
    { latencyMs: 5_000 },
    { kind: 'unknown', status: null, body: 'no response (deadline)' },
  ],
  [
    'a gzip bomb although the request accepts identity only',
    coded('gzip', gzipSync(Buffer.alloc(40_000_000, 'x'))),
    {
      kind: 'unknown',
      status: null,
      body: 'no response (the response is too large)',
      mayHoldTokens: true,
    },
  ],
]

describe('a response of the token endpoint to a refresh', () => {
  it.each(answers)(
    'the provider adapter classifies a refresh response by status and body: %s',
    async (_, step, expected) => {
      await reopen(undefined, step.latencyMs === undefined ? 2_000 : 200)
      const outcome = await refreshWith(step)
      expect(outcome).toMatchObject(expected)
      // There was no retry: the provider got one POST for the code exchange and one for the refresh.
      expect(scripted.requests).toHaveLength(2)
      expect(JSON.stringify(outcome)).not.toMatch(/at-secr|rt-[0-9a-f]{8}/)
    },
  )

  it.each([301, 302, 303, 307, 308])(
    'the provider adapter does not follow a redirect with status %d',
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

  it('a refresh has the outcome never_sent if no server listens at the address of the token endpoint', async () => {
    const { refreshToken } = await granted()
    await scripted[Symbol.asyncDispose]()
    expect(await provider.refresh(refreshToken as Secret)).toMatchObject({
      kind: 'never_sent',
      body: 'no response (ECONNREFUSED)',
    })
    scripted = await startScriptedProvider()
  })

  it('a refresh has the outcome never_sent if the discovery document has never been fetched', async () => {
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

  it('the deadline aborts a slow response of the provider even if bytes still arrive', async () => {
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
    const { sendRequest } = await import('./send-request.ts')
    const url = new URL(`http://127.0.0.1:${(slow.address() as AddressInfo).port}/`)
    expect(
      await sendRequest(url, { method: 'POST', headers: {}, body: 'x=1', deadlineMs: 300 }),
    ).toMatchObject({ status: 200, cutOff: 'deadline' })
    expect(dripped).toBeLessThan(1_000)
    for (const socket of sockets) socket.destroy()
    slow.close()
  })
})

describe('the id token of a code exchange', () => {
  const claims = (value: Record<string, unknown>) => ({ idTokenClaims: value })
  const header = (value: Record<string, unknown>) => ({ idTokenHeader: value })
  const seconds = Math.floor(Date.now() / 1_000)

  it.each([
    ['the alg none', 'alg', header({ alg: 'none' })],
    ['the alg HS256', 'alg', header({ alg: 'HS256' })],
    ['a key that is not published', 'signature', header({ kid: 'another' })],
    ['a critical header parameter', 'crit', header({ crit: ['x'] })],
    ['another client as audience', 'aud', claims({ aud: 'another' })],
    ['only other clients as audience', 'aud', claims({ aud: ['a', 'b'] })],
    ['two audiences without azp', 'aud', claims({ aud: [CLIENT_ID, 'b'] })],
    [
      'two audiences and the azp of another client',
      'azp',
      claims({ aud: [CLIENT_ID, 'b'], azp: 'b' }),
    ],
    ['a number as audience', 'aud', claims({ aud: 7 })],
    ['no audience', 'aud', claims({ aud: undefined })],
    ['another issuer', 'iss', claims({ iss: 'http://127.0.0.1:1' })],
    ['no subject', 'sub', claims({ sub: undefined })],
    ['an empty subject', 'sub', claims({ sub: '' })],
    ['a blank subject', 'sub', claims({ sub: ' ' })],
    ['the subject null', 'sub', claims({ sub: null })],
    ['a number as subject', 'sub', claims({ sub: 7 })],
    ['an expiry in the past', 'exp', claims({ exp: seconds - 61 })],
    ['an expiry that is a string', 'exp', claims({ exp: 'later' })],
    ['no expiry', 'exp', claims({ exp: undefined })],
    ['an issue time one hour ago', 'iat', claims({ iat: seconds - 3_600 })],
    ['an issue time one hour ahead', 'iat', claims({ iat: seconds + 3_600 })],
    ['an issue time that is a string', 'iat', claims({ iat: 'now' })],
    ['another nonce', 'nonce', claims({ nonce: 'another' })],
    ['a nonce that is a number', 'nonce', claims({ nonce: 7 })],
    ['two different realm claims', 'realmid', claims({ realmid: '1', realmId: '2' })],
    ['a number as realm claim', 'realmid', claims({ realmid: 9_341_453_908_059_000 })],
  ])(
    'the provider adapter rejects a code exchange whose id token has %s, and names the member %s',
    async (_, member, knobs) => {
      Object.assign(scripted.knobs, knobs)
      const outcome = await authorize()
      expect(outcome).toMatchObject({ kind: 'invalid_id_token', member })
      expect(JSON.stringify(outcome)).not.toMatch(/at-[0-9a-f]{8}|rt-[0-9a-f]{8}|eyJ/)
    },
  )

  it.each([
    ['iat', 3_600, 3_600],
    ['iat', -1_200, 3_600],
    ['exp', -7_200, 3_600],
  ])(
    'the outcome of a code exchange that the claim %s spoils by a clock that is %d s ahead names the difference',
    async (member, aheadSeconds, lifetime) => {
      const iat = Math.floor(Date.now() / 1_000) + aheadSeconds
      scripted.knobs.idTokenClaims = { iat, exp: iat + lifetime }
      const outcome = await authorize()
      expect(outcome).toMatchObject({ kind: 'invalid_id_token', member })
      const measured = 'clockAheadSeconds' in outcome ? outcome.clockAheadSeconds : null
      expect(Math.abs((measured ?? 0) - aheadSeconds)).toBeLessThan(60)
    },
  )

  it('the outcome of a code exchange names no difference of the clocks if the id token was issued just now', async () => {
    scripted.knobs.idTokenClaims = { exp: Math.floor(Date.now() / 1_000) - 61 }
    expect(await authorize()).toMatchObject({ member: 'exp', clockAheadSeconds: null })
  })

  it('a code exchange of another application is rejected as well if its id token has no subject', async () => {
    scripted.knobs.idTokenClaims = { sub: undefined }
    const exchange = { code: new Secret(scripted.authorize()), codeVerifier: null, nonce: null }
    expect(await provider.exchangeCode(exchange)).toMatchObject({ member: 'sub' })
  })

  it.each<readonly [string, (nowSeconds: number) => Record<string, unknown>]>([
    ['an audience array with this client', () => ({ aud: [CLIENT_ID] })],
    ['two audiences and the azp of this client', () => ({ aud: [CLIENT_ID, 'b'], azp: CLIENT_ID })],
    ['an expiry 10 seconds ago', (nowSeconds) => ({ exp: nowSeconds - 10 })],
    ['an issue time 60 seconds ahead', (nowSeconds) => ({ iat: nowSeconds + 60 })],
  ])('the provider adapter accepts a code exchange whose id token has %s', async (_, claimsAt) => {
    scripted.knobs.idTokenClaims = claimsAt(Math.floor(Date.now() / 1_000))
    expect((await authorize()).kind).toBe('granted')
  })

  it.each(['realmid', 'realmId', 'RealmID'])(
    'the provider adapter reads the realm from the claim %s of an id token',
    async (claim) => {
      scripted.knobs.idTokenClaims = { [claim]: '9341453908059889' }
      expect((await granted()).realm).toBe('9341453908059889')
    },
  )

  it('the provider adapter returns no realm for an id token without a realm claim', async () => {
    expect((await granted()).realm).toBeNull()
  })

  it('the provider adapter rejects a code exchange if the signature of the id token is invalid', async () => {
    const url = await provider.authorizationUrl({
      state: 's',
      nonce: 'n',
      codeVerifier: new Secret('v'.repeat(43)),
    })
    const unsigned = (await granted()).idToken?.reveal().split('.') ?? []
    scripted.script(members({ id_token: `${unsigned[0]}.${unsigned[1]}.${'A'.repeat(342)}` }))
    const code = new Secret(scripted.authorize(new URL(url)))
    expect(
      await provider.exchangeCode({ code, codeVerifier: new Secret('v'.repeat(43)), nonce: 'n' }),
    ).toMatchObject({ kind: 'invalid_id_token', member: 'signature' })
  })

  it.each([
    ['without an id token', undefined],
    ['with an empty id token', ''],
  ])('the provider adapter rejects a code exchange %s', async (_, id_token) => {
    scripted.script(members({ id_token }))
    expect(await authorize()).toMatchObject({ kind: 'invalid_id_token', member: 'id_token' })
  })
})

/** OpenID Connect Core §3.1.3.7, step 11, requires the nonce, but Intuit's id tokens have none (docs/adr/0017). */
describe('the nonce of an id token', () => {
  const listsNonce = { claims_supported: ['aud', 'exp', 'iat', 'iss', 'nonce', 'sub'] }
  const listsNone = { claims_supported: ['aud', 'exp', 'iat', 'iss', 'realmid', 'sub'] }

  it.each([
    ['intuit', intuit, listsNone],
    ['intuit', intuit, {}],
  ])(
    'with the profile %s, an id token without a nonce is accepted if the discovery document does not list the claim nonce',
    async (...row) => {
      const [, profile, metadata] = row
      Object.assign(scripted.knobs, { echoesNonce: false, metadata })
      await reopen(undefined, undefined, profile)
      expect((await authorize()).kind).toBe('granted')
    },
  )

  it.each([
    ['the discovery document lists the claim', intuit, listsNonce],
    ['the profile requires the nonce', generic, listsNone],
  ])(
    'the provider adapter rejects an id token without a nonce if %s',
    async (_, profile, metadata) => {
      Object.assign(scripted.knobs, { echoesNonce: false, metadata })
      await reopen(undefined, undefined, profile)
      expect(await authorize()).toMatchObject({ kind: 'invalid_id_token', member: 'nonce' })
    },
  )

  it.each([
    ['intuit', intuit],
    ['generic', generic],
  ])(
    'with the profile %s, the provider adapter rejects an id token with another nonce',
    async (_, profile) => {
      scripted.knobs.metadata = listsNone
      await reopen(undefined, undefined, profile)
      expect((await authorize()).kind).toBe('granted')
      scripted.knobs.idTokenClaims = { nonce: 'of another request' }
      expect(await authorize()).toMatchObject({ kind: 'invalid_id_token', member: 'nonce' })
    },
  )

  it('an authorization request has a nonce even if the discovery document does not list the claim nonce', async () => {
    scripted.knobs.metadata = listsNone
    await reopen()
    const request = { state: 's', nonce: 'n', codeVerifier: new Secret('v'.repeat(43)) }
    const url = await provider.authorizationUrl(request)
    expect(new URL(url).searchParams.get('nonce')).toBe('n')
  })
})

describe('the signing keys of the provider', () => {
  it.each([
    ['a response with status 500', { jwksStatus: 500 }],
    ['an empty key set', { jwks: { keys: [] } }],
    ['an HTML page', { jwks: '<html>' }],
    ['a set without a usable key', { jwks: { keys: [{ use: 'sig' }, 7, null] } }],
  ])(
    'no code exchange is sent if the JWKS is %s, because the id token could not be verified',
    async (_, knobs) => {
      Object.assign(scripted.knobs, knobs)
      await reopen()
      const request = { state: 's', nonce: 'n', codeVerifier: new Secret('v'.repeat(43)) }
      await expect(provider.authorizationUrl(request)).rejects.toMatchObject({
        code: 'provider_unavailable',
        message: expect.stringContaining('jwks_uri'),
      })
      const code = new Secret(scripted.authorize())
      const exchange = { code, codeVerifier: null, nonce: 'n' }
      expect(await provider.exchangeCode(exchange)).toMatchObject({ kind: 'never_sent' })
      expect(scripted.requests).toHaveLength(0)
    },
  )

  it('the provider adapter ignores unusable keys in the JWKS (RFC 7517 §5)', async () => {
    const { keys } = scripted.knobs.jwks as { keys: unknown[] }
    scripted.knobs.jwks = { keys: [{ use: 'sig' }, 7, ...keys] }
    await reopen()
    expect((await authorize()).kind).toBe('granted')
  })

  it('the provider adapter fetches the JWKS again if an id token is signed with an unknown key', async () => {
    await granted()
    scripted.rotateKey()
    expect((await authorize()).kind).toBe('granted')
  })

  it('a refresh returns the new token pair without its id token if the JWKS is unavailable', async () => {
    const { refreshToken } = await granted()
    scripted.knobs.jwksStatus = 500
    scripted.rotateKey()
    expect(await provider.refresh(refreshToken as Secret)).toMatchObject({
      kind: 'granted',
      tokens: { idToken: null },
    })
  })
})

describe('a discovery document', () => {
  it.each([
    ['issuer is missing', { issuer: undefined }],
    ['issuer is malformed', { issuer: 'intuit' }],
    ['token_endpoint is missing', { token_endpoint: undefined }],
    ['token_endpoint is malformed', { token_endpoint: 'ftp://x/token' }],
    ['authorization_endpoint is missing', { authorization_endpoint: undefined }],
    ['jwks_uri is missing', { jwks_uri: undefined }],
    ['response_types_supported lacks code', { response_types_supported: ['token'] }],
    ['response_types_supported is malformed', { response_types_supported: 'code' }],
    ['grant_types_supported lacks authorization_code', { grant_types_supported: ['implicit'] }],
    [
      'token_endpoint_auth_methods_supported lacks client_secret_basic',
      { token_endpoint_auth_methods_supported: ['private_key_jwt'] },
    ],
    [
      'id_token_signing_alg_values_supported has no asymmetric algorithm',
      { id_token_signing_alg_values_supported: ['none', 'HS256'] },
    ],
    ['claims_supported is malformed', { claims_supported: 'nonce' }],
    [
      'authorization_response_iss_parameter_supported is malformed',
      { authorization_response_iss_parameter_supported: 'yes' },
    ],
  ])('a discovery document is rejected if %s', async (problem, metadata) => {
    scripted.knobs.metadata = metadata
    await reopen()
    expect((await provider.refresh(new Secret('rt-x'))).kind).toBe('never_sent')
    expect(health.report().dependencies['provider']).toMatchObject({
      status: 'down',
      reason: expect.stringContaining(problem),
    })
    const request = { state: 's', nonce: 'n', codeVerifier: new Secret('v'.repeat(43)) }
    await expect(provider.authorizationUrl(request)).rejects.toMatchObject({
      code: 'provider_unavailable',
      message: expect.stringContaining(problem),
    })
    expect(scripted.requests).toHaveLength(0)
  })

  it('the error for an unusable discovery document names each invalid member', async () => {
    scripted.knobs.metadata = { issuer: undefined, token_endpoint: 7, claims_supported: 'sub' }
    await reopen()
    await provider.refresh(new Secret('rt-x'))
    expect(health.report().dependencies['provider']).toMatchObject({
      reason:
        'the discovery document is not usable: issuer is missing; token_endpoint is malformed; claims_supported is malformed',
    })
  })

  it('a discovery document with unknown members or without optional members is accepted', async () => {
    scripted.knobs.metadata = {
      subject_types_supported: undefined,
      response_types_supported: undefined,
      id_token_signing_alg_values_supported: undefined,
      token_endpoint_auth_methods_supported: undefined,
      x_unknown: { any: ['thing'] },
    }
    await reopen()
    expect((await authorize()).kind).toBe('granted')
  })
})

describe('an invalid id token of a refresh', () => {
  it.each([
    ['sub', { sub: '' }],
    ['aud', { aud: 'another' }],
  ])(
    'a refresh whose id token has an invalid %s returns the new token pair without the id token',
    async (member, claims) => {
      const { refreshToken } = await granted()
      scripted.knobs.idTokenClaims = claims
      const outcome = await provider.refresh(refreshToken as Secret)
      expect(outcome).toMatchObject({ kind: 'granted', tokens: { idToken: null } })
      expect(outcome.kind === 'granted' && outcome.tokens.refreshToken?.reveal()).not.toBe(
        refreshToken?.reveal(),
      )
      expect(rejectedMembers).toEqual([member])
    },
  )
})
