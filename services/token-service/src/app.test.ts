/**
 * Tests of the HTTP routes over the embedded adapters: the authorization code flow, service keys, rejected input, and
 * secrets that must not be logged.
 */
import { once } from 'node:events'
import { get, type IncomingMessage } from 'node:http'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { AccessTokenView, CredentialView } from '@integration-host/shared/contracts/credential'
import { createLogger } from '@integration-host/shared/observability/logger'
import { postJson } from '@integration-host/shared/test-support/post-json'
import * as browser from '../test-support/browser.ts'
import {
  CLIENT_SECRET,
  type ScriptedProvider,
  startScriptedProvider,
} from '../test-support/scripted-provider.ts'
import {
  json,
  SERVICE_KEY,
  startFileService,
  type TestService,
} from '../test-support/service-fixture.ts'

const RETURN_TO = 'http://localhost:3000/settings?tab=1'

let provider: ScriptedProvider
let service: TestService
let closing: AsyncDisposableStack
let log: string

async function open(env: Record<string, string> = {}): Promise<void> {
  closing = new AsyncDisposableStack()
  provider = closing.use(await startScriptedProvider())
  log = ''
  const logger = createLogger('token-service', 'trace', {
    write: (line: string) => void (log += line),
  })
  service = await startFileService(closing, { provider, logger, env })
}

const startInBrowser = (query?: string, cookie?: string) =>
  browser.startInBrowser(service.url, query, cookie)
const callback = (
  query: Readonly<Record<string, string>> | string,
  cookie?: string,
  headers?: Readonly<Record<string, string>>,
) => browser.callBack(service.url, query, cookie, headers)
const problem = async (answer: Response) => ({
  status: answer.status,
  code: ((await answer.json()) as { code: string }).code,
})
/** Sends a GET by node:http, because fetch sets Sec-Fetch headers itself. */
async function rawGet(url: string, headers: Readonly<Record<string, string>>) {
  const [response] = (await once(get(url, { headers, agent: false }), 'response')) as [
    IncomingMessage,
  ]
  response.resume()
  const { location, 'set-cookie': cookie } = response.headers
  return { status: response.statusCode, location, cookie }
}
const exchanges = () => provider.requests.filter(({ grant }) => grant === 'authorization_code')

describe('the authorization code flow', () => {
  beforeEach(() => open())
  afterEach(() => closing.disposeAsync())

  it('a browser callback stores a credential and redirects the browser to an address without secrets', async () => {
    const { answer, consent, setCookie, cookie, state } = await startInBrowser()
    expect([
      answer.status,
      answer.headers.get('Cache-Control'),
      answer.headers.get('Referrer-Policy'),
    ]).toEqual([302, 'no-store', 'no-referrer'])
    expect(setCookie).toMatch(
      /^authorization=[\w-]{43}; Max-Age=600; Path=\/; HttpOnly; SameSite=Lax$/,
    )
    expect(consent.searchParams.get('code_challenge_method')).toBe('S256')
    const code = provider.authorize(consent)
    const finished = await callback({ code, realmId: '9341453908059889', state }, cookie)
    expect([finished.status, finished.headers.get('Location')]).toEqual([
      302,
      '/connected?name=ACC-9341453908059889',
    ])
    const page = await fetch(service.url + finished.headers.get('Location'))
    expect([page.status, await page.text()]).toEqual([
      200,
      expect.stringContaining('ACC-9341453908059889 is connected'),
    ])
    const { body } = await service.ask('/credentials/ACC-9341453908059889')
    expect(CredentialView.parse(body)).toMatchObject({
      Environment: '9341453908059889',
      Version: 1,
      Status: 'active',
    })
  })

  it('token-service accepts a callback without a cookie if a holder of a service key started the authorization', async () => {
    const { status, body } = await service.ask(
      '/authorizations',
      json({ return_to: RETURN_TO, realm: '77' }),
    )
    expect([status, Date.parse(String(body['expires_at'])) > Date.now()]).toEqual([201, true])
    const url = new URL(String(body['url']))
    expect(url.searchParams.get('state')).toBe(body['state'])
    const finished = await callback({
      Code: provider.authorize(url),
      RealmID: '77',
      state: String(body['state']),
    })
    expect([finished.status, finished.headers.get('Location')]).toEqual([302, RETURN_TO])
  })

  it('a callback that names another company than its authorization is rejected, and its code is not sent to the provider', async () => {
    const { body } = await service.ask('/authorizations', json({ realm: '77' }))
    const code = provider.authorize(new URL(String(body['url'])))
    expect(
      await problem(await callback({ code, realmId: '78', state: String(body['state']) })),
    ).toEqual({ status: 409, code: 'realm_mismatch' })
    expect(exchanges()).toHaveLength(0)
    expect((await service.ask('/credentials/ACC-78')).status).toBe(404)
  })

  it('token-service reports a denied authorization and stores nothing', async () => {
    const started = await startInBrowser()
    const denied = await callback(
      { error: 'access_denied', error_description: '<script>', state: started.state },
      started.cookie,
    )
    expect(await problem(denied)).toEqual({ status: 400, code: 'authorization_denied' })
    // The state cannot be used again after the company's owner has denied the authorization.
    const code = provider.authorize(started.consent)
    expect(
      (await callback({ code, realmId: '1', state: started.state }, started.cookie)).status,
    ).toBe(400)
    const again = await startInBrowser(`?return_to=${encodeURIComponent(RETURN_TO)}`)
    const told = await callback({ error: 'access_denied', state: again.state }, again.cookie)
    expect([told.status, told.headers.get('Location')]).toEqual([
      302,
      `${RETURN_TO}&error=access_denied`,
    ])
    expect(exchanges()).toHaveLength(0)
    expect((await service.ask('/credentials')).body['items']).toEqual([])
  })

  it.each([
    ['', /<form method="get" action="authorize">\s*<button>Start again/],
    [
      `?return_to=${encodeURIComponent(RETURN_TO)}`,
      /<input type="hidden" name="return_to" value="http[^]*<button>Start again/,
    ],
  ])(
    'the page of a failed authorization that began at /authorize%s offers to start again with the same return_to',
    async (query, form) => {
      const started = await startInBrowser(query)
      const headers = { Accept: 'text/html' }
      const failed = await callback({ code: 'x', state: started.state }, started.cookie, headers)
      expect(failed.status).toBe(400)
      expect(failed.headers.get('Content-Type')).toContain('text/html')
      const page = await failed.text()
      expect(page).toContain('<h1>The authorization cannot be completed</h1>')
      expect(page).toMatch(form)
      const foreign = await callback({ code: 'x', state: started.state }, '', headers)
      expect(await foreign.text()).not.toContain('<form')
    },
  )

  it('the page of a failed authorization that a holder of a service key started leads back to return_to', async () => {
    for (const [body, link] of [
      [{ realm: '77', return_to: RETURN_TO }, `<a href="${RETURN_TO.replaceAll('&', '&amp;')}">`],
      [{ realm: '77' }, null],
    ] as const) {
      const started = (await service.ask('/authorizations', json(body))).body
      const code = provider.authorize(new URL(String(started['url'])))
      const query = { code, realmId: '78', state: String(started['state']) }
      const text = await (await callback(query, '', { Accept: 'text/html' })).text()
      expect(text).not.toContain('<form')
      if (link === null) expect(text).not.toContain('<a ')
      else expect(text).toContain(link)
    }
  })

  it('a HEAD request to /authorize starts no authorization', async () => {
    const response = await fetch(`${service.url}/authorize`, { method: 'HEAD', redirect: 'manual' })
    const { status, headers } = response
    expect([status, headers.get('Allow'), headers.get('Location'), headers.getSetCookie()]).toEqual(
      [405, 'GET', null, []],
    )
  })

  it.each(['image', 'iframe', 'script', 'empty', 'object', ''])(
    'a browser request to /authorize with Sec-Fetch-Dest "%s" starts no authorization',
    async (destination) => {
      const headers = { 'Sec-Fetch-Dest': destination }
      const { status, location, cookie } = await rawGet(`${service.url}/authorize`, headers)
      expect([status, location, cookie]).toEqual([400, undefined, undefined])
    },
  )

  it('a browser navigation to /authorize (Sec-Fetch-Dest "document") starts an authorization', async () => {
    const headers = { 'Sec-Fetch-Dest': 'document' }
    const { status, location } = await rawGet(`${service.url}/authorize`, headers)
    expect([status, location]).toEqual([302, expect.stringContaining(provider.url)])
  })

  it('a HEAD request to /callback does not use up the state of its authorization', async () => {
    const started = await startInBrowser()
    const query = { code: provider.authorize(started.consent), realmId: '1', state: started.state }
    const path = `${service.url}/callback?${new URLSearchParams(query).toString()}`
    const looked = await fetch(path, { method: 'HEAD', headers: { Cookie: started.cookie } })
    expect([looked.status, looked.headers.get('Allow')]).toEqual([405, 'GET, POST'])
    expect((await callback(query, started.cookie)).status).toBe(302)
  })

  it('an authorization request with two return_to parameters is rejected', async () => {
    expect(
      (await startInBrowser('?return_to=http://localhost/a&return_to=http://localhost/b')).answer
        .status,
    ).toBe(400)
  })
})

describe('an authorization with an https REDIRECT and RETURN_TO_ORIGINS', () => {
  beforeEach(() =>
    open({
      REDIRECT: 'https://tokens.example.com/callback',
      RETURN_TO_ORIGINS: 'https://app.example.com, https://b.example.com',
    }),
  )
  afterEach(() => closing.disposeAsync())

  it('if the redirect URI is https, the authorization cookie is bound to the host and sent over https only', async () => {
    const { setCookie } = await startInBrowser()
    expect(setCookie).toMatch(
      /^__Host-authorization=[\w-]{43}; Max-Age=600; Path=\/; HttpOnly; Secure; SameSite=Lax$/,
    )
  })

  it('a return_to is accepted only if RETURN_TO_ORIGINS contains its origin', async () => {
    for (const [returnTo, status] of [
      ['https://b.example.com/x', 201],
      ['https://app.example.com:444/', 400],
      ['http://app.example.com/', 400],
      ['http://localhost/', 400],
    ] as const) {
      expect([
        returnTo,
        (await service.ask('/authorizations', json({ return_to: returnTo }))).status,
      ]).toEqual([returnTo, status])
    }
  })
})

describe('a code that another application received and posts to /callback', () => {
  beforeEach(() => open())
  afterEach(() => closing.disposeAsync())
  const post = (code: string, realm = '1') =>
    service.ask('/callback', json({ RealmID: realm, Code: code }))

  it('a code that is posted to /callback concurrently and repeatedly is exchanged only once', async () => {
    const code = provider.authorize()
    provider.knobs.latencyMs = 50
    const answers = await Promise.all(Array.from({ length: 10 }, () => post(code)))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]))
    expect(CredentialView.parse(answers[0]?.body)).toMatchObject({ Name: 'ACC-1', Version: 1 })
    const later = await post(code)
    expect(later).toEqual(answers[0])
    expect(exchanges()).toHaveLength(1)
    expect((await post(code, '2')).body['code']).toBe('authorization_invalid')
    expect((await service.ask('/credentials/ACC-2')).status).toBe(404)
  })

  it('if the provider rejects a code that is posted to /callback, the code is not sent again and no credential is stored', async () => {
    const refused = await post('no-such-code')
    expect([refused.status, refused.body['code'], refused.body['detail']]).toEqual([
      502,
      'code_exchange_failed',
      'the provider rejected the code: invalid_grant (trace id trace-1-0123456789)',
    ])
    expect(await post('no-such-code')).toMatchObject({
      status: 502,
      body: { code: 'code_exchange_failed' },
    })
    expect(exchanges()).toHaveLength(1)
    expect((await service.ask('/credentials')).body['items']).toEqual([])
  })

  it('a code that is posted to /callback is sent to the provider at most three times if no response is usable', async () => {
    provider.script({ cuts: 'before' }, { status: 500, body: 'x' })
    expect((await post(provider.authorize())).status).toBe(201)
    expect(exchanges()).toHaveLength(3)
    expect(provider.mostAtOnce).toBe(1)
    provider.script({ cuts: 'before' }, { status: 500, body: 'x' }, { body: '<html>' }, {})
    expect((await post(provider.authorize())).status).toBe(502)
    expect(exchanges()).toHaveLength(6)
  })

  it.each([
    ['400', { status: 400, body: '{"error":"invalid_request"}' }],
    ['401', { status: 401, body: '{"error":"invalid_client"}' }],
    ['429', { status: 429, body: '' }],
  ])('a code exchange is not retried after a response with status %s', async (_, step) => {
    provider.script(step)
    expect((await post(provider.authorize())).status).toBe(502)
    expect(exchanges()).toHaveLength(1)
  })
})

describe('access to the routes', () => {
  beforeAll(() => open())
  afterAll(() => closing.disposeAsync())

  it.each(['/health/live', '/health/ready', '/metrics', '/openapi.json', '/docs', '/connected'])(
    'token-service serves GET %s without a key, and its response shows no secret and no realm',
    async (path) => {
      await service.connect('4620816365291')
      const answer = await fetch(service.url + path)
      const text = await answer.text()
      expect([answer.status, text.includes('4620816365291'), text.includes(SERVICE_KEY)]).toEqual([
        200,
        false,
        false,
      ])
    },
  )

  it('token-service accepts each key of SERVICE_API_KEYS', async () => {
    await closing.disposeAsync()
    await open({ SERVICE_API_KEYS: 'another-key-0123456789-0123456789-01' })
    const answer = await service.call('/credentials', {
      headers: { Authorization: 'Bearer another-key-0123456789-0123456789-01' },
    })
    expect(answer.status).toBe(200)
  })

  const names = [
    'ACC-',
    'acc-1',
    'ACC-1*',
    'ACC-1%0A',
    'ACC-..%2Fx',
    'lease:ACC-1',
    '1',
    `ACC-${'1'.repeat(65)}`,
    'ACC-%E2%80%AE1',
    'ACC-1%00',
    '__proto__',
    'credentials:due',
  ]
  it.each(
    names.flatMap((name) => [
      ['GET', `/credentials/${name}`],
      ['GET', `/credentials/${name}/token`],
      ['POST', `/credentials/${name}/refresh`],
      ['DELETE', `/credentials/${name}`],
    ]),
  )(
    'token-service responds 400 to %s %s, because the path contains an invalid credential name',
    async (method, path) => {
      const { status, body } = await service.ask(path, { method })
      expect([status, body['code']]).toEqual([400, 'invalid_request'])
    },
  )

  it.each(['/credentials/ACC-404', '/credentials/ACC-404/token'])(
    'token-service responds 404 to GET %s of an unknown credential',
    async (path) => {
      expect(await service.ask(path)).toMatchObject({
        status: 404,
        body: { code: 'credential_not_found' },
      })
    },
  )
  it('token-service responds 404 to a refresh and a removal of an unknown credential', async () => {
    expect((await service.ask('/credentials/ACC-404/refresh', { method: 'POST' })).status).toBe(404)
    expect((await service.ask('/credentials/ACC-404/refresh', json({ Version: 3 }))).status).toBe(
      404,
    )
    expect((await service.ask('/credentials/ACC-404', { method: 'DELETE' })).status).toBe(404)
  })

  it.each([
    '/credentials?limt=1',
    '/credentials?limit=1&limt=1',
    '/credentials/ACC-1?limt=1',
    '/credentials/ACC-1/token?limt=1',
    '/key-check?limt=1',
    '/audit?limt=1',
  ])(
    'token-service responds 400 to GET %s with an unknown query parameter, and names the parameter',
    async (path) => {
      const { status, body } = await service.ask(path)
      expect([status, body['code']]).toEqual([400, 'invalid_request'])
      expect(body['errors']).toEqual(['limt: is not a query parameter of this path'])
    },
  )

  it.each(['/health/live', '/health/ready', '/metrics', '/openapi.json', '/docs'])(
    'token-service ignores unknown query parameters of GET %s',
    async (path) => {
      expect((await service.call(`${path}?limt=1`)).status).toBe(200)
    },
  )

  it('token-service ignores unknown query parameters of GET /callback (RFC 6749 §4.1.2)', async () => {
    const { status, body } = await service.ask('/callback?limt=1')
    expect([status, body['code']]).toEqual([400, 'authorization_invalid'])
  })

  const bodies: readonly (readonly [string, string, number])[] = [
    ['malformed JSON', '{', 400],
    ['null', 'null', 400],
    ['an array', '[]', 400],
    ['a JSON string', '"x"', 400],
    ['a number', '1', 400],
    ['a comment', '{/* */}', 400],
    ['two JSON values', '{}{}', 400],
    ['members that shadow a prototype', '{"constructor":{"prototype":{"x":1}}}', 400],
    ['members of the stored record', '{"Version":1,"kid":"k1","Authenticator":"x"}', 400],
    [
      'an unknown member',
      '{"RealmID":"1","Code":"c","kid":"x","Version":1,"return_to":"http://localhost/","realm":"1"}',
      400,
    ],
    [
      'a number as RealmID, realm or Version',
      '{"RealmID":9341453908059889,"Code":"c","realm":1,"Version":"1"}',
      400,
    ],
    ['the member __proto__', '{"__proto__":{"RealmID":"1","Code":"c"},"x":1}', 400],
    ['7,000 nested arrays', `${'['.repeat(7_000)}${']'.repeat(7_000)}`, 400],
    ['20 kB, more than the limit', JSON.stringify({ Code: 'x'.repeat(20_000) }), 413],
  ]
  it.each(
    ['/authorizations', '/callback', '/credentials/ACC-1/refresh'].flatMap((path) =>
      bodies.map(([what, body, status]) => [path, what, status, body] as const),
    ),
  )(
    'a POST to %s with %s as its body gets the status %d, without a request to the provider',
    async (path, _, status, body) => {
      const seen = provider.requests.length
      const answer = await service.call(path, { ...json(null), body })
      expect(answer.status).toBe(status)
      expect(answer.headers.get('Content-Type')).toContain('application/problem+json')
      expect(answer.headers.get('Cache-Control')).toBe('no-store')
      expect(provider.requests).toHaveLength(seen)
    },
  )
  it.each([
    '{"Version":0}',
    '{"Version":-1}',
    '{"Version":1.5}',
    '{"Version":"1"}',
    '{"Version":1e300}',
    '{"Version":null}',
  ])('token-service responds 400 to a refresh with the body %s', async (body) => {
    expect((await service.call('/credentials/ACC-1/refresh', { ...json(null), body })).status).toBe(
      400,
    )
  })
  it.each([
    '',
    '{"RealmID":"1"}',
    '{"Code":"c"}',
    '{"RealmID":"","Code":"c"}',
    '{"RealmID":"1","Code":""}',
    '{"RealmID":"../1","Code":"c"}',
    '{"RealmID":"1","Code":"a b"}',
  ])('token-service responds 400 to POST /callback with the body %j', async (body) => {
    expect((await service.call('/callback', { ...json(null), body })).status).toBe(400)
  })
})

describe('the credential routes', () => {
  beforeEach(() => open())
  afterEach(() => closing.disposeAsync())

  it('the response that issues an access token conforms to AccessTokenView and has Cache-Control: no-store', async () => {
    await service.connect('1')
    const answer = await service.call('/credentials/ACC-1/token')
    expect([answer.status, answer.headers.get('Cache-Control')]).toEqual([200, 'no-store'])
    const view = AccessTokenView.strict().parse(await answer.json())
    expect(view).toMatchObject({
      Name: 'ACC-1',
      Version: 1,
      Authenticator: expect.stringMatching(/^at-/),
    })
  })

  it.each([
    ['confirms the revocation', 200, 'confirmed'],
    ['rejects the revocation', 400, 'unconfirmed'],
    ['is unavailable', 503, 'unconfirmed'],
  ])(
    'removing a credential succeeds if the provider %s, and the header Revocation reports the result of the revocation',
    async (_, status, revocation) => {
      await service.connect('1')
      provider.knobs.revocationStatus = status
      const removed = await service.call('/credentials/ACC-1', { method: 'DELETE' })
      expect([removed.status, removed.headers.get('Revocation')]).toEqual([204, revocation])
      expect(provider.revocations).toHaveLength(1)
      expect((await service.ask('/credentials/ACC-1')).status).toBe(404)
      expect((await service.ask('/credentials/ACC-1', { method: 'DELETE' })).status).toBe(404)
    },
  )

  it('the removal of a credential accepts erase=true and erase=false, and rejects every other query parameter', async () => {
    for (const query of ['?erase=1', '?erase=', '?Erase=true', '?erase=true&other=1']) {
      await service.connect('1')
      const rejected = await service.ask(`/credentials/ACC-1${query}`, { method: 'DELETE' })
      expect([query, rejected.status]).toEqual([query, 400])
    }
    for (const query of ['?erase=true', '?erase=false']) {
      await service.connect('1')
      const removed = await service.call(`/credentials/ACC-1${query}`, { method: 'DELETE' })
      expect([query, removed.status]).toEqual([query, 204])
    }
  })

  it('the removal of a credential with erase=true deletes the connect links of its company, and no other link', async () => {
    const link = async (realm?: string) => {
      const created = await service.ask(
        '/connect-links',
        postJson({ label: 'Bakery', ...(realm !== undefined && { realm }) }),
      )
      return created.body['id'] as string
    }
    const stored = async () => {
      const page = await service.ask('/connect-links')
      return (page.body['items'] as { id: string }[]).map(({ id }) => id)
    }
    const remove = (query: string) =>
      service.ask(`/credentials/ACC-1${query}`, { method: 'DELETE' })
    const kept = [await link('2'), await link()]
    const own = await link('1')
    await service.connect('1')
    await remove('')
    expect(await stored()).toContain(own)
    // A removal that was interrupted after it had removed the credential can be repeated.
    expect((await remove('?erase=true')).status).toBe(404)
    expect((await stored()).toSorted()).toEqual(kept.toSorted())
    await link('1')
    await service.connect('1')
    expect((await remove('?erase=true')).status).toBe(204)
    expect((await stored()).toSorted()).toEqual(kept.toSorted())
  })

  it('the metrics expose no realm by default', async () => {
    await service.connect('4620816365291')
    await service.ask('/credentials/ACC-4620816365291/refresh', { method: 'POST' })
    const metrics = await (await fetch(`${service.url}/metrics`)).text()
    expect(metrics).toContain(
      'credential_refreshes_total{outcome="refreshed",class="",service="token-service"} 1',
    )
    expect(metrics).toMatch(/provider_request_duration_seconds_count\{.*call="refresh".*\} 1/)
    expect(metrics).not.toContain('4620816365291')
  })

  it('the log contains no token, code, verifier or key', async () => {
    const started = await startInBrowser()
    const code = provider.authorize(started.consent)
    await callback({ code, realmId: '1', state: started.state }, started.cookie)
    const token = (await service.ask('/credentials/ACC-1/token')).body['Authenticator'] as string
    provider.script(
      { members: { token_type: 'mac' } },
      { status: 500, body: `{"access_token":"${token}"}` },
    )
    await service.ask('/credentials/ACC-1/refresh', { method: 'POST' })
    await callback(
      { code: 'not-a-code', realmId: '1', state: 'not-a-state' },
      'authorization=not-a-cookie',
    )
    await service.ask('/callback', json({ RealmID: '1', Code: 'a-canary-code' }))
    provider.revokeAll()
    await service.ask('/credentials/ACC-1/refresh', { method: 'POST' })
    await service.ask('/credentials/ACC-1', { method: 'DELETE' })
    const secrets = [
      token,
      code,
      started.state,
      started.cookie.split('=')[1] ?? '',
      SERVICE_KEY,
      CLIENT_SECRET,
      'a-canary-code',
      ...provider.requests.flatMap(({ form, authorization }) => [
        form.get('refresh_token'),
        form.get('code_verifier'),
        authorization.slice(6),
      ]),
    ].filter((secret) => secret !== null && secret !== '')
    expect(log).toContain('"msg":"credential refresh ended"')
    for (const secret of secrets) expect(log).not.toContain(secret)
    // This check proves that the search for secrets works: the search finds the token in a log to which the token was
    // added.
    expect(`${log}${token}`).toContain(token)
  })
})
