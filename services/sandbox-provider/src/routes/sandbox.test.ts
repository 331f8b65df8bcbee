import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type ProviderUnderTest, REALM, startProvider } from '../provider-under-test.ts'

let provider: ProviderUnderTest

beforeAll(async () => {
  provider = await startProvider()
})
beforeEach(async () => {
  await provider.sandbox('POST', 'reset')
})
afterAll(() => provider[Symbol.asyncDispose]())

const companyInfo = `/v3/company/${REALM}/companyinfo/${REALM}`

describe('the settings', () => {
  it('change one by one and hold for what comes after', async () => {
    const answer = await provider.sandbox('PUT', 'settings', { accessTokenSeconds: 7 })
    expect(await answer.json()).toEqual({
      accessTokenSeconds: 7,
      rotation: 'always',
      graceSeconds: 86_400,
      revokeOnReuse: false,
      latencyMs: 0,
      pkce: true,
    })
    expect(await provider.tokens()).toMatchObject({ expires_in: 7 })
    expect(await (await provider.sandbox('GET', 'settings')).json()).toMatchObject({
      accessTokenSeconds: 7,
    })
  })

  it.each<[string, unknown]>([
    ['nothing', {}],
    ['an unknown setting', { tokens: 1 }],
    ['a negative life', { accessTokenSeconds: -1 }],
    ['a fraction', { accessTokenSeconds: 1.5 }],
    ['text for a number', { accessTokenSeconds: '60' }],
    ['an unknown rotation', { rotation: 'sometimes' }],
    ['a year of latency', { latencyMs: 31_536_000_000 }],
    ['null', null],
    ['a list', []],
  ])('refuse %s with a problem document and stay as they are', async (_, body) => {
    const before = await (await provider.sandbox('GET', 'settings')).json()
    const answer = await provider.sandbox('PUT', 'settings', body)
    expect(answer.status).toBe(400)
    expect(answer.headers.get('Content-Type')).toBe('application/problem+json')
    expect(await answer.json()).toMatchObject({ code: 'invalid_request' })
    expect(await (await provider.sandbox('GET', 'settings')).json()).toEqual(before)
  })
})

describe('a fault', () => {
  const fault = (body: unknown) => provider.sandbox('POST', 'faults', body)

  it('takes the place of as many calls as it names, and no more', async () => {
    const { access_token: token } = await provider.tokens()
    await fault({ target: 'api', calls: 2, status: 503 })
    const statuses = []
    for (let call = 0; call < 3; call++)
      statuses.push((await provider.api(companyInfo, token)).status)
    expect(statuses).toEqual([503, 503, 200])
    expect(await provider.counters()).toMatchObject({ faultsServed: { api: 2 }, apiCalls: 3 })
  })

  it('at the token endpoint leaves the refresh token unspent', async () => {
    const { refresh_token: token } = await provider.tokens()
    await fault({ target: 'token', status: 500 })
    expect((await provider.refresh(token)).status).toBe(500)
    expect((await provider.refresh(token)).status).toBe(200)
    expect((await provider.counters()).realms[REALM]).toMatchObject({
      refreshes: 1,
      tokenReuses: 0,
    })
  })

  it('answers a throttled call in XML, like the real one', async () => {
    const { access_token: token } = await provider.tokens()
    await fault({ target: 'api', status: 429, headers: { 'Retry-After': '7' } })
    const answer = await provider.api(companyInfo, token)
    expect(answer.status).toBe(429)
    expect(answer.headers.get('Content-Type')).toBe('application/xml')
    expect(answer.headers.get('Retry-After')).toBe('7')
    expect(await answer.text()).toContain('<Error code="3001"><Message>message=ThrottleExceeded')
  })

  it.each<[unknown, string, string]>([
    ['<html>busy</html>', 'text/html', '<html>busy</html>'],
    [
      { error: 'invalid_grant', error_description: 'x' },
      'application/json',
      '{"error":"invalid_grant","error_description":"x"}',
    ],
    ['', 'text/plain', ''],
  ])('answers the body %j', async (body, contentType, text) => {
    await fault({ target: 'token', status: 400, body, contentType })
    const answer = await provider.refresh('x')
    expect([answer.headers.get('Content-Type'), await answer.text()]).toEqual([contentType, text])
  })

  it('drops the connection before anything happened', async () => {
    const { refresh_token: token } = await provider.tokens()
    await fault({ target: 'token', drop: 'before' })
    await expect(provider.refresh(token)).rejects.toThrow('fetch failed')
    expect((await provider.counters()).realms[REALM]).toMatchObject({ refreshes: 0 })
    expect((await provider.refresh(token)).status).toBe(200)
  })

  it('drops the connection after the rotation: the answer is lost, the token is spent', async () => {
    await provider.sandbox('PUT', 'settings', { graceSeconds: 0 })
    const { refresh_token: token } = await provider.tokens()
    await fault({ target: 'token', drop: 'after' })
    await expect(provider.refresh(token)).rejects.toThrow('fetch failed')
    expect((await provider.counters()).realms[REALM]).toMatchObject({ refreshes: 1 })
    expect((await provider.refresh(token)).status).toBe(400)
    expect((await fetch(`${provider.url}/health/live`)).status).toBe(200)
  })

  it('holds an answer back: a caller that gives up has spent the token all the same', async () => {
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

  it('comes for revocation and discovery too', async () => {
    await fault({ target: 'discovery', status: 503 })
    const discovery = `${provider.url}/.well-known/openid_configuration`
    expect([(await fetch(discovery)).status, (await fetch(discovery)).status]).toEqual([503, 200])
    await fault({ target: 'revoke', status: 500 })
    const answer = await fetch(`${provider.url}/v2/oauth2/tokens/revoke`, { method: 'POST' })
    expect(answer.status).toBe(500)
  })

  it('waits its turn, can be seen, and can be forgotten', async () => {
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
    ['no target', { status: 500 }],
    ['an unknown target', { target: 'jwks', status: 500 }],
    ['nothing to do', { target: 'api' }],
    ['no calls', { target: 'api', status: 500, calls: 0 }],
    ['an informational status', { target: 'api', status: 101 }],
    ['status and drop', { target: 'api', status: 500, drop: 'after' }],
    ['a body without status', { target: 'api', drop: 'after', body: 'x' }],
    ['a framing header', { target: 'api', status: 500, headers: { 'Content-Length': '1' } }],
    ['a header with a line break', { target: 'api', status: 500, headers: { X: 'a\r\nb' } }],
    ['an unknown member', { target: 'api', status: 500, often: true }],
  ])('with %s is refused and does not wait', async (_, body) => {
    expect((await fault(body)).status).toBe(400)
    expect(await (await provider.sandbox('GET', 'faults')).json()).toEqual({ waiting: [] })
  })

  it.each([204, 304])('may be a %i, which has no body', async (status) => {
    await fault({ target: 'api', status })
    const answer = await provider.api(companyInfo, 'x')
    expect([answer.status, await answer.text()]).toEqual([status, ''])
  })
})

describe('a realm', () => {
  it('can be revoked: its tokens are dead, another company keeps its own', async () => {
    const [tokens, others] = [await provider.tokens(), await provider.tokens('4620816365291')]
    const answer = await provider.sandbox('POST', `realms/${REALM}/revoke`)
    expect(await answer.json()).toEqual({ revoked: 1 })
    expect((await provider.api(companyInfo, tokens.access_token)).status).toBe(401)
    expect((await provider.refresh(tokens.refresh_token)).status).toBe(400)
    expect((await provider.refresh(others.refresh_token)).status).toBe(200)
  })

  it('can have its access tokens expire now', async () => {
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
  ])('that is none is answered so: %s', async (path, status) => {
    const answer = await provider.sandbox('POST', `realms/${path}`)
    expect(answer.status).toBe(status)
    expect(answer.headers.get('Content-Type')).toBe('application/problem+json')
  })
})

it('a reset brings back the start: settings, faults, counters, companies and grants', async () => {
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
  counters: () => ReturnType<ProviderUnderTest['counters']>,
  what: 'refreshes',
): Promise<void> {
  const deadline = Date.now() + 10_000
  while ((await counters())[what] === 0) {
    if (Date.now() > deadline) throw new Error(`${what} stayed 0`)
    await delay(5)
  }
}
