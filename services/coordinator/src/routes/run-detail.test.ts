import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { respondWith } from '../../test-support/fake-target.ts'
import { bearer, type Fixture, startEmbedded } from '../../test-support/fixture.ts'

const transactions = '/processes/OrderProcess/transactions'
const html = '{"Order":"r1","CreatedAt":"2026-11-20T00:00:00Z","Note":"<script>alert(1)</script>"}'

let host: Fixture
beforeAll(async () => {
  host = await startEmbedded({
    keys: [{ id: 'company-43', scopes: ['transactions:read'], realms: ['43'] }],
  })
  const headers = { intuit_tid: '1-tid', 'x-request-id': 'r-1' }
  host.target.on('/order', respondWith(201, html, headers))
  host.target.on('/report', respondWith(400, 'no', { 'x-request-id': 'r-2' }))
  await host.queue('r1', { secret: 'data' }, '42')
  await host.reached('r1', 'Failed')
})
afterAll(() => host[Symbol.asyncDispose]())

const read = async (path: string) => {
  const response = await host.call(transactions + path)
  return [response.status, await response.json()]
}

describe('the routes that read one run', () => {
  it('an attempt shows the response, the trace id that the target has received, and the request without its query', async () => {
    const [, run] = await read('/r1')
    const seen = host.target.callsTo('/order')[0]
    expect(seen?.query).not.toEqual({})
    const TraceId = String(seen?.headers['traceparent']).split('-')[1]
    const url = host.target.url
    expect(run).toMatchObject({
      AttemptCount: 2,
      LeaseOwner: null,
      LeaseUntil: null,
      StartedAt: null,
      Attempts: [
        { Request: { Method: 'GET', Url: `${url}/order` }, TraceId, ResponseId: '1-tid' },
        { Request: { Method: 'GET', Url: `${url}/report` }, TraceId, ResponseId: 'r-2' },
      ],
    })
  })

  it('attempts=1 returns only the newest attempt, and bodies=omit omits response bodies and data', async () => {
    const [status, run] = await read('/r1?attempts=1&bodies=omit')
    expect([status, run]).toMatchObject([
      200,
      {
        AttemptCount: 2,
        Attempts: [{ StepName: 'report' }],
        Items: [
          { StepName: 'order', ResponseStatus: 201, ResponseBody: null, Data: null },
          { StepName: 'report', ResponseStatus: 400, ResponseBody: null, Data: null },
        ],
      },
    ])
  })

  it.each([
    ['/r1?attempts=501', 'attempts'],
    ['/r1?attempts=-1', 'attempts'],
    ['/r1?bodies=all', 'bodies'],
    ['/r1/runs?limit=0', 'limit'],
    ['/r1/runs?before=x', 'before'],
    ['/r1/items/order/body?replay=x', 'replay'],
  ])('GET %s is rejected, and the response names %s', async (path, name) => {
    expect(await read(path)).toMatchObject([
      400,
      { code: 'invalid_request', detail: expect.stringContaining(name) },
    ])
  })

  it('the stored response of a step is returned unchanged, with headers that prevent a browser from rendering it', async () => {
    const response = await host.call(`${transactions}/r1/items/order/body`)
    expect(await response.text()).toBe(html)
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'text/plain; charset=utf-8',
      'content-disposition': 'attachment',
      'content-security-policy': "default-src 'none'; sandbox",
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
    })
  })

  it.each([
    ['/r1/items/csv/body', 'response_not_found'],
    ['/r1/items/unknown/body', 'response_not_found'],
    ['/r1/items/order/body?replay=7', 'transaction_not_found'],
    ['/unknown/items/order/body', 'transaction_not_found'],
    ['/unknown/runs', 'transaction_not_found'],
  ])('GET %s is rejected with 404 %s', async (path, code) => {
    expect(await read(path)).toMatchObject([404, { code }])
  })

  it.each([
    ['/unknown', 'OrderProcess has no transaction unknown'],
    ['/unknown/runs', 'OrderProcess has no transaction unknown'],
    ['/r1?replay=7', 'OrderProcess has no transaction r1 with a run 7'],
  ])('the 404 response to GET %s names what was requested', async (path, detail) => {
    expect(await read(path)).toMatchObject([404, { code: 'transaction_not_found', detail }])
  })

  it('the runs of a transaction are read in pages', async () => {
    const json = { 'Content-Type': 'application/json' }
    await host.call(`${transactions}/r1/replays`, { method: 'POST', headers: json })
    await host.reached('r1', 'Failed', 1)
    const [, first] = await read('/r1/runs?limit=1')
    expect(first).toMatchObject({
      items: [{ ReplayID: 1, Status: 'Failed', ErrorClass: 'http_400' }],
      next_before: 1,
    })
    const [, second] = await read('/r1/runs?limit=1&before=1')
    expect(second).toMatchObject({ items: [{ ReplayID: 0 }], next_before: null })
    expect(await read('/r1/runs?before=0')).toEqual([200, { items: [], next_before: null }])
  })

  it.each(['/r1', '/r1/runs', '/r1/items/order/body'])(
    'GET %s is rejected with 403 for a service key of another company',
    async (path) => {
      const headers = bearer('company-43')
      expect((await host.call(transactions + path, { headers })).status).toBe(403)
    },
  )
})
