/**
 * Tests of connect links over HTTP: the routes for operators, and the page with its form in a
 * browser.
 */
import type { AuditPage } from '@integration-host/shared/contracts/audit'
import { createLogger } from '@integration-host/shared/observability/logger'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { callBack, startInBrowser } from '../../test-support/browser.ts'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import { json, startFileService, type TestService } from '../../test-support/service-fixture.ts'
import { linkOf } from '../authorization/connect-link-store.contract.ts'
import type { ConnectLink, ConnectLinkStore } from '../authorization/connect-link-store.ts'
import { createMemoryConnectLinkStore } from '../adapters/file/connect-link-store.ts'

let provider: ScriptedProvider
let service: TestService
let links: ConnectLinkStore
let closing: AsyncDisposableStack
let logged: string

beforeEach(async () => {
  closing = new AsyncDisposableStack()
  logged = ''
  provider = closing.use(await startScriptedProvider())
  links = createMemoryConnectLinkStore()
  await start()
})
afterEach(() => closing.disposeAsync())

async function start(env: Record<string, string> = {}): Promise<void> {
  const logger = createLogger('test', 'info', { write: (line) => void (logged += line) })
  service = await startFileService(closing, {
    provider,
    links,
    logger,
    env: { AUTHORIZE: 'links', ...env },
  })
}

/** Creates a connect link, and returns the URL of its page at the service under test. */
async function createLink(body: object = {}): Promise<{ id: string; page: string }> {
  const { status, body: created } = await service.ask('/connect-links', json(body))
  expect(status).toBe(201)
  const { id, url } = created as { id: string; url: string }
  return { id, page: service.url + new URL(url).pathname }
}
const BROWSER = { Accept: 'text/html', 'Sec-Fetch-Site': 'same-origin' }
const press = (page: string, headers: Record<string, string> = {}): Promise<Response> =>
  fetch(page, { method: 'POST', redirect: 'manual', headers: { ...BROWSER, ...headers } })
const open = (page: string, init: RequestInit = {}): Promise<Response> =>
  fetch(page, { redirect: 'manual', headers: { Accept: 'text/html' }, ...init })
/** Presses the button, and returns the parts of the response that the callback needs. */
const startedBy = (response: Response) => {
  const consent = new URL(response.headers.get('Location') ?? 'http://none')
  return {
    consent,
    cookie: response.headers.getSetCookie()[0]?.split(';')[0] ?? '',
    state: consent.searchParams.get('state') ?? '',
  }
}
const finish = (pressed: Response, realmId: string, cookie = startedBy(pressed).cookie) => {
  const { consent, state } = startedBy(pressed)
  return callBack(service.url, { code: provider.authorize(consent), realmId, state }, cookie)
}
/** Stores a link again, with these members. */
async function restore(id: string, changes: Partial<ConnectLink>): Promise<void> {
  const link = await links.get(id)
  if (link === null) throw new Error('the link is not stored')
  await links.remove({ id, keyId: null })
  await links.add({ ...link, ...changes }, Date.now())
}
const LONG_USED = { usedAt: Date.now() - 10 * 60_000 }
const shown = async () =>
  (await service.ask('/connect-links')).body['items'] as { id: string; used_at: string | null }[]

describe('a connect link', () => {
  it('the button on the page of a connect link starts an authorization, which connects the company and ends at return_to', async () => {
    const { id, page } = await createLink({ realm: '7', return_to: 'http://localhost/done' })
    const opened = await open(page)
    expect(opened.status).toBe(200)
    expect(await opened.text()).toMatch(/the company 7.*<form method="post"\s*>/s)
    const pressed = await press(page)
    expect(pressed.status).toBe(303)
    expect(startedBy(pressed).consent.origin).toBe(provider.url)
    const finished = await finish(pressed, '7')
    expect([finished.status, finished.headers.get('Location')]).toEqual([
      302,
      'http://localhost/done',
    ])
    expect((await service.ask('/credentials/ACC-7')).status).toBe(200)
    expect(await shown()).toEqual([expect.objectContaining({ id, used_at: expect.any(String) })])
  })

  it('a company gets the label and the tags of its connect link, and the page escapes the label', async () => {
    const label = '<script>alert(1)</script> & Söhne'
    const { page } = await createLink({ label, tags: { region: 'EU' } })
    const text = await (await open(page)).text()
    expect(text).toContain('&lt;script&gt;alert(1)&lt;/script&gt; &amp; Söhne')
    expect(text).not.toContain('<script>alert')
    await finish(await press(page), '7')
    expect((await service.ask('/credentials/ACC-7')).body).toMatchObject({
      Label: label,
      Tags: { region: 'EU' },
    })
  })

  it('the page of a connect link for a stored company shows the name of the company, and so does the page after its connection', async () => {
    const label = 'Rosewood & Söhne; <b>Ltd</b>'
    const escaped = 'Rosewood &amp; Söhne; &lt;b&gt;Ltd&lt;/b&gt;'
    await finish(await press((await createLink({ label })).page), '7')
    const { page } = await createLink({ realm: '7' })
    expect(await (await open(page)).text()).toContain(`the company ${escaped}, 7`)
    const finished = await finish(await press(page), '7')
    const connected = service.url + (finished.headers.get('Location') ?? '')
    const Cookie = finished.headers.getSetCookie()[0]?.split(';')[0] ?? ''
    const shownAt = async (url: string, headers: Record<string, string>) =>
      (await fetch(url, { headers })).text()
    expect(await shownAt(connected, { Cookie })).toContain(`${escaped} (ACC-7) is connected`)
    // Any other browser, and the address of another company, get no name.
    expect(await shownAt(connected, {})).toContain('<p>ACC-7 is connected')
    expect(await shownAt(`${service.url}/connected?name=ACC-77`, { Cookie })).toContain(
      '<p>ACC-77 is connected',
    )
  })

  it('opening the page of a connect link, as mail scanners do, starts no authorization and does not use up the link', async () => {
    const { page } = await createLink()
    for (const init of [{}, { method: 'HEAD' }, {}]) {
      const opened = await open(page, init)
      expect([opened.status, opened.headers.getSetCookie()]).toEqual([200, []])
    }
    expect((await shown())[0]?.used_at).toBeNull()
    expect((await press(page)).status).toBe(303)
  })

  it('the page of a used connect link says in any other browser that the link was used', async () => {
    const { page } = await createLink()
    await press(page)
    const Cookie = `authorization=${'x'.repeat(43)}`
    for (const response of [
      await press(page, { Cookie }),
      await press(page),
      await open(page),
      await open(page, { headers: { Accept: 'text/html', Cookie } }),
    ]) {
      expect([response.status, response.headers.get('Location')]).toEqual([410, null])
      expect(await response.text()).toMatch(/<h1>The connect link cannot be used.*used before/s)
    }
  })

  it('the browser that used a connect link can open and use it again, after it came back from the provider', async () => {
    const { page } = await createLink({ realm: '7' })
    const { cookie } = startedBy(await press(page))
    const opened = await open(page, { headers: { Accept: 'text/html', Cookie: cookie } })
    expect([opened.status, await opened.text()]).toEqual([200, expect.stringContaining('<form')])
    const pressed = await press(page, { Cookie: cookie })
    expect(pressed.status).toBe(303)
    expect((await finish(pressed, '7')).status).toBe(302)
  })

  it('two simultaneous requests of one browser with the same connect link both succeed', async () => {
    const { page } = await createLink()
    const Cookie = `authorization=${'x'.repeat(43)}`
    const pressed = await Promise.all([press(page, { Cookie }), press(page, { Cookie })])
    expect(pressed.map(({ status }) => status)).toEqual([303, 303])
  })

  it('ten minutes after its first use, a connect link can no longer be used, not even in the browser that used it', async () => {
    const { id, page } = await createLink()
    const { cookie } = startedBy(await press(page))
    await restore(id, LONG_USED)
    expect((await press(page, { Cookie: cookie })).status).toBe(410)
  })

  it('if several browsers use a connect link at the same time, the link works in only one of them', async () => {
    const { page } = await createLink()
    const pressed = await Promise.all(Array.from({ length: 8 }, () => press(page)))
    expect(pressed.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([
      303,
      ...Array(7).fill(410),
    ])
  })

  it('the authorization of a connect link can be completed only in the browser that used the link', async () => {
    const pressed = await press((await createLink()).page)
    expect((await finish(pressed, '7', `authorization=${'x'.repeat(43)}`)).status).toBe(400)
    expect((await finish(pressed, '7')).status).toBe(302)
  })

  it('a connect link for one company rejects any other company with an explanation, and stores nothing', async () => {
    const pressed = await press((await createLink({ realm: '7' })).page)
    const refused = await finish(pressed, '8')
    expect(refused.status).toBe(409)
    expect(await refused.text()).toContain('for the company 7, but the company 8 was chosen')
    expect((await service.ask('/credentials/ACC-8')).status).toBe(404)
  })

  it('the page about another chosen company names both companies, and its button starts an authorization for the right one', async () => {
    await finish(await press((await createLink({ label: 'Rosewood & Söhne' })).page), '7')
    const link = await createLink({ realm: '7', return_to: 'http://localhost/done' })
    const pressed = await press(link.page)
    const { cookie: Cookie, state } = startedBy(pressed)
    const html = { Accept: 'text/html' }
    const { consent } = startedBy(pressed)
    const code = provider.authorize(consent)
    const query = { code, realmId: '8', state }
    const first = await callBack(service.url, query, Cookie, html)
    const text = await first.text()
    expect(text).toContain(
      'for the company Rosewood &amp; Söhne (7), but the company 8 was chosen at the provider',
    )
    // Going back in the browser repeats the callback.
    const again = await callBack(service.url, query, Cookie, html)
    const repeated = await again.text()
    expect([first.status, again.status]).toEqual([409, 400])
    expect(repeated).toContain('the state was used before')
    const ticket = link.page.split('/').at(-1) ?? ''
    for (const [response, content] of [
      [first, text],
      [again, repeated],
    ] as const) {
      const nonce = /nonce="([^"]+)"/.exec(content)?.[1]
      expect(response.headers.get('Content-Security-Policy')).toContain(`'nonce-${nonce}'`)
      for (const secret of [ticket, state, code, Cookie.split('=')[1] ?? ''])
        expect(content).not.toContain(secret)
    }
    for (const content of [text, repeated]) {
      const action = /<form method="post"\s+action="([^"]+)"/.exec(content)?.[1] ?? ''
      expect(action).toBe(`connect/again/${link.id}`)
      const restarted = await press(`${service.url}/${action}`, { Cookie })
      expect(restarted.status).toBe(303)
      const finished = await finish(restarted, '7')
      expect(finished.headers.get('Location')).toBe('http://localhost/done')
    }
  })

  it('the id of a connect link starts an authorization only in the browser that has used the link, and for ten minutes', async () => {
    const { id, page } = await createLink()
    const again = `${service.url}/connect/again/${id}`
    const anyCookie = { Cookie: `authorization=${'x'.repeat(43)}` }
    expect((await press(again)).status).toBe(410) // the link is unused
    const { cookie: Cookie } = startedBy(await press(page))
    expect((await press(again, { Cookie })).status).toBe(303)
    expect((await press(again, { Cookie, 'Sec-Fetch-Site': 'cross-site' })).status).toBe(403)
    for (const headers of [{}, anyCookie]) expect((await press(again, headers)).status).toBe(410)
    await restore(id, LONG_USED)
    expect((await press(again, { Cookie })).status).toBe(410)
    await links.remove({ id, keyId: null })
    expect((await press(again, { Cookie })).status).toBe(410)
  })

  it('the audit log has an entry of the expected company if another company was chosen', async () => {
    await finish(await press((await createLink({ realm: '7' })).page), '8')
    await eventually(async () => {
      const { items } = (await service.ask('/audit?name=ACC-7')).body as unknown as AuditPage
      expect(items).toContainEqual(
        expect.objectContaining({ Who: 'browser', What: 'granted', Outcome: 'realm_mismatch' }),
      )
    })
  })

  it.each([
    ['does not exist', 'A'.repeat(43)],
    ['is too short', 'AAAA'],
    ['has other characters', encodeURIComponent('<script>alert(1)</script>')],
    ['has 10,000 characters', 'A'.repeat(10_000)],
  ])(
    'the page of a connect link says what to do if the ticket in its URL %s',
    async (_, ticket) => {
      for (const response of [
        await open(`${service.url}/connect/${ticket}`),
        await press(`${service.url}/connect/${ticket}`),
      ]) {
        expect(response.status).toBe(410)
        const text = await response.text()
        expect(text).toContain('Ask the sender for a new one')
        expect(text).not.toContain(ticket)
      }
    },
  )

  it('the page of an expired connect link says that the link has expired', async () => {
    const { id, page } = await createLink()
    await restore(id, { expiresAt: Date.now() - 1_000 })
    for (const response of [await open(page), await press(page)]) {
      expect(response.status).toBe(410)
      expect(await response.text()).toContain('it has expired')
    }
  })

  it.each<readonly [string, Record<string, string>]>([
    ['another site', { 'Sec-Fetch-Site': 'cross-site' }],
    ['a sibling domain', { 'Sec-Fetch-Site': 'same-site' }],
    ['another origin, in an old browser', { 'Sec-Fetch-Site': '', Origin: 'https://evil.example' }],
    ['an opaque origin', { 'Sec-Fetch-Site': '', Origin: 'null' }],
  ])(
    'the form of a connect link is rejected if it comes from %s, and the link stays usable',
    async (_, headers) => {
      const { page } = await createLink()
      const sent = Object.fromEntries(
        Object.entries({ ...BROWSER, ...headers }).filter(([, value]) => value !== ''),
      )
      const refused = await fetch(page, { method: 'POST', redirect: 'manual', headers: sent })
      expect([refused.status, refused.headers.getSetCookie()]).toEqual([403, []])
      expect((await press(page)).status).toBe(303)
    },
  )

  it('a connect link stays unused if it is opened while the provider is unavailable', async () => {
    provider.knobs.discoveryStatus = 500
    await start()
    const { page } = await createLink()
    expect((await press(page)).status).toBe(503)
    expect((await shown())[0]?.used_at).toBeNull()
  })

  it('the ticket of a connect link occurs in no log line, metric or list, and its page sends no referrer and is not cached', async () => {
    const { page } = await createLink()
    const ticket = page.split('/').at(-1) ?? ''
    const opened = await open(page)
    expect([opened.headers.get('Referrer-Policy'), opened.headers.get('Cache-Control')]).toEqual([
      'no-referrer',
      'no-store',
    ])
    expect(opened.headers.get('Content-Security-Policy')).toContain("default-src 'none'")
    await press(page)
    await press(page)
    const metrics = await (await fetch(`${service.url}/metrics`)).text()
    expect(metrics).toContain('route="/connect/:ticket"')
    expect(logged).toContain('/connect/:ticket')
    const list = JSON.stringify(await shown())
    for (const text of [metrics, logged, list]) expect(text).not.toContain(ticket)
  })
})

describe('the routes for connect links', () => {
  it.each<readonly [string, object]>([
    ['return_to elsewhere', { return_to: 'https://evil.example/' }],
    ['a label with a line break', { label: 'Acme\nEvil' }],
    ['11 tags', { tags: Object.fromEntries(Array.from({ length: 11 }, (_, n) => [`t${n}`, 'x'])) }],
    ['a realm with a slash', { realm: '../1' }],
    ['an expires_in of 31 days', { expires_in: 31 * 86_400 }],
    ['a negative expires_in', { expires_in: -1 }],
    ['an expires_in that is text', { expires_in: '60' }],
    ['an unknown member', { company: '1' }],
  ])('a connect link with %s is rejected, and nothing is stored', async (_, body) => {
    const refused = await service.ask('/connect-links', json(body))
    expect([refused.status, refused.body['code']]).toEqual([400, 'invalid_request'])
    expect(await shown()).toEqual([])
  })

  it('a connect link is valid for a week unless the request names another duration', async () => {
    const week = await service.ask('/connect-links', json({}))
    const hour = await service.ask('/connect-links', json({ expires_in: 3_600 }))
    const hours = [week, hour].map(({ body }) =>
      Math.round((Date.parse(String(body['expires_at'])) - Date.now()) / 3_600_000),
    )
    expect(hours).toEqual([168, 1])
  })

  it('the creation, the use and the deletion of a connect link are audited with the caller and without the ticket', async () => {
    const { page } = await createLink({ realm: '7' })
    const { cookie } = startedBy(await press(page))
    // The same browser may use the link again, as often as it likes. That is one use.
    for (let again = 0; again < 20; again += 1)
      expect((await press(page, { Cookie: cookie })).status).toBe(303)
    const { id } = await createLink()
    await service.call(`/connect-links/${id}`, { method: 'DELETE' })
    const entries = await eventually(async () => {
      const { items } = (await service.ask('/audit')).body as unknown as AuditPage
      expect(items).toHaveLength(4)
      return items
    })
    const facts = entries.map(({ Who, What, Name }) => `${Who.split(' ')[0]} ${What} ${Name}`)
    expect(facts.toSorted()).toEqual([
      'browser link_used ACC-7',
      'key link_created ',
      'key link_created ACC-7',
      'key link_withdrawn ',
    ])
    expect(JSON.stringify(entries)).not.toContain(page.split('/').at(-1))
  })

  it('a deleted connect link can no longer be used', async () => {
    const { id, page } = await createLink()
    const remove = () => service.call(`/connect-links/${id}`, { method: 'DELETE' })
    expect([(await remove()).status, (await remove()).status]).toEqual([204, 404])
    expect((await press(page)).status).toBe(410)
  })

  it('token-service lists 10,000 connect links page by page, and each link once', async () => {
    for (let count = 0; count < 10_000; count += 1)
      await links.add(linkOf({ expiresAt: Date.now() + 86_400_000 + (count % 100) }), Date.now())
    const seen = new Set<string>()
    let cursor: string | null = ''
    while (cursor !== null) {
      const query: string = cursor === '' ? '' : `&cursor=${cursor}`
      const { body } = await service.ask(`/connect-links?limit=500${query}`)
      for (const { id } of body['items'] as { id: string }[]) seen.add(id)
      cursor = body['next_cursor'] as string | null
    }
    expect(seen.size).toBe(10_000)
    for (const query of ['cursor=x', 'limit=501', 'after=1'])
      expect((await service.ask(`/connect-links?${query}`)).status).toBe(400)
  })
})

describe('GET /authorize with AUTHORIZE=links', () => {
  it('GET /authorize with AUTHORIZE=links shows how to get a connect link, and sets no cookie', async () => {
    const closed = await open(`${service.url}/authorize`)
    expect([closed.status, closed.headers.getSetCookie()]).toEqual([403, []])
    expect(await closed.text()).toContain('Ask its operators for a connect link')
    await start({ AUTHORIZE: 'open' })
    expect((await startInBrowser(service.url)).answer.status).toBe(302)
  })
})
