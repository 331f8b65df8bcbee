import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'
import {
  CLIENT_ID,
  CLIENT_SECRET,
  type Misbehaviour,
  startTestProvider,
  type TestProvider,
} from '@integration-host/shared/test-support/openid-provider'

const ADA = { email: 'Ada@example.com', email_verified: true }

describe('signing in at an OpenID provider', () => {
  let provider: TestProvider
  let at: ConsoleFixture

  beforeAll(async () => {
    provider = await startTestProvider()
    at = await startConsoleFixture({
      SIGN_IN: 'link,oidc',
      OIDC_ISSUER: provider.issuer,
      OIDC_CLIENT_ID: CLIENT_ID,
      OIDC_CLIENT_SECRET: CLIENT_SECRET,
      OIDC_OPERATORS: 'ada@example.com, kate@example.com, group:operations, oidc:u-9',
      OIDC_VIEWERS: 'vera@example.com, group:support',
    })
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
    await provider?.[Symbol.asyncDispose]()
  })

  const navigate = (url: string, cookie = '', site = 'cross-site'): Promise<Response> =>
    fetch(url, { redirect: 'manual', headers: { 'Sec-Fetch-Site': site, Cookie: cookie } })
  const begin = (to: string): Promise<Response> =>
    navigate(`${at.url}/sign-in/oidc?to=${encodeURIComponent(to)}`, '', 'same-origin')
  const cookiesOf = (response: Response): string =>
    response.headers
      .getSetCookie()
      .filter((cookie) => !cookie.includes('Max-Age=0'))
      .map((cookie) => cookie.split(';')[0])
      .join('; ')

  /**
   * Opens the provider's page as this person. Returns the address to which the provider sends the
   * browser back.
   */
  async function toCallback(
    claims: Readonly<Record<string, unknown>>,
    misbehaviour: Misbehaviour = {},
    to = '/runs?status=Failed',
  ): Promise<{ readonly url: string; readonly cookie: string }> {
    provider.signInAs(claims, misbehaviour)
    const start = await begin(to)
    expect(start.status).toBe(302)
    const authorized = await navigate(start.headers.get('Location') ?? '')
    return { url: authorized.headers.get('Location') ?? '', cookie: cookiesOf(start) }
  }

  async function signIn(
    claims: Readonly<Record<string, unknown>>,
    misbehaviour?: Misbehaviour,
    to?: string,
  ) {
    const { url, cookie } = await toCallback(claims, misbehaviour, to)
    const response = await navigate(url, cookie)
    return { status: response.status, page: await response.text(), session: cookiesOf(response) }
  }
  const sessionOf = async (cookie: string): Promise<unknown> =>
    (await at.request('/api/session', { cookie })).json()

  it('the OpenID sign-in gives a person in OIDC_OPERATORS the role operator, and a person in OIDC_VIEWERS the role viewer', async () => {
    const ada = await signIn(ADA)
    expect(ada.status).toBe(200)
    expect(await sessionOf(ada.session)).toMatchObject({
      User: 'ada@example.com',
      Role: 'operator',
    })
    const vera = await signIn({ email: 'vera@example.com', email_verified: true })
    expect(await sessionOf(vera.session)).toMatchObject({
      User: 'vera@example.com',
      Role: 'viewer',
    })
    const act = (cookie: string) => at.request('/api/integrity', { method: 'POST', cookie })
    expect((await act(vera.session)).status).toBe(403)
    expect((await act(ada.session)).status).not.toBe(403)
  })

  it('a member of a listed group without an e-mail address is signed in under the subject of the id token', async () => {
    const one = await signIn({ sub: 'u-7', groups: ['people', 'support'] })
    expect(await sessionOf(one.session)).toMatchObject({ User: 'oidc:u-7', Role: 'viewer' })
    const both = await signIn({ sub: 'u-8', groups: ['support', 'operations'] })
    expect(await sessionOf(both.session)).toMatchObject({ User: 'oidc:u-8', Role: 'operator' })
  })

  it('a person whose address is not ASCII is an operator only by the subject of the provider', async () => {
    const person = { sub: 'u-9', email: 'kät\u212A@example.com', email_verified: true }
    const { session } = await signIn(person)
    expect(await sessionOf(session)).toMatchObject({ User: 'oidc:u-9', Role: 'operator' })
  })

  it.each([
    ['in neither list', { email: 'mallory@example.com', email_verified: true }],
    ['with an e-mail address that the provider has not verified', { email: ADA.email }],
    ['with a false email_verified', { ...ADA, email_verified: false }],
    ['with email_verified as a text', { ...ADA, email_verified: 'true' }],
    [
      'whose address has a Kelvin sign for its k',
      { email: '\u212Aate@example.com', email_verified: true },
    ],
    [
      'whose address has a full-width letter',
      { email: '\uff4bate@example.com', email_verified: true },
    ],
    [
      'whose address has a Cyrillic letter',
      { email: '\u0430da@example.com', email_verified: true },
    ],
    [
      'whose address has an invisible character',
      { email: 'a\u200bda@example.com', email_verified: true },
    ],
    ['of an unlisted group', { groups: ['group:operations'] }],
  ])('the OpenID sign-in rejects a person %s with 403', async (_, claims) => {
    const { status, page, session } = await signIn(claims)
    expect([status, session]).toEqual([403, ''])
    expect(page).toContain('may not use the console')
  })

  it.each<[string, Misbehaviour, Readonly<Record<string, unknown>>]>([
    ['another state', { callback: (query) => query.set('state', 'other') }, ADA],
    ['no state', { callback: (query) => query.delete('state') }, ADA],
    ['another issuer', { callback: (query) => query.set('iss', 'https://evil.example') }, ADA],
    ['no issuer', { callback: (query) => query.delete('iss') }, ADA],
    ['another code', { callback: (query) => query.set('code', 'other') }, ADA],
    ['another nonce in the id token', {}, { ...ADA, nonce: 'other' }],
    ['no nonce in the id token', {}, { ...ADA, nonce: undefined }],
    ['another issuer in the id token', {}, { ...ADA, iss: 'https://evil.example' }],
    ['another audience in the id token', {}, { ...ADA, aud: 'another-client' }],
    ['an expired id token', {}, { ...ADA, iat: 1_700_000_000, exp: 1_700_000_300 }],
    ['an id token of another key', { hasForeignKey: true }, ADA],
    ['an error', { callback: (query) => query.set('error', 'access_denied') }, ADA],
  ])('the OpenID sign-in rejects a response with %s', async (_, misbehaviour, claims) => {
    const { status, session } = await signIn(claims, misbehaviour)
    expect([status, session]).toEqual([401, ''])
  })

  it('the OpenID sign-in distinguishes a failure of the provider from a rejected person', async () => {
    const { status, page } = await signIn(ADA, { status: 503 })
    expect(status).toBe(503)
    expect(page).toContain('The sign-in provider does not respond')
  })

  it('the OpenID sign-in accepts a callback only once, and only from the browser that began the sign-in', async () => {
    const { url, cookie } = await toCallback(ADA)
    expect((await navigate(url)).status).toBe(401)
    expect((await navigate(url, cookie)).status).toBe(200)
    expect((await navigate(url, cookie)).status).toBe(401)
    const other = await toCallback(ADA)
    expect((await navigate(other.url, (await toCallback(ADA)).cookie)).status).toBe(401)
  })

  it('other sites, images and HEAD requests begin no OpenID sign-in', async () => {
    const start = `${at.url}/sign-in/oidc?to=/runs`
    for (const site of ['cross-site', 'same-site']) {
      const { status, headers } = await navigate(start, '', site)
      expect([status, headers.get('Location'), headers.getSetCookie()]).toEqual([
        302,
        `${at.url}/runs`,
        [],
      ])
    }
    for (const path of ['/sign-in/oidc', '/sign-in/callback']) {
      const head = await fetch(at.url + path, { method: 'HEAD', redirect: 'manual' })
      expect([head.status, head.headers.get('Allow')]).toEqual([405, 'GET'])
      // fetch does not allow callers to set Sec-Fetch-Dest, so node:http is used.
      for (const destination of ['image', 'iframe', 'empty', 'script']) {
        const outgoing = request(at.url + path, { headers: { 'Sec-Fetch-Dest': destination } })
        const [response] = (await once(outgoing.end(), 'response')) as [IncomingMessage]
        response.resume()
        expect([response.statusCode, response.headers['set-cookie']]).toEqual([400, undefined])
      }
    }
  })

  it('the log has a limited number of lines about rejected sign-ins, which anyone can cause', async () => {
    for (let count = 0; count < 100; count += 1)
      expect((await navigate(`${at.url}/sign-in/callback?code=c&state=${count}`)).status).toBe(401)
    expect(at.log().split('sign-in was rejected').length).toBeLessThanOrEqual(31)
  })

  it('the OpenID callback sets the SameSite=Strict cookie, and responds with a page that leads only to pages of the console', async () => {
    const { url, cookie } = await toCallback(ADA)
    const response = await navigate(url, cookie)
    const session = response.headers.getSetCookie().find((one) => one.startsWith('console='))
    expect(session).toContain('HttpOnly; SameSite=Strict')
    expect(await response.text()).toContain('content="0;url=/runs?status=Failed"')
    const address = '/runs/P/66?run=1#attempts'
    expect((await signIn(ADA, {}, address)).page).toContain(`content="0;url=${address}"`)
    for (const to of [
      'https://evil.example/',
      '//evil.example/',
      '/\\evil.example/',
      '/..//evil.example',
      'javascript:alert(1)',
      '/sign-in/oidc',
      `/${'x'.repeat(600)}`,
      `/${'€'.repeat(200)}`,
    ])
      expect((await signIn(ADA, {}, to)).page, to).toContain('content="0;url=/"')
    expect((await signIn(ADA, {}, '/runs?"><script>')).page).not.toContain('<script>')
  })

  it('neither the pages nor the log of the OpenID sign-in contain a code or a token of the provider', async () => {
    const { page, session } = await signIn(ADA)
    await signIn(ADA, { hasForeignKey: true })
    await signIn(ADA, { callback: (query) => query.set('state', 'other') })
    const shown = page + session + at.log()
    expect(provider.secrets.length).toBeGreaterThan(4)
    for (const secret of [...provider.secrets, CLIENT_SECRET]) expect(shown).not.toContain(secret)
    expect(at.log()).toContain('JWT signature verification failed')
  })
})

it('the console authenticates by HTTP Basic at an OpenID provider that names no other method', async () => {
  await using provider = await startTestProvider('client_secret_basic')
  await using at = await startConsoleFixture({
    SIGN_IN: 'oidc',
    OIDC_ISSUER: provider.issuer,
    OIDC_CLIENT_ID: CLIENT_ID,
    OIDC_CLIENT_SECRET: CLIENT_SECRET,
    OIDC_OPERATORS: 'ada@example.com',
  })
  provider.signInAs(ADA)
  const start = await fetch(`${at.url}/sign-in/oidc`, { redirect: 'manual' })
  const Cookie = start.headers.getSetCookie()[0]?.split(';')[0] ?? ''
  const atProvider = start.headers.get('Location') ?? ''
  const back = await fetch(atProvider, { redirect: 'manual' })
  const signedIn = await fetch(back.headers.get('Location') ?? '', { headers: { Cookie } })
  expect(signedIn.status).toBe(200)
})

it('the console starts while its OpenID provider is unavailable, and reports the failure when a person signs in', async () => {
  await using at = await startConsoleFixture({
    SIGN_IN: 'oidc',
    OIDC_ISSUER: 'http://127.0.0.1:9',
    OIDC_CLIENT_ID: CLIENT_ID,
    OIDC_CLIENT_SECRET: CLIENT_SECRET,
    OIDC_VIEWERS: 'vera@example.com',
  })
  const options: unknown = await (await at.request('/api/sign-in')).json()
  expect(options).toEqual({ Ways: ['oidc'], Provider: '127.0.0.1:9' })
  const response = await fetch(`${at.url}/sign-in/oidc`, { redirect: 'manual' })
  expect([response.status, response.headers.get('Content-Type')]).toEqual([
    503,
    'text/html; charset=UTF-8',
  ])
})
