import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import {
  type ProviderFixture,
  REALM,
  startProvider,
  useProvider,
} from '../../test-support/provider-fixture.ts'

const provider = useProvider()

const companyInfo = `/v3/company/${REALM}/companyinfo/${REALM}`

describe('the behaviour settings of the sandbox', () => {
  const current = async () => (await (await provider.sandbox('GET', 'settings')).json()) as object
  const intuit = {
    personality: 'intuit',
    accessTokenSeconds: 3_600,
    refreshTokenSeconds: 8_726_400,
    grantSeconds: 157_680_000,
    rotation: 'daily',
    graceSeconds: 0,
    revokeOnReuse: false,
    latencyMs: 0,
    visibleAfterMs: 0,
    playsBackRequestIds: true,
    pkce: false,
    nonce: false,
    responseIssuer: false,
    realmIdNeedsScope: true,
    redirectUris: 'intuit',
    clientSecretPost: true,
    revocationBody: 'json',
    discoveryNamesAccountingUrl: false,
  }
  const strict = {
    personality: 'strict',
    accessTokenSeconds: 3_600,
    refreshTokenSeconds: 8_640_000,
    grantSeconds: 157_680_000,
    rotation: 'always',
    graceSeconds: 0,
    revokeOnReuse: true,
    latencyMs: 0,
    visibleAfterMs: 0,
    playsBackRequestIds: true,
    pkce: true,
    nonce: true,
    responseIssuer: true,
    realmIdNeedsScope: false,
    redirectUris: 'standard',
    clientSecretPost: false,
    revocationBody: 'form',
    discoveryNamesAccountingUrl: true,
  }

  it('a change of one behaviour setting keeps the other behaviour settings of the sandbox', async () => {
    const answer = await provider.sandbox('PUT', 'settings', { accessTokenSeconds: 7 })
    expect(await answer.json()).toEqual({ ...intuit, accessTokenSeconds: 7 })
    expect(await provider.tokens()).toMatchObject({ expires_in: 7 })
    expect(await current()).toMatchObject({ accessTokenSeconds: 7 })
  })

  it('a request can select a personality and override some of its behaviour settings', async () => {
    await provider.sandbox('PUT', 'settings', { accessTokenSeconds: 7 })
    const chosen = { personality: 'strict', rotation: 'daily' }
    expect(await (await provider.sandbox('PUT', 'settings', chosen)).json()).toEqual({
      ...strict,
      rotation: 'daily',
    })
    await provider.sandbox('PUT', 'settings', { pkce: false })
    expect(await current()).toEqual({ ...strict, rotation: 'daily', pkce: false })
    await provider.sandbox('PUT', 'settings', { personality: 'strict' })
    expect(await current()).toEqual(strict)
    await provider.sandbox('POST', 'reset')
    expect(await current()).toEqual(intuit)
  })

  it('a reset of the sandbox restores the personality that the setting PERSONALITY names', async () => {
    await using started = await startProvider({ PERSONALITY: 'strict' })
    const read = async () => (await started.sandbox('GET', 'settings')).json()
    expect(await read()).toEqual(strict)
    await started.sandbox('PUT', 'settings', { personality: 'intuit', graceSeconds: 60 })
    expect(await read()).toEqual({ ...intuit, graceSeconds: 60 })
    await started.sandbox('POST', 'reset')
    expect(await read()).toEqual(strict)
  })

  it.each<[string, unknown]>([
    ['settings without a member', {}],
    ['an unknown setting', { tokens: 1 }],
    ['a negative token lifetime', { accessTokenSeconds: -1 }],
    ['a token lifetime with a fraction', { accessTokenSeconds: 1.5 }],
    ['text for a number', { accessTokenSeconds: '60' }],
    ['an unknown rotation', { rotation: 'sometimes' }],
    ['an unknown personality', { personality: 'lenient' }],
    ['a year of latency', { latencyMs: 31_536_000_000 }],
    ['settings that are null', null],
    ['settings in an array', []],
  ])(
    'the control routes reject %s with a problem document and keep the settings',
    async (_, body) => {
      const before = await (await provider.sandbox('GET', 'settings')).json()
      const answer = await provider.sandbox('PUT', 'settings', body)
      expect(answer.status).toBe(400)
      expect(answer.headers.get('Content-Type')).toBe('application/problem+json')
      expect(await answer.json()).toMatchObject({ code: 'invalid_request' })
      expect(await (await provider.sandbox('GET', 'settings')).json()).toEqual(before)
    },
  )
})

describe('injected faults', () => {
  const fault = (body: unknown) => provider.sandbox('POST', 'faults', body)

  it('an injected fault with calls=2 replaces the responses of the next two calls', async () => {
    const { access_token: token } = await provider.tokens()
    await fault({ target: 'api', calls: 2, status: 503 })
    const statuses = []
    for (let call = 0; call < 3; call++)
      statuses.push((await provider.api(companyInfo, token)).status)
    expect(statuses).toEqual([503, 503, 200])
    expect(await provider.counters()).toMatchObject({ faultsServed: { api: 2 }, apiCalls: 3 })
  })

  it('an injected fault at the token endpoint does not invalidate the refresh token of the request', async () => {
    const { refresh_token: token } = await provider.tokens()
    await fault({ target: 'token', status: 500 })
    expect((await provider.refresh(token)).status).toBe(500)
    expect((await provider.refresh(token)).status).toBe(200)
    expect((await provider.counters()).realms[REALM]).toMatchObject({
      refreshes: 1,
      tokenReuses: 0,
    })
  })

  it('an injected fault with status 429 has an XML body, even if the request accepts JSON', async () => {
    const { access_token: token } = await provider.tokens()
    await fault({ target: 'api', status: 429, headers: { 'Retry-After': '7' } })
    const answer = await provider.api(companyInfo, token)
    expect(answer.status).toBe(429)
    expect(answer.headers.get('Content-Type')).toBe('application/xml')
    expect(answer.headers.get('Retry-After')).toBe('7')
    expect(await answer.text()).toContain('<Error code="3001"><Message>message=ThrottleExceeded')
    expect(answer.headers.get('intuit_tid')).toMatch(/^1-/)
  })

  it.each([
    ['120', 401, 'AuthorizationFault'],
    ['130', 401, 'AuthenticationFault'],
    ['610', 400, 'ValidationFault'],
    ['3100', 403, 'SERVICE'],
    ['3200', 401, 'AUTHENTICATION'],
    ['5010', 400, 'ValidationFault'],
    ['5020', 400, 'ValidationFault'],
    ['6190', 400, 'ValidationFault'],
    ['6240', 400, 'ValidationFault'],
  ])(
    'an injected fault with the error code %s returns the status %i and the type %s, both in JSON and in XML',
    async (code, status, type) => {
      await fault({ target: 'api', calls: 2, fault: code })
      const json = await provider.api(companyInfo, 'x')
      const document = (await json.json()) as Record<string, { type: string }>
      const { Fault: service, fault: gateway } = document
      expect([json.status, (service ?? gateway)?.type]).toEqual([status, type])
      expect(JSON.stringify(document)).toContain(`"code":"${code}"`)
      const xml = await provider.api(companyInfo, 'x', { headers: { Accept: '*/*' } })
      expect([xml.status, xml.headers.get('Content-Type')]).toEqual([status, 'application/xml'])
      expect(await xml.text()).toContain(`<Fault type="${type}"><Error code="${code}"`)
    },
  )

  it('an injected fault has the status of its error code unless it specifies another status', async () => {
    await fault({ target: 'api', fault: '3001', headers: { 'Retry-After': '7' } })
    const throttled = await provider.api(companyInfo, 'x')
    expect([throttled.status, throttled.headers.get('Retry-After')]).toEqual([429, '7'])
    await fault({ target: 'api', fault: '6190', status: 200 })
    const succeeded = await provider.api(companyInfo, 'x')
    expect(succeeded.status).toBe(200)
    expect(await succeeded.json()).toHaveProperty('Fault.Error.0.code', '6190')
  })

  it('an injected fault with status 400 at the token endpoint has the body of a rejected refresh token', async () => {
    await fault({ target: 'token', status: 400 })
    expect(await (await provider.refresh('x')).json()).toEqual({
      error: 'invalid_grant',
      error_description: 'Incorrect or invalid refresh token',
    })
  })

  it.each<[unknown, string, string]>([
    ['<html>busy</html>', 'text/html', '<html>busy</html>'],
    [
      { error: 'invalid_grant', error_description: 'x' },
      'application/json',
      '{"error":"invalid_grant","error_description":"x"}',
    ],
    ['', 'text/plain', ''],
  ])(
    'an injected fault can specify its response body %j and content type %s',
    async (body, contentType, text) => {
      await fault({ target: 'token', status: 400, body, contentType })
      const answer = await provider.refresh('x')
      expect([answer.headers.get('Content-Type'), await answer.text()]).toEqual([contentType, text])
    },
  )

  it('an injected fault can reset the connection before a refresh has an effect', async () => {
    const { refresh_token: token } = await provider.tokens()
    await fault({ target: 'token', drop: 'before' })
    await expect(provider.refresh(token)).rejects.toThrow('fetch failed')
    expect((await provider.counters()).realms[REALM]).toMatchObject({ refreshes: 0 })
    expect((await provider.refresh(token)).status).toBe(200)
  })

  it('an injected fault can reset the connection after the refresh token was rotated, so that the response is lost', async () => {
    await provider.sandbox('PUT', 'settings', { rotation: 'always' })
    const { refresh_token: token } = await provider.tokens()
    await fault({ target: 'token', drop: 'after' })
    await expect(provider.refresh(token)).rejects.toThrow('fetch failed')
    expect((await provider.counters()).realms[REALM]).toMatchObject({ refreshes: 1 })
    expect((await provider.refresh(token)).status).toBe(400)
    expect((await fetch(`${provider.url}/health/live`)).status).toBe(200)
  })

  it('an injected fault can delay the response after the refresh token was rotated', async () => {
    const { refresh_token: token } = await provider.tokens()
    await fault({ target: 'token', latencyMs: 60_000 })
    const calling = provider.refresh(token)
    await expect(
      Promise.race([
        calling,
        untilCounted(() => provider.counters(), 'refreshes').then(() => 'spent'),
      ]),
    ).resolves.toBe('spent')
    calling.catch(() => {})
  })

  it('an injected fault can target the revocation endpoint or the discovery document', async () => {
    await fault({ target: 'discovery', status: 503 })
    const discovery = `${provider.url}/.well-known/openid_configuration`
    expect([(await fetch(discovery)).status, (await fetch(discovery)).status]).toEqual([503, 200])
    await fault({ target: 'revoke', status: 500 })
    const answer = await fetch(`${provider.url}/v2/oauth2/tokens/revoke`, { method: 'POST' })
    expect(answer.status).toBe(500)
  })

  it('the control routes list the queued faults in the order in which they were added, and delete all queued faults', async () => {
    await fault({ target: 'api', status: 500 })
    await fault({ target: 'api', calls: 3, drop: 'before' })
    expect(await (await provider.sandbox('GET', 'faults')).json()).toEqual({
      waiting: [
        { target: 'api', calls: 1, status: 500 },
        { target: 'api', calls: 3, drop: 'before' },
      ],
    })
    expect((await provider.sandbox('DELETE', 'faults')).status).toBe(204)
    expect(await (await provider.sandbox('GET', 'faults')).json()).toEqual({ waiting: [] })
  })

  it.each<[string, unknown]>([
    ['a fault without a target', { status: 500 }],
    ['a fault with an unknown target', { target: 'jwks', status: 500 }],
    ['a fault without an effect', { target: 'api' }],
    ['a fault with an unknown error code', { target: 'api', fault: '1' }],
    [
      'an error code of the accounting API for the token endpoint',
      { target: 'token', fault: '3200' },
    ],
    ['a fault with an error code and a body', { target: 'api', fault: '610', body: 'x' }],
    ['a fault with an error code and drop', { target: 'api', fault: '610', drop: 'after' }],
    ['a fault for 0 calls', { target: 'api', status: 500, calls: 0 }],
    ['a fault with an informational status', { target: 'api', status: 101 }],
    ['a fault with status and drop', { target: 'api', status: 500, drop: 'after' }],
    ['a fault with a body but no status', { target: 'api', drop: 'after', body: 'x' }],
    [
      'a fault with the header Content-Length',
      { target: 'api', status: 500, headers: { 'Content-Length': '1' } },
    ],
    [
      'a fault with a line break in a header',
      { target: 'api', status: 500, headers: { X: 'a\r\nb' } },
    ],
    ['a fault with an unknown member', { target: 'api', status: 500, often: true }],
  ])('the control routes reject %s and queue no fault', async (_, body) => {
    expect((await fault(body)).status).toBe(400)
    expect(await (await provider.sandbox('GET', 'faults')).json()).toEqual({ waiting: [] })
  })

  it.each([204, 304])('an injected fault with status %i has no response body', async (status) => {
    await fault({ target: 'api', status })
    const answer = await provider.api(companyInfo, 'x')
    expect([answer.status, await answer.text()]).toEqual([status, ''])
  })
})

describe('the control routes that revoke or expire the tokens of a realm', () => {
  it('a control route revokes all tokens of one realm, and the tokens of other realms stay valid', async () => {
    const [tokens, others] = [await provider.tokens(), await provider.tokens('4620816365291')]
    const answer = await provider.sandbox('POST', `realms/${REALM}/revoke`)
    expect(await answer.json()).toEqual({ revoked: 1 })
    expect((await provider.api(companyInfo, tokens.access_token)).status).toBe(401)
    expect((await provider.refresh(tokens.refresh_token)).status).toBe(400)
    expect((await provider.refresh(others.refresh_token)).status).toBe(200)
  })

  it('a control route disconnects a company as a user would, and returns the URL to which the provider redirects the browser', async () => {
    const [tokens, others] = [await provider.tokens(), await provider.tokens('4620816365291')]
    const disconnect = (realm: string) => provider.sandbox('POST', `companies/${realm}/disconnect`)
    expect(await (await disconnect(REALM)).json()).toEqual({ revoked: 1, browserGoesTo: null })
    expect((await provider.refresh(tokens.refresh_token)).status).toBe(400)
    expect((await provider.refresh(others.refresh_token)).status).toBe(200)
    expect((await disconnect('1')).status).toBe(404)

    const address = 'https://app.example.com/disconnected'
    await using entered = await startProvider({ DISCONNECT_URL: address })
    await entered.tokens()
    const answer = await entered.sandbox('POST', `companies/${REALM}/disconnect`)
    expect(await answer.json()).toEqual({
      revoked: 1,
      browserGoesTo: `${address}?realmId=${REALM}`,
    })
  })

  it('a control route expires the access tokens of a realm, and the refresh tokens of this realm stay valid', async () => {
    const tokens = await provider.tokens()
    const answer = await provider.sandbox('POST', `realms/${REALM}/expire`)
    expect(await answer.json()).toEqual({ expired: 1 })
    expect((await provider.api(companyInfo, tokens.access_token)).status).toBe(401)
    expect((await provider.refresh(tokens.refresh_token)).status).toBe(200)
  })

  it.each([
    ['nobody/revoke', 404],
    ['a%2Fb/revoke', 400],
    [`${'x'.repeat(65)}/expire`, 400],
    ['__proto__/expire', 404],
  ])(
    'the control route realms/%s responds with the status %i to an unknown or invalid realm',
    async (path, status) => {
      const answer = await provider.sandbox('POST', `realms/${path}`)
      expect(answer.status).toBe(status)
      expect(answer.headers.get('Content-Type')).toBe('application/problem+json')
    },
  )
})

it('a reset restores the initial settings, faults, counters, companies and grants of the sandbox', async () => {
  const before = await provider.counters()
  await provider.sandbox('PUT', 'settings', { accessTokenSeconds: 7 })
  await provider.sandbox('POST', 'faults', { target: 'api', status: 500 })
  const tokens = await provider.tokens('invented')
  expect((await provider.sandbox('POST', 'reset')).status).toBe(204)

  expect(await provider.counters()).toEqual(before)
  expect(await (await provider.sandbox('GET', 'settings')).json()).toMatchObject({
    accessTokenSeconds: 3_600,
  })
  expect(await (await provider.sandbox('GET', 'faults')).json()).toEqual({ waiting: [] })
  expect((await provider.refresh(tokens.refresh_token)).status).toBe(400)
  expect((await provider.sandbox('POST', 'realms/invented/expire')).status).toBe(404)
})

async function untilCounted(
  counters: () => ReturnType<ProviderFixture['counters']>,
  what: 'refreshes',
): Promise<void> {
  const deadline = Date.now() + 10_000
  while ((await counters())[what] === 0) {
    if (Date.now() > deadline) throw new Error(`${what} stayed 0`)
    await delay(5)
  }
}
