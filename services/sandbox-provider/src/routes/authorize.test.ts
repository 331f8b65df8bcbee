import { createHash } from 'node:crypto'
import { request as sendHttp } from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  CLIENT_ID,
  type ProviderFixture,
  REALM,
  REDIRECT_URI,
  startProvider,
} from '../../test-support/provider-fixture.ts'

let provider: ProviderFixture
let strict: ProviderFixture

beforeAll(async () => {
  provider = await startProvider()
  strict = await startProvider({ PERSONALITY: 'strict' })
})
afterAll(async () => {
  await provider[Symbol.asyncDispose]()
  await strict[Symbol.asyncDispose]()
})

const challenge = { code_challenge: 'c'.repeat(43), code_challenge_method: 'S256' }

const get = (url: string) => fetch(url, { redirect: 'manual' })
const location = (answer: Response): URL => new URL(answer.headers.get('Location') ?? '')
const answered = (answer: Response) => Object.fromEntries(location(answer).searchParams)

/**
 * Submits the form of the authorization page like a browser: with the pressed button, and with the fields that the user
 * changed.
 */
async function submit(page: Response, typed: Readonly<Record<string, string>>): Promise<Response> {
  const text = await page.text()
  const [, action = ''] = /<form method="post" action="([^"]*)"/.exec(text) ?? []
  const fields = new URLSearchParams()
  for (const [input] of text.matchAll(/<input[^>]*>/g)) {
    const attribute = (name: string) =>
      unescape(new RegExp(`\\b${name}="([^"]*)"`).exec(input)?.[1] ?? '')
    if (attribute('type') === 'radio' && !/\bchecked\b/.test(input)) continue
    fields.set(attribute('name'), attribute('value'))
  }
  for (const [name, value] of Object.entries(typed)) fields.set(name, value)
  return fetch(new URL(action, page.url), { method: 'POST', body: fields, redirect: 'manual' })
}

const unescape = (text: string): string =>
  text
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&')

describe('the authorization page', () => {
  it('one click on the authorization page connects the first company of the list', async () => {
    const page = await get(provider.authorizeUrl({ state: `"><'&` }))
    expect(page.status).toBe(200)

    const answer = await submit(page, { decision: 'connect' })

    expect(answer.status).toBe(303)
    expect(location(answer).href.startsWith(`${REDIRECT_URI}?`)).toBe(true)
    expect(answered(answer)).toEqual({
      code: expect.stringMatching(/^.{20,512}$/),
      state: `"><'&`,
      realmId: '9341453908059889',
    })
  })

  it('the authorization page selects the first company without a valid grant, so that one click reconnects a revoked company', async () => {
    const selected = async () => {
      const page = await (await get(provider.authorizeUrl())).text()
      return /value="(\d+)"\s+checked/.exec(page)?.[1]
    }
    const first = '9341453908059889'
    expect(await selected()).toBe(first)
    await provider.tokens(first)
    expect(await selected()).not.toBe(first)
    await provider.sandbox('POST', `realms/${first}/revoke`)
    expect(await selected()).toBe(first)
  })

  it('the authorization page selects a company whose grant was revoked before a company that was never connected', async () => {
    const page = async () => (await get(provider.authorizeUrl())).text()
    const listed = [...(await page()).matchAll(/name="company"\s+value="(\d+)"/g)]
    const [first = '', never = '', revoked = ''] = listed.map(([, realm = '']) => realm)
    for (const realm of [first, revoked]) await provider.tokens(realm)
    await provider.sandbox('POST', `realms/${revoked}/revoke`)
    expect(never).not.toBe('')
    expect(/value="(\d+)"\s+checked/.exec(await page())?.[1]).toBe(revoked)
  })

  it('the authorization page connects a company that the user enters, and lists it on the next visit', async () => {
    const answer = await submit(await get(provider.authorizeUrl()), {
      decision: 'connect',
      company: '+invented',
      company_realm: 'my-realm',
      company_name: 'Tea & Sons',
    })
    expect(answered(answer)).toMatchObject({ realmId: 'my-realm' })
    const page = await (await get(provider.authorizeUrl())).text()
    expect(page).toContain('value="my-realm"')
    expect(page).toContain('Tea &amp; Sons')
  })

  it('the authorization page proposes an unused realm id for a new company', async () => {
    const answer = await submit(await get(provider.authorizeUrl()), {
      decision: 'connect',
      company: '+invented',
      company_name: 'Only a name',
    })
    expect(answered(answer)['realmId']).toMatch(/^\d{16}$/)
  })

  it('the authorization endpoint redirects with access_denied if the user cancels', async () => {
    const answer = await submit(await get(provider.authorizeUrl()), { decision: 'cancel' })
    expect(answered(answer)).toEqual({ error: 'access_denied', state: 'a state' })
  })

  it('the authorization endpoint shows the page again with a reason if the entered realm id is invalid', async () => {
    const answer = await submit(await get(provider.authorizeUrl()), {
      decision: 'connect',
      company: '+invented',
      company_realm: 'no/realm',
      company_name: 'x',
    })
    expect(answer.status).toBe(400)
    const again = await answer.text()
    expect(again).toContain('A realm id has 1 to 64 characters')
    expect(again).toContain('<form method="post"')
  })

  it('the authorization page escapes HTML markup in a company name', async () => {
    const name = `<script>alert(1)</script>" onfocus="x`
    await get(provider.authorizeUrl({ sandbox_company: `hostile:${name}` }))
    const page = await (await get(provider.authorizeUrl())).text()
    expect(page).not.toContain('<script')
    expect(page).toContain('&lt;script&gt;alert(1)&lt;/script&gt;&quot; onfocus=&quot;x')
  })

  it('the authorization page allows only its own style sheet, and forbids scripts, other resources and framing', async () => {
    const page = await get(provider.authorizeUrl())
    const text = await page.text()
    const policy = page.headers.get('Content-Security-Policy') ?? ''
    const style = /<style>([\s\S]*?)<\/style>/.exec(text)?.[1] ?? ''
    expect(policy).toContain(`default-src 'none'`)
    expect(policy).toContain(`frame-ancestors 'none'`)
    expect(policy).toContain(`'sha256-${createHash('sha256').update(style).digest('base64')}'`)
    expect(policy).not.toContain('unsafe')
    expect(text).not.toMatch(/<script|<[^>]*\s(on\w+|style)=/i)
    expect(page.headers.get('Cache-Control')).toBe('no-store')
  })
})

describe('an authorization with the parameter sandbox_company', () => {
  it('the authorization endpoint redirects without a page if sandbox_company names a company', async () => {
    const answer = await get(provider.authorizeUrl({ sandbox_company: '55:A: B' }))
    expect(answer.status).toBe(302)
    expect(answered(answer)).toMatchObject({ realmId: '55', state: 'a state' })
    expect(await (await get(provider.authorizeUrl())).text()).toContain('A: B')
  })

  it('the authorization endpoint redirects with access_denied and without a page if sandbox_company is deny', async () => {
    const answer = await get(provider.authorizeUrl({ sandbox_company: 'deny' }))
    expect(answered(answer)).toMatchObject({ error: 'access_denied', state: 'a state' })
  })

  it.each(['', ':name', 'a/b', 'x'.repeat(65), 'ok:\u0000', `ok:${'x'.repeat(101)}`])(
    'the authorization endpoint rejects sandbox_company=%j with an error page',
    async (company) => {
      const answer = await get(provider.authorizeUrl({ sandbox_company: company }))
      expect(answer.status).toBe(400)
      expect(answer.headers.has('Location')).toBe(false)
    },
  )
})

describe('the authorization response', () => {
  it.each([
    ['openid com.intuit.quickbooks.accounting', REALM],
    ['com.intuit.quickbooks.payment', REALM],
    ['openid profile email', undefined],
  ])(
    'with the personality intuit and the scope %j, the callback contains the realmId %s',
    async (scope, realmId) => {
      const response = await get(provider.authorizeUrl({ sandbox_company: REALM, scope }))
      expect(answered(response)['realmId']).toBe(realmId)
    },
  )

  it('with the personality strict, the callback always contains `iss` and `realmId`', async () => {
    const scripted = { sandbox_company: REALM, scope: 'openid', ...challenge }
    expect(answered(await get(strict.authorizeUrl(scripted)))).toEqual({
      code: expect.any(String),
      state: 'a state',
      realmId: REALM,
      iss: `${strict.url}/op/v1`,
    })
  })
})

describe('validation of authorization requests', () => {
  const scripted = { sandbox_company: REALM }

  it.each<[string, Record<string, string | null>]>([
    ['a request without client_id', { client_id: null }],
    ['a request of an unknown client', { client_id: 'other' }],
    ['a request without redirect_uri', { redirect_uri: null }],
    ['a redirect URI on another host', { redirect_uri: 'http://evil.example/callback' }],
    ['an https redirect URI on another host', { redirect_uri: 'https://evil.example/callback' }],
    [
      'a redirect URI whose host only begins like a loopback address',
      { redirect_uri: 'http://127.0.0.1.evil.example/' },
    ],
    [
      'a redirect URI with a loopback name as user name',
      { redirect_uri: 'http://localhost@evil.example/' },
    ],
    ['a loopback redirect URI with a user name', { redirect_uri: 'http://x@localhost/' }],
    ['a javascript: redirect URI', { redirect_uri: 'javascript:alert(1)' }],
    ['a redirect URI with a fragment', { redirect_uri: 'http://127.0.0.1/#x' }],
    ['a relative redirect URI', { redirect_uri: '/callback' }],
    ['a redirect URI with a query', { redirect_uri: 'http://localhost:1/cb?a=1' }],
    ['a redirect URI with an empty query', { redirect_uri: 'http://localhost:1/cb?' }],
  ])(
    'the authorization endpoint shows an error page without a redirect for %s',
    async (_, parameters) => {
      const answer = await get(provider.authorizeUrl({ ...scripted, ...parameters }))
      expect(answer.status).toBe(400)
      expect(answer.headers.has('Location')).toBe(false)
      expect(await answer.text()).toContain('This cannot be connected')
    },
  )

  it.each<[string, Record<string, string | null>, string]>([
    ['a request without response_type', { response_type: null }, 'unsupported_response_type'],
    ['response_type=token', { response_type: 'token' }, 'unsupported_response_type'],
    ['a request without scope', { scope: null }, 'invalid_scope'],
    ['an unknown scope', { scope: 'openid everything' }, 'invalid_scope'],
  ])(
    'the authorization endpoint redirects to the application with an error for %s',
    async (_, parameters, error) => {
      const answer = await get(provider.authorizeUrl({ ...scripted, ...parameters }))
      expect(answer.status).toBe(302)
      expect(answered(answer)).toMatchObject({ error, state: 'a state' })
      expect(answered(answer)).not.toHaveProperty('code')
      expect(answered(answer)).not.toHaveProperty('iss')
    },
  )

  it('the authorization endpoint rejects an authorization request without state', async () => {
    const response = await get(provider.authorizeUrl({ ...scripted, state: null }))
    expect(answered(response)).toMatchObject({ error: 'invalid_request' })
    expect(answered(response)).not.toHaveProperty('code')
  })

  const badChallenges: [string, Record<string, string>][] = [
    ['no code challenge', {}],
    ['a plain code challenge', { ...challenge, code_challenge_method: 'plain' }],
    ['a code challenge without a method', { code_challenge: 'c'.repeat(43) }],
    ['a challenge method without a code challenge', { code_challenge_method: 'S256' }],
    ['a code challenge that is too short', { ...challenge, code_challenge: 'c' }],
  ]

  it.each(badChallenges)(
    'with the personality strict, the sandbox redirects with an error and `iss` if the request has %s',
    async (_, parameters) => {
      const response = await get(strict.authorizeUrl({ ...scripted, ...parameters }))
      expect(answered(response)).toEqual({
        error: 'invalid_request',
        error_description: expect.stringMatching(/^code_challenge/),
        state: 'a state',
        iss: `${strict.url}/op/v1`,
      })
    },
  )

  it.each(badChallenges)(
    'with the personality intuit, the sandbox ignores PKCE and accepts a request with %s',
    async (_, parameters) => {
      const response = await get(provider.authorizeUrl({ ...scripted, ...parameters }))
      expect(answered(response)).toHaveProperty('code')
    },
  )

  it('the authorization endpoint rejects an authorization request with a repeated parameter (RFC 6749 §3.1)', async () => {
    const answer = await get(`${provider.authorizeUrl(scripted)}&scope=openid`)
    expect(answered(answer)).toMatchObject({ error: 'invalid_request' })
  })

  it('the authorization endpoint shows an error page instead of a redirect if the request has two redirect URIs', async () => {
    const answer = await get(
      `${provider.authorizeUrl(scripted)}&redirect_uri=http%3A%2F%2F127.0.0.1%2Fother`,
    )
    expect(answer.status).toBe(400)
    expect(answer.headers.has('Location')).toBe(false)
  })
})

describe('validation of redirect URIs', () => {
  const uris = {
    https: 'https://app.example/callback',
    localhost: 'http://localhost:1/cb',
    'https on localhost': 'https://localhost/cb',
    'a loopback address (our exception)': 'http://127.0.0.1:1/cb',
    'an IP address': 'https://192.0.2.1/cb',
    'an IPv6 address': 'https://[2001:db8::1]/cb',
    'a query': 'https://app.example/callback?a=1',
    'http on another host': 'http://app.example/callback',
  }
  const REDIRECT = Object.values(uris).join(',')
  const accepted: Record<string, readonly (keyof typeof uris)[]> = {
    intuit: ['https', 'localhost', 'https on localhost', 'a loopback address (our exception)'],
    strict: Object.keys(uris).filter((what) => !what.startsWith('http on')) as [],
  }

  it.each(['intuit', 'strict'])(
    'with the personality %s, the sandbox accepts only the configured redirect URIs that the imitated provider allows',
    async (name) => {
      await using held = await startProvider({ PERSONALITY: name, REDIRECT })
      const scripted = { sandbox_company: REALM, ...challenge }
      const found = []
      for (const [what, redirect_uri] of Object.entries(uris)) {
        const { status } = await get(held.authorizeUrl({ ...scripted, redirect_uri }))
        if (status === 302) found.push(what)
      }
      expect(found).toEqual(accepted[name])
    },
  )

  it('the redirect to the application keeps the query parameters of the redirect URI', async () => {
    const redirect_uri = 'http://localhost:1/cb?a=1'
    const scripted = { sandbox_company: REALM, ...challenge, redirect_uri }
    expect(answered(await get(strict.authorizeUrl(scripted)))).toMatchObject({
      a: '1',
      realmId: REALM,
    })
  })

  it('the redirect URI of a request is compared with the registered redirect URIs character by character', async () => {
    await using held = await startProvider({
      REDIRECT: 'https://app.example/callback, http://localhost:1/cb',
    })
    const status = async (redirect_uri: string) =>
      (await get(held.authorizeUrl({ sandbox_company: REALM, redirect_uri }))).status
    expect(await status('https://app.example/callback')).toBe(302)
    expect(await status('http://localhost:1/cb')).toBe(302)
    expect(await status('https://app.example/callback/')).toBe(400)
    expect(await status('https://app.example/Callback')).toBe(400)
    expect(await status(REDIRECT_URI)).toBe(400)
  })
})

describe('the discovery document', () => {
  const documentOf = async ({ url }: ProviderFixture, spelling = 'openid_configuration') =>
    (await (await fetch(`${url}/.well-known/${spelling}`)).json()) as Record<string, unknown>
  const ofIntuit = (url: string) => ({
    issuer: `${url}/op/v1`,
    authorization_endpoint: `${url}/connect/oauth2`,
    token_endpoint: `${url}/oauth2/v1/tokens/bearer`,
    userinfo_endpoint: `${url}/v1/openid_connect/userinfo`,
    revocation_endpoint: `${url}/v2/oauth2/tokens/revoke`,
    jwks_uri: `${url}/op/v1/jwks`,
    response_types_supported: ['code'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['RS256'],
    scopes_supported: ['openid', 'email', 'profile', 'address', 'phone'],
    token_endpoint_auth_methods_supported: ['client_secret_post', 'client_secret_basic'],
    claims_supported: ['aud', 'exp', 'iat', 'iss', 'realmid', 'sub'],
  })

  it.each([
    'openid_configuration',
    'openid-configuration',
    'openid_sandbox_configuration',
    'openid-sandbox-configuration',
  ])(
    'with the personality `intuit`, the discovery document at /.well-known/%s has exactly the documented members',
    async (spelling) => {
      expect(await documentOf(provider, spelling)).toEqual(ofIntuit(provider.url))
    },
  )

  it('with the personality `strict`, the discovery document announces PKCE, nonce and `iss`', async () => {
    const { scopes_supported: _, ...same } = ofIntuit(strict.url)
    expect(await documentOf(strict)).toEqual({
      ...same,
      grant_types_supported: ['authorization_code', 'refresh_token'],
      scopes_supported: expect.arrayContaining(['openid', 'com.intuit.quickbooks.accounting']),
      token_endpoint_auth_methods_supported: ['client_secret_basic'],
      revocation_endpoint_auth_methods_supported: ['client_secret_basic'],
      claims_supported: ['aud', 'exp', 'iat', 'iss', 'realmid', 'sub', 'nonce'],
      authorization_response_iss_parameter_supported: true,
      code_challenge_methods_supported: ['S256'],
      accounting_url: strict.url,
    })
  })

  it('the discovery document uses BROWSER_URL for the authorization endpoint and BASE_URL for all other endpoints', async () => {
    await using behind = await startProvider({
      PERSONALITY: 'strict',
      BASE_URL: 'http://sandbox-provider:7220',
      BROWSER_URL: 'http://localhost:17220',
    })
    const { authorization_endpoint: authorize, ...others } = await documentOf(behind)
    expect(authorize).toBe('http://localhost:17220/connect/oauth2')
    const addresses = Object.values(others).filter((value) => String(value).startsWith('http'))
    expect(addresses).toHaveLength(6)
    expect(
      addresses.filter((value) => !String(value).startsWith('http://sandbox-provider:7220')),
    ).toEqual([])
  })

  it('the discovery document reflects each changed setting', async () => {
    await using changed = await startProvider({ PERSONALITY: 'strict' })
    await changed.sandbox('PUT', 'settings', {
      pkce: false,
      nonce: false,
      responseIssuer: false,
      discoveryNamesAccountingUrl: false,
    })
    const document = await documentOf(changed)
    for (const member of [
      'code_challenge_methods_supported',
      'authorization_response_iss_parameter_supported',
      'accounting_url',
    ]) {
      expect(document).not.toHaveProperty(member)
    }
    expect(document['claims_supported']).not.toContain('nonce')
    const code = await changed.code(REALM, { code_challenge: 'anything' })
    expect((await changed.exchange(code)).status).toBe(200)
  })
})

it('the authorization endpoint rejects an authorization request whose client_id has a trailing space', async () => {
  const answer = await get(provider.authorizeUrl({ client_id: `${CLIENT_ID} ` }))
  expect(answer.status).toBe(400)
})

it('the authorization endpoint rejects a POST request whose body is not form-encoded', async () => {
  const status = await new Promise((resolve, reject) => {
    const outgoing = sendHttp(`${provider.url}/connect/oauth2`, { method: 'POST' }, (incoming) => {
      incoming.resume()
      resolve(incoming.statusCode)
    })
    outgoing.on('error', reject)
    outgoing.end(Buffer.from([0xff, 0x00, 0xfe]))
  })
  expect(status).toBe(400)
})
