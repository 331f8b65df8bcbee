/** Tests that an OpenID provider confirms the person of a session every 15 minutes, without a page for the person. */
import {
  CLIENT_ID,
  CLIENT_SECRET,
  type Misbehaviour,
  startTestProvider,
  type TestProvider,
} from '@integration-host/shared/test-support/openid-provider'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'
import { createMemoryRequestStore, createMemorySessionStore } from '../adapters/memory/stores.ts'
import type { Session } from '../session/stores.ts'
import { CHECK_MS } from '../session/sessions.ts'

const ADA = { email: 'ada@example.com', email_verified: true, groups: ['support'] }

describe('the confirmation of a session by the OpenID provider', () => {
  let provider: TestProvider
  let at: ConsoleFixture
  let stores: ReturnType<typeof createStores>
  const createStores = () => ({
    sessions: createMemorySessionStore(Date.now),
    actions: { increment: async () => 1, read: async () => 1 },
    requests: createMemoryRequestStore(() => 0),
  })
  const env = (more: Readonly<Record<string, string>> = {}) => ({
    SIGN_IN: 'oidc',
    OIDC_ISSUER: provider.issuer,
    OIDC_CLIENT_ID: CLIENT_ID,
    OIDC_CLIENT_SECRET: CLIENT_SECRET,
    OIDC_OPERATORS: 'ada@example.com',
    OIDC_VIEWERS: 'group:support',
    ...more,
  })
  beforeAll(async () => {
    provider = await startTestProvider()
  })
  afterAll(() => provider[Symbol.asyncDispose]())
  beforeEach(async () => {
    stores = createStores()
    at = await startConsoleFixture(env(), stores)
  })
  afterEach(() => at[Symbol.asyncDispose]())

  const navigate = (url: string, cookie: string, site: string): Promise<Response> =>
    fetch(url, { redirect: 'manual', headers: { 'Sec-Fetch-Site': site, Cookie: cookie } })
  const cookieOf = (response: Response, name: string): string =>
    response.headers
      .getSetCookie()
      .map((cookie) => cookie.split(';')[0] ?? '')
      .find((cookie) => cookie.startsWith(`${name}=`)) ?? ''

  /** Sends the browser to the provider and back, with the cookie of a session. Returns the last response. */
  async function throughProvider(
    session: string,
    claims: Readonly<Record<string, unknown>>,
    misbehaviour: Misbehaviour = {},
  ) {
    provider.signInAs(claims, misbehaviour)
    const begun = await navigate(`${at.url}/sign-in/oidc?to=/runs`, session, 'same-origin')
    const request = new URL(begun.headers.get('Location') ?? '')
    const back = await navigate(request.href, '', 'cross-site')
    const flow = cookieOf(begun, 'console-sign-in')
    // The provider is another site, so the browser does not send the strict cookie of the session.
    const response = await navigate(back.headers.get('Location') ?? '', flow, 'cross-site')
    return { request: request.searchParams, response, flow }
  }
  const signIn = async (claims: Readonly<Record<string, unknown>> = ADA): Promise<string> =>
    cookieOf((await throughProvider('', claims)).response, 'console')
  const read = async (cookie: string, console = at) => {
    const response = await console.request('/api/session', { cookie })
    const { code, Role } = (await response.json()) as { code?: string; Role?: string }
    return code ?? Role
  }
  /** Changes the stored sessions. */
  async function change(alter: (session: Session) => Session): Promise<void> {
    for (const session of await stores.sessions.all()) await stores.sessions.put(alter(session))
  }
  const wait15Minutes = () =>
    change((session) => ({ ...session, checkedAt: Date.now() - CHECK_MS }))

  it('a session is not valid 15 minutes after the provider has confirmed it, and its event stream ends', async () => {
    const session = await signIn()
    const stream = await at.request('/api/stream', { cookie: session })
    await wait15Minutes()
    expect(await read(session)).toBe('sign_in_check_needed')
    expect(await stream.text()).toContain('"signed_out"')
  })

  it('the provider confirms a session without a page, and the session continues with the same cookie', async () => {
    const session = await signIn()
    await wait15Minutes()
    const { request, response } = await throughProvider(session, ADA)
    expect([request.get('prompt'), request.get('login_hint')]).toEqual(['none', ADA.email])
    expect([response.status, cookieOf(response, 'console')]).toEqual([200, ''])
    expect(await response.text()).toContain('0;url=/runs')
    expect(await read(session)).toBe('operator')
    expect(await stores.sessions.all()).toHaveLength(1)
  })

  it('a first sign-in lets the provider show its page', async () => {
    const { request } = await throughProvider('', ADA)
    expect([request.has('prompt'), request.has('login_hint')]).toEqual([false, false])
  })

  it.each(['login_required', 'interaction_required', 'consent_required'])(
    'the session ends if the provider responds %s, and the person sees the sign-in page',
    async (error) => {
      const session = await signIn()
      const { response } = await throughProvider(session, ADA, {
        callback(query) {
          query.delete('code')
          query.set('error', error)
        },
      })
      expect(await response.text()).toContain('0;url=/runs')
      expect(await read(session)).toBe('sign_in_needed')
      expect(await stores.sessions.all()).toEqual([])
    },
  )

  it('the session ends if the lists no longer name the person, and continues with a lower role', async () => {
    const session = await signIn()
    await throughProvider(session, { ...ADA, email: 'ada@example.org' })
    expect(await read(session)).toBe('sign_in_needed') // it is another person
    const other = await signIn()
    const { response } = await throughProvider(other, { email: 'eve@example.com' })
    expect([response.status, await read(other)]).toEqual([403, 'sign_in_needed'])
  })

  it('a forged callback does not end a session', async () => {
    const session = await signIn()
    const { response } = await throughProvider(session, ADA, {
      callback(query) {
        query.delete('code')
        query.set('error', 'login_required')
        query.set('state', 'another')
      },
    })
    expect([response.status, await read(session)]).toEqual([401, 'operator'])
  })

  it('a session that was ended while its person was at the provider does not continue', async () => {
    const session = await signIn()
    provider.signInAs(ADA)
    const begun = await navigate(`${at.url}/sign-in/oidc`, session, 'same-origin')
    for (const { digest } of await stores.sessions.all()) await stores.sessions.remove(digest)
    const back = await navigate(begun.headers.get('Location') ?? '', '', 'cross-site')
    const flow = cookieOf(begun, 'console-sign-in')
    await navigate(back.headers.get('Location') ?? '', flow, 'cross-site')
    expect(await read(session)).toBe('sign_in_needed')
  })

  it('a session is authorized by the lists of the present console, also one that the release before has stored', async () => {
    const session = await signIn()
    await using lowered = await startConsoleFixture(
      env({ OIDC_OPERATORS: 'x@example.com' }),
      stores,
    )
    expect(await read(session, lowered)).toBe('viewer') // by the group
    const lists = { OIDC_OPERATORS: 'x@example.com', OIDC_VIEWERS: '' }
    await using removed = await startConsoleFixture(env(lists), stores)
    expect(await read(session, removed)).toBe('sign_in_needed')
    const other = await signIn()
    await change((stored) => ({ ...stored, checkedAt: undefined, named: undefined }))
    expect(await read(other)).toBe('operator')
    await change((stored) => ({ ...stored, createdAt: Date.now() - CHECK_MS }))
    expect(await read(other)).toBe('sign_in_check_needed')
  })
})
