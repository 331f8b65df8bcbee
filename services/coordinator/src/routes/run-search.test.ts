import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Fixture,
  keyOf,
  serviceKey,
  startEmbedded,
  type TestKey,
} from '../../test-support/fixture.ts'

const read = { scopes: ['transactions:read', 'transactions:operate'] }
const entries: readonly TestKey[] = [
  { id: 'one-company', ...read, realms: ['42'] },
  { id: 'one-process', ...read, processes: ['OrderProcess'] },
]
const ofOrders = '/processes/OrderProcess/transactions'
const ofGone = '/processes/Gone/transactions'
const gone = { name: 'Gone', steps: ['first', 'second'] } as const

let host: Fixture
beforeAll(async () => {
  host = await startEmbedded({ keys: entries })
  // The process is paused, so its transactions stay in the state in which these tests put them.
  await post('/processes/OrderProcess/pause')
  await queue({ TransactionID: 'a', Realm: '42', Tags: { plan: 'gold', batch: '7' } })
  await queue({ TransactionID: 'b', Realm: '43', Tags: { plan: 'gold' } })
  await queue({ TransactionID: 'c' })
  await post(`${ofOrders}/b/cancel`)
  // The process of these transactions is not loaded, as if its file were removed.
  await host.source.queue(gone, [
    { TransactionID: 'd', InitialData: { n: 1 }, Realm: '42' },
    { TransactionID: 'e', InitialData: 1, Realm: '43' },
  ])
})
afterAll(() => host[Symbol.asyncDispose]())

const post = async (path: string, body: unknown = {}, key: string = serviceKey) => {
  const response = await host.call(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${key}` },
    body: JSON.stringify(body),
  })
  return { status: response.status, body: (await response.json()) as Record<string, unknown> }
}
const queue = (transaction: object) => post(ofOrders, { InitialData: 1, ...transaction })
const get = async (path: string, key: string = serviceKey) => {
  const response = await host.call(path, { headers: { Authorization: `Bearer ${key}` } })
  return {
    status: response.status,
    body: (await response.json()) as {
      items: { TransactionID: string }[]
      next_cursor: string | null
      code?: string
      detail?: string
    },
  }
}
const find = async (path: string, key?: string): Promise<string> => {
  const { status, body } = await get(path, key)
  expect(status).toBe(200)
  return body.items
    .map(({ TransactionID }) => TransactionID)
    .toSorted()
    .join('')
}

describe('the search for runs', () => {
  it('a search for runs with repeated and combined parameters finds runs of one process or of all processes', async () => {
    expect(await find('/transactions')).toBe('abcde')
    expect(await find(ofOrders)).toBe('abc')
    expect(await find('/transactions?status=Cancelled&status=Queued&realm=43')).toBe('be')
    expect(await find(`${ofOrders}?tag=plan:gold&tag=batch:7`)).toBe('a')
    expect(await find('/transactions?idPrefix=c&step=order')).toBe('c')
    expect(await find('/transactions?since=2999-01-01T00:00:00Z&order=updated')).toBe('')
    expect(await find('/transactions?from=2000-01-01T00:00:00%2B02:00&inDoubt=false')).toBe('abcde')
  })

  it('a search for runs continues at its cursor, and the cursor is valid only for the same order', async () => {
    const first = await get('/transactions?limit=3')
    expect(first.body.items).toHaveLength(3)
    const cursor = first.body.next_cursor
    const rest = await get(`/transactions?limit=3&cursor=${cursor}`)
    expect(rest.body).toMatchObject({ next_cursor: null })
    const ids = [...first.body.items, ...rest.body.items].map(({ TransactionID: id }) => id)
    expect(ids.toSorted()).toEqual(['a', 'b', 'c', 'd', 'e'])
    const other = await get(`/transactions?order=updated&cursor=${cursor}`)
    expect(other).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
    expect(other.body.detail).toContain('cursor')
  })

  it.each([
    ['state=Failed', 'state'],
    ['status=failed', 'status'],
    ['realm=a%20b', 'realm'],
    ['inDoubt=1', 'inDoubt'],
    ['tag=gold', 'tag'],
    ['from=today', 'from'],
    ['until=0000-01-01T00:00:00Z', 'until'],
    ['since=2026-01-01T00:00:00%2B24:00', 'since'],
    ['from=9999-12-31T23:59:59-16:00', 'from'],
    ['order=size', 'order'],
    ['limit=501', 'limit'],
    ['limit=1&limit=2', 'limit'],
    ['idPrefix=a&idPrefix=b', 'idPrefix'],
    ['cursor=nonsense', 'cursor'],
    ['process=OrderProcess', 'process'],
  ])(
    'a search with the query ?%s is rejected with 400, and the error names the parameter',
    async (query, name) => {
      for (const path of ['/transactions', ofOrders]) {
        const { status, body } = await get(`${path}?${query}`)
        expect([status, body.code]).toEqual([400, 'invalid_request'])
        expect(body.detail).toContain(name)
      }
    },
  )

  it('a search returns only runs of permitted processes that belong to a permitted company or to no company', async () => {
    expect(await find('/transactions', keyOf('one-company'))).toBe('acd')
    expect(await find('/transactions', keyOf('one-process'))).toBe('abc')
    expect((await get(ofGone, keyOf('one-process'))).status).toBe(403)
  })

  it('a search is rejected with 403 if the key does not permit one of the requested companies', async () => {
    for (const path of ['/transactions', ofOrders])
      for (const query of ['realm=43', 'realm=42&realm=43']) {
        const { status, body } = await get(`${path}?${query}`, keyOf('one-company'))
        expect([status, body.code]).toEqual([403, 'forbidden'])
      }
    expect(await find('/transactions?realm=42', keyOf('one-company'))).toBe('ad')
  })

  it('a cursor does not contain the name of a run in plain text, and a cursor that the client has invented is rejected', async () => {
    const { body } = await get('/transactions?limit=1', keyOf('one-company'))
    for (const part of (body.next_cursor ?? '').split('.'))
      expect(Buffer.from(part, 'base64url').toString('latin1')).not.toMatch(/Process|Gone|20\d\d-/)
    const position = ['created', '2999-01-01T00:00:00.000Z', 'OrderProcess', 'b', 0]
    const own = Buffer.from(JSON.stringify(position)).toString('base64url')
    const rejected = await get(`/transactions?cursor=${own}`, keyOf('one-company'))
    expect([rejected.status, rejected.body.code]).toEqual([400, 'invalid_request'])
  })
})

describe('the OpenAPI document of the run search', () => {
  it('the OpenAPI document describes every parameter of the run search, and which parameters can be repeated', async () => {
    const document = (await (await fetch(`${host.url}/openapi.json`)).json()) as {
      paths: Record<string, { get: { parameters: { name: string; schema: { type?: string } }[] } }>
    }
    for (const path of ['/transactions', '/processes/{process}/transactions']) {
      const { parameters = [] } = document.paths[path]?.get ?? {}
      const types = Object.fromEntries(parameters.map(({ name, schema }) => [name, schema.type]))
      const array = { status: 'array', step: 'array', class: 'array', realm: 'array', tag: 'array' }
      const text = { idPrefix: 'string', from: 'string', until: 'string', since: 'string' }
      const page = { order: 'string', limit: 'string', cursor: 'string' }
      const rest = { waitingFor: 'array', inDoubt: 'boolean', version: 'array' }
      expect(types).toMatchObject({ ...array, ...text, ...page, ...rest })
    }
  })
})

describe('the runs of a process that is not loaded', () => {
  it('runs of a process that is not loaded can be listed, shown and cancelled under the stored name of the process', async () => {
    expect(await find(ofGone)).toBe('de')
    expect(await get(`${ofGone}/d`)).toMatchObject({
      status: 200,
      body: { Process: 'Gone', StepName: 'first', InitialData: { n: 1 } },
    })
    expect((await get(`${ofGone}/none`)).body.code).toBe('transaction_not_found')
    expect((await post(`${ofGone}/e/cancel`, {}, keyOf('one-company'))).status).toBe(403)
    expect(await post(`${ofGone}/d/cancel`, { Reason: 'removed' })).toMatchObject({
      status: 200,
      body: { Status: 'Cancelled' },
    })
    expect((await get('/actions?process=Gone&id=d')).body.items).toMatchObject([
      { Action: 'cancel', Reason: 'removed', Outcome: 'done' },
    ])
  })

  it('the list of processes has the number of unfinished runs of a process that is not loaded', async () => {
    const { body } = await get('/processes')
    expect(body).toMatchObject({
      items: [{ Process: 'OrderProcess' }],
      not_loaded: [{ Process: 'Gone', Unfinished: 1 }],
    })
    for (const { id } of entries)
      expect((await get('/processes', keyOf(id))).body).toMatchObject({ not_loaded: [] })
  })

  it('runs of a process that is not loaded cannot be resumed or replayed, and no transaction can be queued for the process', async () => {
    for (const path of [`${ofGone}/d/resume`, `${ofGone}/d/replays`])
      expect((await post(path)).body).toMatchObject({ code: 'process_not_found' })
    const queued = await post(ofGone, { TransactionID: 'f', InitialData: 1 })
    expect(queued).toMatchObject({ status: 404, body: { code: 'process_not_found' } })
  })

  it('a request for the runs of a process that is not loaded and has no runs is rejected with 404', async () => {
    for (const path of ['', '/d', '/d/runs', '/d/items/first/body'])
      expect((await get(`/processes/None/transactions${path}`)).body).toMatchObject({
        code: 'process_not_found',
      })
    const cancelled = await post('/processes/None/transactions/d/cancel')
    expect(cancelled).toMatchObject({ status: 404, body: { code: 'process_not_found' } })
  })
})
