import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'
import { type FakeService, startFakeService } from '../../test-support/fake-service.ts'
import type { SearchView } from '../contracts/search.ts'

const run = {
  Process: 'a/b',
  TransactionID: '66',
  ReplayID: 1,
  Attempt: 4,
  InitialData: 'business data',
}
const entry = {
  EntryID: 'e1',
  Realm: '4620816365291',
  Entity: 'Invoice',
  EntityID: '129',
  Operation: 'update',
  Process: 'InvoiceExport',
  TransactionID: 'A-2',
  ReplayID: 0,
  StepName: 'create',
  Fields: { PrivateNote: '5d1c0f3a9be27764' },
  RecordedAt: '2026-11-24T10:00:00.000Z',
  State: 'Deleted',
  CheckedAt: null,
  Changed: null,
}
const entries = [entry, { ...entry, EntryID: 'e0', TransactionID: 'A-1', Operation: 'create' }]
const credential = { Name: 'ACC-4620816365291', Label: 'Rosewood Interiors' }

describe('the search of the console', () => {
  let coordinator: FakeService
  let tokenService: FakeService
  let isCoordinatorDown = false
  let status = 'Failed'
  let at: ConsoleFixture
  let cookie: string

  beforeAll(async () => {
    coordinator = await startFakeService(({ url }) => {
      if (isCoordinatorDown)
        return { status: 503, body: { code: 'store_unavailable', detail: 'no database' } }
      if (url.pathname === '/transactions')
        return { body: { items: [{ ...run, Status: status }], next_cursor: null } }
      if (url.pathname === '/entries') {
        const items = entries.filter(({ EntityID }) => EntityID === url.searchParams.get('id'))
        return { body: { items, next_cursor: null } }
      }
      if (url.pathname === '/processes')
        return { body: { items: [], not_loaded: [{ Process: 'Rosewood', Unfinished: 1 }] } }
      return url.pathname.endsWith('/summary') ? { status: 503, body: {} } : undefined
    })
    tokenService = await startFakeService(({ url }) =>
      url.pathname === '/credentials'
        ? url.searchParams.get('q') === '\u0007'
          ? { status: 400, body: { code: 'invalid_request', detail: 'q: not valid' } }
          : { body: { items: [credential], next_cursor: null } }
        : undefined,
    )
    at = await startConsoleFixture({
      COORDINATOR_URL: coordinator.url,
      TOKEN_SERVICE_URL: tokenService.url,
    })
    cookie = await at.signIn({ Link: at.signInLink().split('#')[1] })
  })
  afterAll(async () => {
    for (const one of [at, coordinator, tokenService]) await one?.[Symbol.asyncDispose]()
  })

  async function search(q: string): Promise<SearchView> {
    const response = await at.request(`/api/search?q=${encodeURIComponent(q)}`, { cookie })
    expect(response.status).toBe(200)
    return (await response.json()) as SearchView
  }

  it('the search finds runs, companies and processes with the addresses of their pages, without business data', async () => {
    const found = await search('rose')
    expect(found).toEqual({
      Hits: [
        { Kind: 'run', Text: '66', Detail: 'a/b · Failed · run 1', Page: '/runs/a%2Fb/66?run=1' },
        {
          Kind: 'company',
          Text: 'Rosewood Interiors',
          Detail: 'ACC-4620816365291',
          Page: '/companies/4620816365291',
        },
        { Kind: 'process', Text: 'Rosewood', Detail: 'its runs', Page: '/runs?process=Rosewood' },
      ],
      Unavailable: [],
    })
    const asked = [coordinator, tokenService].flatMap(({ requests }) =>
      requests.map(({ url }) => url.pathname + url.search),
    )
    expect(asked).toContain('/transactions?idPrefix=rose&limit=7')
    expect(asked).toContain('/credentials?q=rose&limit=5')
  })

  it('the search finds an object in the books by its number, once, with the run of its newest entry', async () => {
    const [hit, ...others] = (await search('invoice  129')).Hits.filter(
      ({ Kind }) => Kind === 'object',
    )
    expect(others).toEqual([])
    expect(hit).toEqual({
      Kind: 'object',
      Text: 'Invoice 129',
      Detail: 'Rosewood Interiors · InvoiceExport A-2',
      Page: '/entries?realm=4620816365291&entity=Invoice&id=129',
    })
    const asked = () => coordinator.requests.map(({ url }) => url.pathname + url.search)
    expect(asked()).toContain('/entries?entity=Invoice&id=129&limit=50')
    await search('129')
    expect(asked()).toContain('/entries?id=129&limit=50')
  })

  it.each(['Spaceship 129', 'the invoice 129', 'é'])(
    'no object in the books can have the name %s',
    async (text) => {
      const before = coordinator.requests.length
      expect((await search(text)).Hits.map(({ Kind }) => Kind)).not.toContain('object')
      const sent = coordinator.requests.slice(before).map(({ url }) => url.pathname)
      expect(sent).not.toContain('/entries')
    },
  )

  it('the search shows the number of the attempt of a run that retries', async () => {
    status = 'Running'
    const { Hits } = await search('rose')
    status = 'Failed'
    expect(Hits[0]?.Detail).toBe('a/b · Running, attempt 4 · run 1')
  })

  it('the search uses the services that are available, and names a service that is unavailable', async () => {
    isCoordinatorDown = true
    const { Hits, Unavailable } = await search('x')
    isCoordinatorDown = false
    expect(Hits.map(({ Kind }) => Kind)).toEqual(['company'])
    expect(Unavailable).toEqual([
      {
        Service: 'coordinator',
        Code: 'store_unavailable',
        Detail: 'coordinator: no database',
        Since: null,
      },
    ])
  })

  it("the search reports no failure for a text that cannot be part of a company's name or id", async () => {
    expect(await search('\u0007')).toMatchObject({ Unavailable: [] })
  })

  it.each(['', '   ', 'x'.repeat(101)])('the search rejects the text %j with 400', async (q) => {
    const response = await at.request(`/api/search?q=${encodeURIComponent(q)}`, { cookie })
    expect(response.status).toBe(400)
  })
})
