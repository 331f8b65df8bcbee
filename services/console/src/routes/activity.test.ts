import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'
import { type FakeService, startFakeService } from '../../test-support/fake-service.ts'
import type { ActivityView } from '../contracts/activity.ts'

const HASH = '0'.repeat(64)
const at = (minute: number): string => `2026-11-23T10:${String(minute).padStart(2, '0')}:00.000Z`

describe('the activity API of the console', () => {
  let coordinator: FakeService
  let tokenService: FakeService
  let isCoordinatorDown = false
  let console: ConsoleFixture
  let cookie: string

  beforeAll(async () => {
    const actions = Array.from({ length: 120 }, (_, index) => ({
      ID: 120 - index,
      At: at(30),
      KeyID: 'console',
      Person: index === 110 ? 'ada' : 'ben',
      Action: 'resume',
      Process: 'OrderProcess',
      TransactionID: String(index),
      ReplayID: 0,
      Realm: null,
      Reason: null,
      Outcome: 'done',
      OperationID: null,
    }))
    coordinator = await startFakeService(({ url }) => {
      if (url.pathname !== '/actions') return undefined
      if (isCoordinatorDown)
        return { status: 503, body: { code: 'store_unavailable', detail: 'no database' } }
      const before = Number(url.searchParams.get('before') ?? 1_000)
      const limit = Number(url.searchParams.get('limit'))
      const older = actions.filter(({ ID }) => ID < before)
      const items = older.slice(0, limit)
      return {
        body: { items, next_before: older.length > limit ? (items.at(-1)?.ID ?? null) : null },
      }
    })
    tokenService = await startFakeService(({ url }) =>
      url.pathname === '/audit'
        ? {
            body: {
              items: [
                {
                  Seq: 1,
                  At: at(20),
                  Who: 'routine',
                  What: 'faulted',
                  Name: 'ACC-42',
                  Version: 1,
                  Outcome: 'invalid_grant',
                  Previous: HASH,
                  Hash: HASH,
                },
              ],
              head: { Seq: 1, Hash: HASH },
              next_before: null,
            },
          }
        : url.pathname === '/credentials'
          ? { body: { items: [{ Name: 'ACC-42', Label: 'Rosewood' }], next_cursor: null } }
          : undefined,
    )
    console = await startConsoleFixture({
      COORDINATOR_URL: coordinator.url,
      TOKEN_SERVICE_URL: tokenService.url,
    })
    cookie = await console.signIn({ Link: console.signInLink().split('#')[1] })
  })
  afterAll(async () => {
    for (const one of [console, coordinator, tokenService]) await one?.[Symbol.asyncDispose]()
  })

  async function read(query: string): Promise<ActivityView> {
    const response = await console.request(`/api/activity?${query}`, { cookie })
    expect(response.status).toBe(200)
    return (await response.json()) as ActivityView
  }

  it('GET /api/activity lists actions, audit entries and sign-ins page by page, from the newest entry to the oldest', async () => {
    const entries: ActivityView['Entries'] = []
    let before: string | null = ''
    for (let page = 0; before !== null && page < 10; page += 1) {
      const part = await read(before === '' ? '' : `before=${before}`)
      entries.push(...part.Entries)
      before = part.Next
    }
    expect(before).toBeNull()
    expect(entries[0]).toMatchObject({ Who: 'operator', What: 'signed in', Kind: 'sign-ins' })
    expect(entries.at(-1)).toMatchObject({
      What: 'could not refresh',
      Target: 'ACC-42',
      Company: 'Rosewood',
    })
    expect(entries).toHaveLength(122)
    expect(new Set(entries.map(({ Key }) => Key)).size).toBe(122)
  })

  it('one request of GET /api/activity is sufficient to find the entries of a person, even if the entries are old', async () => {
    const { Entries, Next } = await read('person=ADA')
    expect(Entries).toMatchObject([{ Who: 'ada', Target: 'OrderProcess/110, run 0' }])
    expect(Next).toBeNull()
  })

  it('GET /api/activity reads only the logs that can contain matching entries', async () => {
    const since = tokenService.requests.length
    await read('kind=runs&process=OrderProcess&id=66')
    expect(tokenService.requests.slice(since).map(({ url }) => url.pathname)).not.toContain(
      '/audit',
    )
    expect(coordinator.requests.at(-1)?.url.search).toContain('process=OrderProcess&id=66')
    expect((await read('kind=sign-ins')).Entries.every(({ Kind }) => Kind === 'sign-ins')).toBe(
      true,
    )
    expect((await read('realm=42&kind=companies')).Entries).toHaveLength(1)
  })

  it('GET /api/activity lists a sign-out, and a rejected sign-in without the name that was typed', async () => {
    const wrong = { Link: 'not-a-link-of-this-console' }
    await console.request('/api/session', { method: 'POST', body: JSON.stringify(wrong) })
    const other = await console.signIn({ Link: console.signInLink().split('#')[1] })
    await console.request('/api/session', { method: 'DELETE', cookie: other })
    const { Entries } = await read('kind=sign-ins')
    expect(Entries.slice(0, 3)).toMatchObject([
      { Who: 'operator', What: 'ended a session' },
      { Who: 'operator', What: 'signed in' },
      { Who: 'an unknown person', What: 'was rejected at the sign-in' },
    ])
    expect(JSON.stringify(Entries)).not.toContain(wrong.Link)
  })

  it('while a service is unavailable, GET /api/activity lists the entries of the other logs, and names the service', async () => {
    isCoordinatorDown = true
    const { Entries, Next, Unavailable } = await read('')
    isCoordinatorDown = false
    expect(new Set(Entries.map(({ Kind }) => Kind))).toEqual(new Set(['sign-ins', 'companies']))
    expect(Next).toBeNull()
    expect(Unavailable).toEqual([
      {
        Service: 'coordinator',
        Code: 'store_unavailable',
        Detail: 'coordinator: no database',
        Since: null,
      },
    ])
    expect((await read('')).Unavailable).toEqual([])
  })

  it('if a service becomes unavailable between two pages, the next page has no entries of this service, and names it', async () => {
    const { Next: before } = await read('kind=runs')
    isCoordinatorDown = true
    const page = await read(`kind=runs&before=${before}`)
    isCoordinatorDown = false
    expect(page).toMatchObject({ Entries: [], Next: null })
    expect(page.Unavailable.map(({ Service }) => Service)).toEqual(['coordinator'])
  })

  it.each(['before=x', 'kind=other', 'realm=../x', 'unknown=1'])(
    'GET /api/activity rejects %s with 400',
    async (query) => {
      expect((await console.request(`/api/activity?${query}`, { cookie })).status).toBe(400)
    },
  )
})
