import type { ActionPage } from '@integration-host/shared/contracts/operations'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Fixture,
  keyOf,
  serviceKey,
  startEmbedded,
  type TestKey,
} from '../../test-support/fixture.ts'

const transactions = '/processes/OrderProcess/transactions'
const operate = { scopes: ['transactions:operate'] }
const entries: readonly TestKey[] = [
  { id: 'one-company', ...operate, realms: ['42'] },
  { id: 'one-process', ...operate, processes: ['OrderProcess'] },
  { id: 'reader', scopes: ['transactions:read'] },
]

let host: Fixture
/** Counts the calls that have read a single run or the realms of runs. */
let reads = 0
beforeAll(async () => {
  host = await startEmbedded({
    keys: entries,
    wrapSource: (source) => ({
      ...source,
      get: (...args) => ((reads += 1), source.get(...args)),
      runsOf: (...args) => ((reads += 1), source.runsOf(...args)),
    }),
  })
  // The process is paused, so its transactions stay in the state in which these tests put them.
  await post('/processes/OrderProcess/pause', {})
})
afterAll(() => host[Symbol.asyncDispose]())

const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
  host.call(path, postJson(body, headers))
const erase = async (body: unknown, key: string = serviceKey) => {
  const response = await post('/erasures', body, { Authorization: `Bearer ${key}` })
  return { status: response.status, body: (await response.json()) as Record<string, unknown> }
}
const cancelled = async (id: string, realm: string): Promise<void> => {
  await host.queue(id, `data of ${id}`, realm)
  expect((await post(`${transactions}/${id}/cancel`, {})).status).toBe(200)
}

describe('POST /erasures', () => {
  it('POST /erasures erases the ended runs of a company, and counts the runs that have not ended', async () => {
    await cancelled('e1', '1')
    await host.queue('e2', 'data of e2', '1')
    const done = { files: 0, filesLeft: 0, more: false, notEnded: 1, unknown: 0 }
    expect(await erase({ Realm: '1', Reason: 'case 7' })).toEqual({
      status: 200,
      body: { erased: 1, ...done },
    })
    const run = await host.run('e1')
    expect(run).toMatchObject({ InitialData: null, Status: 'Cancelled' })
    expect(run).toHaveProperty('ErasedAt', expect.any(String))
    expect(await host.run('e2')).toMatchObject({ InitialData: 'data of e2', Status: 'Queued' })
    expect((await erase({ Realm: '1' })).body).toEqual({ erased: 0, ...done })
    for (const action of ['resume', 'replays']) {
      const response = await post(`${transactions}/e1/${action}`, {})
      expect(response.status).toBe(409)
      expect(await response.json()).toMatchObject({ code: 'transaction_erased' })
    }
    const log = (await (await host.call('/actions?id=e1')).json()) as ActionPage
    expect(log.items.filter(({ Action }) => Action === 'erase')).toMatchObject([
      { Reason: 'case 7', Realm: '1', Outcome: 'done' },
    ])
  })

  it('POST /erasures erases transactions by their ids, and counts the ids that have no run', async () => {
    await cancelled('e3', '2')
    const ids = { Process: 'OrderProcess', Ids: ['e3', 'e4'] }
    expect((await erase(ids)).body).toMatchObject({ erased: 1, unknown: 1 })
  })

  it.each([
    { Process: 'Gone', Ids: ['e3'] },
    { Process: 'Gone', Realm: '1' },
  ])(
    'POST /erasures responds 404 if the process is not loaded and has no runs: %j',
    async (body) => {
      expect(await erase(body)).toMatchObject({ status: 404, body: { code: 'process_not_found' } })
    },
  )

  it.each([
    [{}, 'send Realm'],
    [{ Ids: ['1'] }, 'send Realm'],
    [{ Realm: '1', Process: 'OrderProcess', Ids: ['1'] }, 'send Realm'],
    [{ Process: 'OrderProcess' }, 'send Realm'],
    [{ Realm: 'not a realm' }, 'Realm:'],
    [{ Process: 'OrderProcess', Ids: [] }, 'Ids:'],
    [{ Process: 'OrderProcess', Ids: Array(1_001).fill('1') }, 'Ids:'],
    [{ Realm: '1', Status: 'Failed' }, 'Status'],
  ])('POST /erasures responds 400 to the body %j and names the error', async (body, detail) => {
    const response = await erase(body)
    expect(response).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
    expect(response.body['detail']).toContain(detail)
  })

  it('a service key can erase only runs of its companies and processes, and needs the scope transactions:operate', async () => {
    await cancelled('e5', '42')
    await cancelled('e6', '43')
    const ids = (...Ids: string[]) => ({ Process: 'OrderProcess', Ids })
    const before = reads
    const many = Array.from({ length: 998 }, (_, n) => `unknown-${n}`)
    expect(await erase(ids('e5', ...many, 'e6'), keyOf('one-company'))).toMatchObject({
      status: 403,
    })
    expect(reads - before, 'one statement reads the realms of all ids').toBe(1)
    const rejected = [
      ['one-company', { Realm: '43' }],
      ['one-company', ids('e5', 'e6')],
      ['one-process', { Realm: '42' }],
      ['one-process', { Realm: '42', Process: 'OtherProcess' }],
      ['reader', { Realm: '42' }],
    ] as const
    for (const [id, body] of rejected)
      expect(await erase(body, keyOf(id)), id).toMatchObject({
        status: 403,
        body: { code: 'forbidden' },
      })
    for (const id of ['e5', 'e6'])
      expect(await host.run(id)).toMatchObject({ InitialData: `data of ${id}` })
    expect((await erase({ Realm: '42' }, keyOf('one-company'))).body).toMatchObject({ erased: 1 })
    const bounded = { Realm: '43', Process: 'OrderProcess' }
    expect((await erase(bounded, keyOf('one-process'))).body).toMatchObject({ erased: 1 })
  })
})
