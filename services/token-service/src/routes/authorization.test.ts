/** Tests of the authorization routes with hostile input: forged states, cookies, issuers, parameters and bodies. */
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { text } from 'node:stream/consumers'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  callBack,
  type StartedInBrowser,
  startInBrowser as startAt,
} from '../../test-support/browser.ts'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import {
  json,
  SERVICE_KEY,
  startFileService,
  type TestService,
} from '../../test-support/service-fixture.ts'
import type { AuditPage } from '@integration-host/shared/contracts/audit'
import { createMemoryAuthorizationStore } from '../adapters/memory/authorization-store.ts'
import { AUTHORIZATION_TTL_MS, CLOCK_TOLERANCE_MS } from '../authorization/authorization-request.ts'
import type { AuthorizationStore } from '../authorization/authorization-store.ts'

let provider: ScriptedProvider
let service: TestService
let closing: AsyncDisposableStack
/** The number of callbacks that have checked whether their state was used. */
let taken: number
/** How long the store keeps the used states, in milliseconds. */
let keptMs: number[]

beforeEach(async () => {
  closing = new AsyncDisposableStack()
  provider = closing.use(await startScriptedProvider())
  taken = 0
  keptMs = []
  const memory = createMemoryAuthorizationStore()
  const authorizations: AuthorizationStore = {
    ...memory,
    isStateUsed(state) {
      taken += 1
      return memory.isStateUsed(state)
    },
    useState(state, ttlMs) {
      keptMs.push(ttlMs)
      return memory.useState(state, ttlMs)
    },
  }
  service = await startFileService(closing, { provider, authorizations })
})
afterEach(() => closing.disposeAsync())

const startInBrowser = (query?: string, cookie?: string) => startAt(service.url, query, cookie)
const exchanges = () => provider.requests.filter(({ grant }) => grant === 'authorization_code')
const names = async () =>
  ((await service.ask('/credentials')).body['items'] as { Name: string }[]).map(({ Name }) => Name)

/** Sends a callback with the parameters of the provider's redirect. Members of `query` override these parameters. */
const callBackFor = (
  started: StartedInBrowser,
  query: Readonly<Record<string, string>> = {},
  cookie = started.cookie,
) => {
  const code = provider.authorize(started.consent)
  return callBack(service.url, { code, realmId: '1', state: started.state, ...query }, cookie)
}

/** Expects that the service has rejected a callback: no request to the provider, no credential, no redirect. */
async function expectRefused(
  answer: Response,
  statuses: readonly number[] = [400],
): Promise<string> {
  expect(statuses).toContain(answer.status)
  expect([
    answer.headers.get('Content-Type'),
    answer.headers.get('Cache-Control'),
    answer.headers.get('X-Content-Type-Options'),
    answer.headers.get('Location'),
    answer.headers.getSetCookie(),
  ]).toEqual(['application/problem+json', 'no-store', 'nosniff', null, []])
  expect(exchanges()).toHaveLength(0)
  expect(await names()).toEqual([])
  return answer.text()
}

const otherCase = (letters: string): string =>
  letters.replace(/[a-z]/gi, (letter) =>
    letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
  )

describe('the state parameter of an authorization request', () => {
  it.each<readonly [string, (state: string) => string]>([
    ['without its last character', (state) => state.slice(0, -1)],
    ['with a character appended', (state) => `${state}A`],
    ['with the case of its letters changed', otherCase],
    ['with a leading space', (state) => ` ${state}`],
    ['with a trailing NUL', (state) => `${state}\0`],
    ['that is a key of the store', () => `authorization:${'0'.repeat(43)}`],
    ['that is __proto__', () => '__proto__'],
  ])(
    'a callback with a state %s is rejected, and the original state is still accepted',
    async (_, bend) => {
      const started = await startInBrowser()
      await expectRefused(await callBackFor(started, { state: bend(started.state) }))
      expect((await callBackFor(started)).status).toBe(302)
    },
  )

  it('two simultaneous callbacks with one state get the same result, whichever comes first', async () => {
    for (let pair = 0; pair < 10; pair += 1) {
      const started = await startInBrowser()
      const code = provider.authorize(started.consent)
      const query = { code, realmId: '1', state: started.state }
      const responses = await Promise.all(
        [1, 2].map(() => callBack(service.url, query, started.cookie)),
      )
      expect(responses.map(({ headers }) => headers.get('Location'))).toEqual([
        '/connected?name=ACC-1',
        '/connected?name=ACC-1',
      ])
    }
    expect(exchanges()).toHaveLength(10)
  })

  it('twenty concurrent callbacks with one state cause one code exchange and get the same result', async () => {
    const started = await startInBrowser()
    const gate = Promise.withResolvers<void>()
    provider.script({ until: gate.promise })
    const query = { code: provider.authorize(started.consent), realmId: '1', state: started.state }
    const first = callBack(service.url, query, started.cookie)
    await eventually(() => expect(exchanges()).toHaveLength(1))
    const others = Array.from({ length: 19 }, () => callBack(service.url, query, started.cookie))
    await eventually(() => expect(taken).toBe(20))
    gate.resolve()
    const answers = await Promise.all([first, ...others])
    const told = answers.map(({ status, headers }) => `${status} ${headers.get('Location')}`)
    expect(new Set(told)).toEqual(new Set(['302 /connected?name=ACC-1']))
    expect(exchanges()).toHaveLength(1)
  })

  it('at most 100 callbacks wait for the result of a code exchange, and further callbacks are rejected as busy', async () => {
    const started = await startInBrowser()
    const gate = Promise.withResolvers<void>()
    provider.script({ until: gate.promise })
    const query = { code: provider.authorize(started.consent), realmId: '1', state: started.state }
    const send = () => callBack(service.url, query, started.cookie)
    const first = send()
    await eventually(() => expect(exchanges()).toHaveLength(1))
    const others = Array.from({ length: 101 }, send)
    const rejected = await Promise.race(others)
    expect([rejected.status, rejected.headers.get('Retry-After')]).toEqual([503, '5'])
    gate.resolve()
    const statuses = (await Promise.all([first, ...others])).map(({ status }) => status)
    expect(statuses.toSorted((one, other) => one - other)).toEqual([...Array(101).fill(302), 503])
    expect(exchanges()).toHaveLength(1)
  })

  it('a callback whose state was already used is rejected, and the stored credential is kept', async () => {
    const started = await startInBrowser()
    const code = provider.authorize(started.consent)
    expect((await callBackFor(started, { code })).status).toBe(302)
    for (const query of [{ code }, {}, { realmId: '2' }]) {
      const again = await callBackFor(started, query)
      expect([again.status, await again.json()]).toEqual([
        400,
        expect.objectContaining({ code: 'authorization_invalid' }),
      ])
    }
    expect(exchanges()).toHaveLength(1)
    expect((await service.ask('/credentials')).body['items']).toMatchObject([
      { Name: 'ACC-1', Version: 1, Status: 'active' },
    ])
  })

  it('a used state is kept for as long as its authorization request is valid, on every clock', async () => {
    const began = Date.now()
    await callBackFor(await startInBrowser())
    const elapsed = Date.now() - began
    expect(keptMs).toHaveLength(1)
    expect(keptMs[0]).toBeGreaterThanOrEqual(AUTHORIZATION_TTL_MS + CLOCK_TOLERANCE_MS - elapsed)
  })

  it('two authorizations in two tabs both succeed, even if the second one is completed first', async () => {
    const one = await startInBrowser()
    const two = await startInBrowser('', one.cookie)
    expect(two.cookie).toBe(one.cookie)
    expect((await callBackFor(two, { realmId: '2' }, one.cookie)).status).toBe(302)
    expect((await callBackFor(one, { realmId: '1' }, one.cookie)).status).toBe(302)
    expect(await names()).toEqual(['ACC-1', 'ACC-2'])
  })

  it.each<readonly [string, (cookie: string) => string]>([
    ['no cookie', () => ''],
    ['an empty cookie', () => 'authorization='],
    [
      'a cookie with the case of its letters changed',
      (cookie) => `authorization=${otherCase(cookie.slice(14))}`,
    ],
    ['a cookie of another name', (cookie) => cookie.replace('authorization', 'Authorization')],
    ['a __Host- cookie that this service did not set', (cookie) => `__Host-${cookie}`],
    ['a cookie without its last character', (cookie) => cookie.slice(0, -1)],
    ['the cookie of another browser', () => `authorization=${'A'.repeat(43)}`],
  ])('a callback with %s is rejected, and does not use up its state', async (_, bend) => {
    const started = await startInBrowser()
    await expectRefused(await callBackFor(started, {}, bend(started.cookie)))
    expect((await callBackFor(started)).status).toBe(302)
  })

  it('the code of an attacker with the state of a victim is rejected, because the PKCE verifier does not match', async () => {
    const attacker = await startInBrowser()
    const victim = await startInBrowser()
    const code = provider.authorize(attacker.consent)
    const answer = await callBackFor(victim, { code })
    expect([answer.status, ((await answer.json()) as { code: string }).code]).toEqual([
      502,
      'code_exchange_failed',
    ])
    expect(await names()).toEqual([])
  })

  it.each(['', '../x', 'x'.repeat(44), '<script>', `${'a'.repeat(42)}"`])(
    'token-service sets a new cookie if the browser sends the malformed cookie %j',
    async (planted) => {
      const { answer, cookie } = await startInBrowser('', `authorization=${planted}`)
      expect(answer.status).toBe(302)
      expect(cookie).toMatch(/^authorization=[\w-]{43}$/)
    },
  )
})

describe('concurrent code exchanges of browsers', () => {
  it('at most 8 callbacks of browsers exchange their codes at a time, 32 more wait, and the next callback gets a busy page', async () => {
    const gate = Promise.withResolvers<void>()
    provider.script(...Array.from({ length: 8 }, () => ({ until: gate.promise })))
    const started = await Promise.all(Array.from({ length: 41 }, () => startInBrowser()))
    const send = async (one: StartedInBrowser, realmId: string) =>
      callBack(
        service.url,
        { code: provider.authorize(one.consent), realmId, state: one.state },
        one.cookie,
        { Accept: 'text/html' },
      )
    const waiting = started.slice(0, 40).map((one, index) => send(one, String(index)))
    await eventually(() => expect([exchanges().length, taken]).toEqual([8, 40]))
    const last = started[40] as StartedInBrowser
    const busy = await send(last, '40')
    expect([busy.status, busy.headers.get('Retry-After')]).toEqual([503, '5'])
    expect(await busy.text()).toContain('<h1>Too many authorizations at the same time</h1>')
    expect(exchanges()).toHaveLength(8)
    // The limit for browsers does not apply to holders of a service key.
    expect((await service.connect('77')).status).toBe(201)
    gate.resolve()
    const statuses = (await Promise.all(waiting)).map(({ status }) => status)
    expect(statuses.slice(0, 8)).toEqual(Array(8).fill(302))
    // The rejected callback has not used up its state.
    await eventually(async () => expect((await send(last, '40')).status).toBe(302))
    expect(provider.mostAtOnce).toBeLessThanOrEqual(9)
  })

  it('the code in the callback of a browser is sent to the provider only once, even without a usable response', async () => {
    provider.script({ status: 500, body: 'x' })
    expect((await callBackFor(await startInBrowser())).status).toBe(502)
    expect(exchanges()).toHaveLength(1)
  })
})

describe('the issuer of an authorization response (RFC 9207)', () => {
  it.each<readonly [string, (issuer: string) => string]>([
    ['another origin', () => 'https://evil.example'],
    ['the issuer with a trailing slash', (issuer) => `${issuer}/`],
    ['the issuer in upper case', (issuer) => issuer.replace('http', 'HTTP')],
    ['a host that begins with the issuer', (issuer) => `${issuer}.evil.example`],
  ])('a callback whose iss is %s is rejected, and uses up its state', async (_, bend) => {
    const started = await startInBrowser()
    await expectRefused(await callBackFor(started, { iss: bend(provider.url) }))
    await expectRefused(await callBackFor(started, { iss: provider.url }))
    const again = await callBackFor(await startInBrowser(), { iss: provider.url })
    expect(again.status).toBe(302)
  })

  it.each(['', 'iss=', 'iss=&iss=x'])(
    'a callback with the iss parameters %j is rejected if the provider always sends one iss',
    async (query) => {
      provider.knobs.sendsIssuer = true
      service = await startFileService(closing, { provider })
      const started = await startInBrowser()
      const code = provider.authorize(started.consent)
      const whole = `code=${code}&realmId=1&state=${started.state}`
      await expectRefused(await callBack(service.url, `${whole}&${query}`, started.cookie))
    },
  )
})

describe('a parameter of a callback', () => {
  it.each(['realmid', 'REALMID', 'RealmId'])(
    'a callback may name the company in the parameter %s',
    async (name) => {
      const started = await startInBrowser()
      const code = provider.authorize(started.consent)
      const query = { code, [name]: '1', state: started.state }
      expect((await callBack(service.url, query, started.cookie)).status).toBe(302)
    },
  )

  it.each([
    'code=&realmId=1',
    'code=c&realmId=',
    'realmId=1',
    'code=c',
    'code=a%0d%0ab&realmId=1',
    `code=${'c'.repeat(5_000)}&realmId=1`,
    'code=&code=c&realmId=1',
    'code=c&code=c&realmId=1',
    'code=c&Code=&realmId=1',
    'code=c&realmId=1&realmId=',
    'code=c&realmId=&RealmID=1',
    'code=c&realmId=1&realmid=1',
    'code=c&REALMID=1&realmid=2',
    'code=c&realmId=1&iss=&iss=https%3A%2F%2Fevil.example',
    'code=c&realmId=1&error=&error=access_denied',
    'code[]=c&realmId=1',
    'CODE=c&REALMID=1',
    'code=c;realmId=1',
    'code=c%26realmId%3D1',
    'code%00=c&realmId=1',
    'code=c&realmId=1%26realmId%3D2',
  ])('a callback with repeated, empty or misspelled parameters is rejected: %s', async (query) => {
    const started = await startInBrowser()
    const answer = await callBack(service.url, `${query}&state=${started.state}`, started.cookie)
    await expectRefused(answer)
  })

  it.each([
    'state=&state={}',
    'state={}&state={}',
    'state={}&state=',
    'State={}',
    'state[]={}',
    '',
    'state=',
    `state=${'x'.repeat(43)}`,
    `state=${'s'.repeat(10_000)}`,
    'state=%ff%fe',
  ])(
    'a callback with a missing, unknown, repeated or misspelled state is rejected: %s',
    async (query) => {
      const started = await startInBrowser()
      const own = query.replaceAll('{}', started.state)
      const answer = await callBack(service.url, `code=c&realmId=1&${own}`, started.cookie)
      await expectRefused(answer)
    },
  )

  it('a callback ignores redirect parameters and uses return_to of the authorization request', async () => {
    const started = await startInBrowser()
    const evil = 'https://evil.example/'
    const answer = await callBackFor(started, {
      return_to: evil,
      returnTo: evil,
      redirect: evil,
      redirect_uri: evil,
      next: '//evil.example',
    })
    expect([answer.status, answer.headers.get('Location')]).toEqual([302, '/connected?name=ACC-1'])
  })

  it.each(['application/json', 'text/html'])(
    'the response to a callback does not repeat the error text of the callback (Accept: %s)',
    async (Accept) => {
      const started = await startInBrowser()
      const answer = await callBack(
        service.url,
        {
          error: '<b>access_denied',
          error_description: '<script>alert(1)</script>',
          error_uri: 'https://evil.example/',
          state: started.state,
        },
        started.cookie,
        { Accept },
      )
      expect(answer.status).toBe(400)
      expect(await answer.text()).not.toMatch(/<b>|alert|evil/)
    },
  )

  it('any error in a callback adds exactly one error parameter to return_to', async () => {
    const started = await startInBrowser(
      `?return_to=${encodeURIComponent('http://localhost:3000/a?error=mine&x=1#part')}`,
    )
    const answer = await callBack(
      service.url,
      { error: 'access_denied&x=2#', state: started.state },
      started.cookie,
    )
    expect(answer.headers.get('Location')).toBe(
      'http://localhost:3000/a?error=unknown_error&x=1#part',
    )
  })
})

describe('failed code exchanges of browsers', () => {
  it('failed code exchanges of browsers are counted in one audit entry per second, without their realms', async () => {
    await service.connect('77')
    const failures = Array.from({ length: 6 }, async (_, index) => {
      const started = await startInBrowser()
      const query = { code: 'made-up', realmId: `victim-${index}`, state: started.state }
      return callBack(service.url, { ...query, code: `made-up-${index}` }, started.cookie)
    })
    for (const { status } of await Promise.all(failures)) expect(status).toBe(502)
    const failed = await eventually(async () => {
      const { items } = (await service.ask('/audit?after=0&limit=1000'))
        .body as unknown as AuditPage
      const entries = items.filter(({ Outcome }) => Outcome !== 'ok')
      expect(entries.reduce((sum, { Count = 0 }) => sum + Count, 0)).toBe(6)
      return entries
    })
    expect(failed.length).toBeLessThanOrEqual(3)
    for (const entry of failed)
      expect(entry).toMatchObject({
        Who: 'browser',
        What: 'granted',
        Name: '',
        Outcome: 'code_exchange_failed',
      })
  })
})

describe('the pages of the authorization flow', () => {
  it('each page of the authorization flow forbids frames, caches and referrers, and no redirect contains code or state', async () => {
    const started = await startInBrowser()
    const redirect = await callBackFor(started)
    const page = await fetch(new URL(redirect.headers.get('Location') ?? '', service.url))
    const refusal = await callBack(service.url, 'code=c&state=s', '', { Accept: 'text/html' })
    for (const answer of [started.answer, redirect, page, refusal]) {
      expect([
        answer.headers.get('X-Frame-Options'),
        answer.headers.get('Cache-Control'),
        answer.headers.get('Referrer-Policy'),
        answer.headers.get('X-Content-Type-Options'),
      ]).toEqual(['DENY', 'no-store', 'no-referrer', 'nosniff'])
    }
    expect(redirect.headers.get('Location')).not.toMatch(/code|state/)
    expect(await page.text()).not.toContain('<script')
  })

  it.each(['<script>', 'ACC-<b>', 'ACC-1%0d%0aX: 1', 'ACC-'.concat('1'.repeat(65))])(
    'the page /connected does not show a name that is not a credential name: %s',
    async (name) => {
      const page = await (await fetch(`${service.url}/connected?name=${name}`)).text()
      expect(page).toContain('The company is connected')
    },
  )
})

describe('a callback that names no company', () => {
  it('if a callback names no company because SCOPE lacks a scope, the response names this scope', async () => {
    const identityOnly = await startFileService(closing, {
      provider,
      env: { SCOPE: 'openid email' },
    })
    const started = await startAt(identityOnly.url)
    const code = provider.authorize(started.consent)
    const query = { code, state: started.state }
    const response = await callBack(identityOnly.url, query, started.cookie, {
      Accept: 'text/html',
    })
    expect(response.status).toBe(400)
    const page = await response.text()
    expect(page).toContain('named no company')
    expect(page).toContain('SCOPE has none of com.intuit.quickbooks.accounting')
    expect(exchanges()).toHaveLength(0)
  })

  it('if a callback names no company although SCOPE is correct, the response asks the user to choose a company', async () => {
    const started = await startInBrowser()
    const code = provider.authorize(started.consent)
    const response = await callBack(service.url, { code, state: started.state }, started.cookie)
    expect(await expectRefused(response)).toContain('choose a company')
  })
})

describe('a denied authorization', () => {
  it('if the provider denies an authorization with another error than access_denied, the response names this error', async () => {
    const started = await startInBrowser()
    const query = { error: 'invalid_scope', state: started.state }
    const response = await callBack(service.url, query, started.cookie)
    expect(await expectRefused(response)).toContain(
      'did not grant the authorization: invalid_scope',
    )
  })

  it('token-service reports a callback with an error and without a state as authorization_denied', async () => {
    const response = await callBack(service.url, { error: 'access_denied' })
    expect(JSON.parse(await expectRefused(response))).toMatchObject({
      code: 'authorization_denied',
    })
  })
})

describe('an id token that is not valid', () => {
  it.each([
    ['aud', { aud: 'another' }],
    ['nonce', { nonce: 'of another request' }],
    ['iat', { iat: 1 }],
  ])(
    'an id token with an invalid %s is rejected, and the response names the member',
    async (member, claims) => {
      provider.knobs.idTokenClaims = claims
      const started = await startInBrowser()
      const code = provider.authorize(started.consent)
      const query = { code, realmId: '1', state: started.state }
      const response = await callBack(service.url, query, started.cookie)
      expect(response.status).toBe(502)
      expect(await response.json()).toMatchObject({
        code: 'code_exchange_failed',
        detail: expect.stringContaining(`the id token of the provider is not valid: ${member}`),
      })
      expect(await names()).toEqual([])
    },
  )

  it('an id token without a nonce is accepted under the intuit profile', async () => {
    provider.knobs.echoesNonce = false
    const started = await startInBrowser()
    expect((await callBackFor(started)).status).toBe(302)
    expect(await names()).toEqual(['ACC-1'])
  })
})

describe('an authorization that starts at another loopback host than the host of the redirect URI', () => {
  it('the route /authorize redirects to the loopback host of the redirect URI before it sets the cookie', async () => {
    const { port } = new URL(service.url)
    await service[Symbol.asyncDispose]()
    const named = await startFileService(closing, {
      provider,
      env: { PORT: port, REDIRECT: `http://localhost:${port}/callback` },
    })
    const moved = await fetch(
      `http://127.0.0.1:${port}/authorize?return_to=http%3A%2F%2Flocalhost%2F`,
      {
        redirect: 'manual',
      },
    )
    expect([moved.status, moved.headers.get('Location'), moved.headers.getSetCookie()]).toEqual([
      302,
      `http://localhost:${port}/authorize?return_to=http%3A%2F%2Flocalhost%2F`,
      [],
    ])
    expect(named.url).toContain(port)
  })

  it('the route /authorize does not redirect to REDIRECT if the ports differ, because a proxy may have rewritten Host', async () => {
    const started = await startInBrowser()
    expect(started.answer.headers.get('Location')).toContain(provider.url)
  })
})

/** Sends a request by node:http, because fetch does not allow the header Host and some methods. */
async function raw(method: string, path: string, headers: Readonly<Record<string, string>> = {}) {
  const { hostname, port } = new URL(service.url)
  const outgoing = request({ hostname, port, method, path, headers, agent: false })
  outgoing.end()
  const [answer] = (await once(outgoing, 'response')) as [IncomingMessage]
  return { status: answer.statusCode, headers: answer.headers, body: await text(answer) }
}

describe('request headers that claim another host, URL, origin or method', () => {
  it.each([
    { Host: 'evil.example' },
    { 'X-Forwarded-Host': 'evil.example', 'X-Forwarded-Proto': 'https' },
    { Forwarded: 'host=evil.example;proto=https' },
    { 'X-Original-URL': '/credentials', 'X-Rewrite-URL': '/credentials' },
    { Referer: 'https://evil.example/', Origin: 'https://evil.example' },
  ])('token-service does not use the headers %j to build a URL that it sends', async (headers) => {
    const started = await raw('GET', '/authorize', headers)
    const consent = new URL(started.headers.location ?? '')
    expect([started.status, consent.origin, consent.searchParams.get('redirect_uri')]).toEqual([
      302,
      provider.url,
      'http://127.0.0.1:7217/callback',
    ])
    expect(JSON.stringify(started.headers)).not.toContain('evil')
  })

  it('token-service ignores headers and query parameters that are meant to override the method of a request', async () => {
    expect((await service.connect('1')).status).toBe(201)
    const answer = await service.call('/credentials/ACC-1', {
      headers: { 'X-HTTP-Method-Override': 'DELETE', 'X-HTTP-Method': 'DELETE' },
    })
    expect(answer.status).toBe(200)
    expect((await service.call('/credentials/ACC-1?_method=DELETE')).status).toBe(400)
    expect(await names()).toEqual(['ACC-1'])
  })
})

describe('a request with a method that its path does not support', () => {
  const key = { Authorization: `Bearer ${SERVICE_KEY}` }
  const allowed: Readonly<Record<string, readonly string[]>> = {
    '/authorizations': ['POST'],
    '/authorize': ['GET', 'HEAD'],
    '/callback': ['GET', 'POST', 'HEAD'],
    '/connected': ['GET', 'HEAD'],
    '/credentials': ['GET', 'HEAD'],
    '/credentials/ACC-1': ['GET', 'HEAD', 'PATCH', 'DELETE'],
    '/credentials/ACC-1/token': ['GET', 'HEAD'],
    '/credentials/ACC-1/refresh': ['POST'],
  }
  const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND']

  it.each(
    Object.entries(allowed).flatMap(([path, known]) =>
      methods.filter((method) => !known.includes(method)).map((method) => [method, path] as const),
    ),
  )(
    'token-service responds 405 to %s %s, with the supported methods in Allow',
    async (method, path) => {
      const { status, headers } = await raw(method, path, key)
      expect(status).toBe(405)
      expect((headers.allow ?? '').split(', ').toSorted()).toEqual(allowed[path]?.toSorted())
      expect(headers).not.toHaveProperty('access-control-allow-origin')
    },
  )
})

describe('the realm id of a company', () => {
  it('token-service handles a realm id as text, even if the realm id looks like a number', async () => {
    const realms = [
      '0',
      '007',
      '1e3',
      '-1',
      '9341453908059889',
      '99999999999999999999',
      '__proto__',
      'constructor',
      'toString',
      'ACC-1',
      'null',
      'NaN',
      'a'.repeat(64),
    ]
    for (const realm of realms) {
      expect((await service.connect(realm)).status).toBe(201)
      expect((await service.ask(`/credentials/ACC-${realm}`)).body).toMatchObject({
        Name: `ACC-${realm}`,
        Environment: realm,
      })
    }
    expect((await names()).toSorted()).toEqual(realms.map((realm) => `ACC-${realm}`).toSorted())
    expect(Object.keys(Object.prototype)).toEqual([])
    expect((await service.ask('/credentials/ACC-7')).status).toBe(404)
  })

  const none = [
    ' 1',
    '1 ',
    '1\n',
    '1\0',
    '1.5',
    '+1',
    '1/2',
    '..',
    '../1',
    '%31',
    '1*',
    '1?',
    '1#',
    'a:b',
    'lease:1',
    '１２３',
    'é',
    'e\u0301',
    '\u202e1',
    '😀',
    '1'.repeat(65),
    '1'.repeat(10_000),
  ]
  it.each(none)('callbacks and authorization requests reject the realm id %j', async (realm) => {
    const started = await startInBrowser()
    const answers = [
      await callBackFor(started, { realmId: realm }),
      await callBackFor(started, { realmId: '', RealmID: realm }),
      await service.call('/callback', json({ RealmID: realm, Code: provider.authorize() })),
      await service.call('/authorizations', json({ realm })),
    ]
    for (const answer of answers) {
      const told = await expectRefused(answer)
      if (realm.length > 4) expect(told).not.toContain(realm)
    }
  })
})

describe('the parameter return_to', () => {
  it.each([
    'https://evil.example/',
    '//evil.example/',
    '/\\evil.example',
    'http://localhost@evil.example/',
    'http://localhost:80@evil.example/',
    'http://localhost.evil.example/',
    'http://user:pw@localhost/',
    'javascript:alert(1)',
    'data:text/html,x',
    'http:\\\\localhost\\..\\evil',
    'https://localhost/',
    '/relative',
    'http://localhost/\r\nSet-Cookie: x',
    'http://127.0.0.1.evil.example/',
    'http://localhost%2eevil.example/',
    'http://localhost%00.evil.example/',
    'http://evil.example#@localhost/',
    'http://evil.example?@localhost/',
    'http:evil.example',
    'http:/evil.example',
    'http:///evil.example',
    'http:/\\/evil.example',
    '\\\\evil.example',
    '///evil.example',
    '//localhost/',
    ' http://localhost/',
    'http://localhost/ x',
    'http://local\thost/',
    'http://localhost\n.evil.example/',
    'http://ⓛocalhost/',
    'http://localhost。evil.example/',
    'https://127.0.0.1/',
    'ftp://localhost/',
    'file:///etc/passwd',
    'vbscript:msgbox(1)',
    'blob:http://localhost/x',
    'http:localhost',
    'http:/localhost/x',
    'http:localhost/x',
    'http://localhost/"x',
    'ws://localhost/',
    'JaVaScRiPt:alert(1)//http://localhost/',
    `http://localhost/${'x'.repeat(496)}`,
  ])('an authorization request with return_to %j is rejected', async (returnTo) => {
    const body = await service.ask('/authorizations', json({ return_to: returnTo }))
    expect([body.status, body.body['code']]).toEqual([400, 'invalid_request'])
    const { answer } = await startInBrowser(`?return_to=${encodeURIComponent(returnTo)}`)
    expect(await expectRefused(answer)).not.toContain(returnTo)
  })

  it.each(['http://localhost/%0d%0aSet-Cookie:%20x=1', 'http://127.0.0.1:3000/?a=%0a&b=//evil'])(
    'token-service redirects to return_to without decoding its percent escapes: %s',
    async (returnTo) => {
      const started = await startInBrowser(`?return_to=${encodeURIComponent(returnTo)}`)
      const answer = await callBackFor(started)
      expect([answer.headers.get('Location'), answer.headers.getSetCookie()]).toEqual([
        returnTo,
        [],
      ])
    },
  )
})

describe('the body of a request', () => {
  const paths = ['/authorizations', '/callback', '/credentials/ACC-1/refresh']

  it.each([
    undefined,
    'application/json;',
    'application/json; charset=latin1',
    'text/json',
    'json',
    'text/plain',
    'application/x-www-form-urlencoded',
    'application/json, text/plain',
    'application/json; charset=utf-16',
  ])('token-service responds 415 to a POST with the Content-Type %j', async (type) => {
    for (const path of paths) {
      const body = new Blob(['{}']) // A Blob without a type, so that fetch sets no Content-Type.
      const headers: Record<string, string> = type === undefined ? {} : { 'Content-Type': type }
      const answer = await service.call(path, { method: 'POST', headers, body })
      expect([path, answer.status]).toEqual([path, 415])
    }
  })

  it.each([
    'APPLICATION/JSON',
    'application/json;charset=UTF-8',
    'application/json; charset="utf-8"',
  ])('token-service accepts a JSON body of Content-Type %s', async (type) => {
    const headers = { 'Content-Type': type }
    const answer = await service.call('/authorizations', { method: 'POST', headers, body: '{}' })
    expect(answer.status).toBe(201)
  })

  it.each(['with Content-Length', 'in endless chunks'])(
    'token-service responds 413 to a body of 1 MB %s, and closes the connection',
    async (how) => {
      const whole = `{"Code":"${'x'.repeat(1_048_576)}"}`
      const chunks = () =>
        new ReadableStream<Uint8Array>({
          pull: (controller) => controller.enqueue(Buffer.alloc(16_384, ' ')),
        })
      const isWhole = how === 'with Content-Length'
      for (const path of paths) {
        const answer = await service.call(path, {
          ...json(null),
          body: isWhole ? whole : chunks(),
          duplex: 'half',
        })
        expect([path, answer.status, answer.headers.get('Connection')]).toEqual([
          path,
          413,
          'close',
        ])
      }
      expect(exchanges()).toHaveLength(0)
    },
  )
})
