import { digestOf } from '@integration-host/shared/access/key-list'
import type { ActionPage } from '@integration-host/shared/contracts/operations'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  bearer,
  type Fixture,
  serviceKey,
  startEmbedded,
  type TestKey,
} from '../../test-support/fixture.ts'

const transactions = '/processes/OrderProcess/transactions'
const entries: readonly TestKey[] = [
  { id: 'erp', scopes: ['transactions:queue'] },
  {
    id: 'console',
    scopes: ['transactions:queue', 'transactions:operate', 'audit:read', 'act-for'],
  },
  { id: 'one-company', scopes: ['audit:read'], realms: ['42'] },
  { id: 'operator', scopes: ['transactions:operate'], realms: ['42'] },
  { id: 'other-process', scopes: ['audit:read'], processes: ['Invoice*'] },
]

let host: Fixture
beforeAll(async () => {
  host = await startEmbedded({ keys: entries })
  // The process is paused, so its transactions stay in the state in which these tests put them.
  await post('/processes/OrderProcess/pause')
})
afterAll(() => host[Symbol.asyncDispose]())

const by = (id: string, headers: Record<string, string> = {}): Record<string, string> => ({
  ...bearer(id),
  ...headers,
})
const post = (path: string, body?: unknown, headers: Record<string, string> = {}) =>
  host.call(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })
const read = async (query = '', headers: Record<string, string> = {}): Promise<ActionPage> => {
  const response = await host.call(`/actions${query}`, { headers })
  expect(response.status).toBe(200)
  return (await response.json()) as ActionPage
}
const actionsOf = async (id: string) => (await read(`?id=${id}`)).items
const problemOf = async (response: Response) =>
  [response.status, (await response.json()) as { code: string; detail: string }] as const
const codeOf = async (response: Response) => [
  response.status,
  ((await response.json()) as { code?: string }).code,
]

describe('the actions of callers on runs and processes', () => {
  it('the Version of a run is accepted in If-Match, and each action on a run is recorded with its actor and reason', async () => {
    await host.queue('a1', 'a1', '42')
    const asAda = by('console', { 'Acting-For': 'ada@example.com' })
    const { Version } = await host.run('a1')
    const reason = { Reason: 'duplicate of a0 – see „Müller“' }
    const cancelled = await post(`${transactions}/a1/cancel`, reason, {
      ...asAda,
      'If-Match': `"${Version}"`,
    })
    expect(cancelled.status).toBe(200)
    expect((await post(`${transactions}/a1/resume`, undefined, by('console'))).status).toBe(202)
    expect((await post(`${transactions}/a1/cancel`, '')).status).toBe(200)
    expect((await post(`${transactions}/a1/replays`, { Reason: 'again' })).status).toBe(202)
    const what = { Process: 'OrderProcess', TransactionID: 'a1', Realm: '42', Outcome: 'done' }
    const serviceKeyId = digestOf(serviceKey).slice(0, 8)
    expect(await actionsOf('a1')).toMatchObject([
      { ...what, Action: 'replay', ReplayID: 1, KeyID: serviceKeyId, Reason: 'again' },
      { ...what, Action: 'cancel', ReplayID: 0, KeyID: serviceKeyId, Reason: null },
      { ...what, Action: 'resume', ReplayID: 0, KeyID: 'console', Person: null },
      { ...what, ...reason, Action: 'cancel', KeyID: 'console', Person: 'ada@example.com' },
    ])
  })

  it('the pause and the resumption of a process are recorded with their reasons', async () => {
    for (const action of ['resume', 'pause'])
      await post(`/processes/OrderProcess/${action}`, { Reason: `${action} it` }, by('console'))
    const { items } = await read('?limit=2')
    expect(items).toMatchObject([
      { Action: 'pause', Reason: 'pause it', KeyID: 'console', TransactionID: null },
      { Action: 'resume', Reason: 'resume it', KeyID: 'console', TransactionID: null },
    ])
  })

  it('a service key that is bound to realms cannot pause or resume a process, but can act on the runs of its realms', async () => {
    const before = await read('?limit=1')
    for (const action of ['resume', 'pause'])
      expect(
        await codeOf(await post(`/processes/OrderProcess/${action}`, '', by('operator'))),
      ).toEqual([403, 'forbidden'])
    expect(await read('?limit=1')).toEqual(before)
    await host.queue('o-own', 1, '42')
    expect((await post(`${transactions}/o-own/cancel`, '', by('operator'))).status).toBe(200)
  })

  it("queueing with the installation's own service key is recorded only if the request names a person or a reason", async () => {
    const body = (id: string, more = {}) => ({ TransactionID: id, InitialData: 'secret', ...more })
    await post(transactions, body('q-service'))
    await post(transactions, body('q-erp'), by('erp'))
    await post(transactions, body('q-erp'), by('erp'))
    await post(transactions, body('q-reason', { Reason: 'by hand' }))
    await post(`${transactions}/bulk`, [body('q-bulk', { Reason: 'many' }), body('q-erp')], {
      ...by('console', { 'Acting-For': 'ada@example.com' }),
    })
    const queued = { Action: 'queue', ReplayID: 0, Outcome: 'done' }
    expect(await actionsOf('q-service')).toEqual([])
    expect(await actionsOf('q-erp')).toMatchObject([{ ...queued, KeyID: 'erp', Reason: null }])
    expect(await actionsOf('q-erp')).toHaveLength(1)
    expect(await actionsOf('q-reason')).toMatchObject([{ ...queued, Reason: 'by hand' }])
    expect(await actionsOf('q-bulk')).toMatchObject([
      { ...queued, Person: 'ada@example.com', Reason: 'many' },
    ])
    expect(JSON.stringify(await read('?limit=500'))).not.toContain('secret')
  })

  it('queueing a transaction again with another reason is not a conflict, because the reason is not part of the transaction', async () => {
    const body = { TransactionID: 'r1', InitialData: 1 }
    expect((await post(transactions, { ...body, Reason: 'one' })).status).toBe(202)
    const again = await post(transactions, { ...body, Reason: 'two' })
    expect(again.status).toBe(200)
    expect(await again.json()).not.toHaveProperty('Reason')
    expect(await actionsOf('r1')).toMatchObject([{ Reason: 'one' }])
  })

  it('an action that the state of the run does not allow is recorded with the problem code of its rejection', async () => {
    await host.queue('f1', 'f1', '42')
    expect(await codeOf(await post(`${transactions}/f1/resume`, { Reason: 'try' }))).toEqual([
      409,
      'transaction_not_resumable',
    ])
    expect(await codeOf(await post(`${transactions}/f1/replays?replay=0`))).toEqual([
      409,
      'transaction_active',
    ])
    expect(
      await codeOf(await post(`${transactions}/f1/cancel`, '', { 'If-Match': '"7"' })),
    ).toEqual([412, 'version_moved'])
    expect(await codeOf(await post(`${transactions}/f1/undo`, { Reason: 'sorry' }))).toEqual([
      409,
      'transaction_not_undoable',
    ])
    expect(await actionsOf('f1')).toMatchObject([
      { Action: 'undo', Outcome: 'transaction_not_undoable', Reason: 'sorry' },
      { Action: 'cancel', Outcome: 'version_moved', Realm: '42', ReplayID: null },
      { Action: 'replay', Outcome: 'transaction_active', ReplayID: 0 },
      { Action: 'resume', Outcome: 'transaction_not_resumable', Reason: 'try', ReplayID: null },
    ])
    expect(await host.run('f1')).toMatchObject({ Status: 'Queued', Version: 0 })
  })

  it.each(['cancel', 'resume', 'undo', 'replays', 'retry', 'cancel?replay=7'])(
    'the action %s on a transaction that does not exist is not recorded',
    async (action) => {
      const response = await post(`${transactions}/gone/${action}`, { Reason: 'invented' })
      expect(await codeOf(response)).toEqual([404, 'transaction_not_found'])
      expect(await actionsOf('gone')).toEqual([])
    },
  )

  it('if a replay request contains initial data, the new run uses this data and has InputChanged: true', async () => {
    await host.queue('i1', { n: 1 }, '42')
    await post(`${transactions}/i1/cancel`)
    const response = await post(`${transactions}/i1/replays`, { InitialData: { n: -0 } })
    expect([response.status, await response.json()]).toMatchObject([
      202,
      { ReplayID: 1, InitialData: { n: 0 }, InputChanged: true, Realm: '42' },
    ])
  })

  it.each([
    ['a number with more digits than a double holds', '9007199254740993', 'InitialData'],
    ['a number of 401 characters', `1.${'0'.repeat(399)}`, 'at most 400 characters'],
    ['U+0000', String.raw`"\u0000"`, 'InitialData'],
    ['101 levels', `${'['.repeat(101)}${']'.repeat(101)}`, 'InitialData'],
    ['100,000 levels', `${'['.repeat(100_000)}${']'.repeat(100_000)}`, 'at most 1000 levels'],
  ])('a replay whose initial data has %s is rejected with 400', async (_, data, why) => {
    const body = `{"InitialData":${data}}`
    const [status, problem] = await problemOf(await post(`${transactions}/i1/replays`, body))
    expect([status, problem.code]).toEqual([400, 'invalid_request'])
    expect(problem.detail).toContain(why)
  })

  it('a replay is rejected with 413 if its initial data is larger than the maximum size of a transaction', async () => {
    const body = { InitialData: 'x'.repeat(270_000) }
    expect(await codeOf(await post(`${transactions}/i1/replays`, body))).toEqual([
      413,
      'payload_too_large',
    ])
  })

  it('a retry or settlement that the state of the run does not allow is rejected with its own problem code, and is recorded', async () => {
    await host.queue('s1', 1, '42')
    expect(await codeOf(await post(`${transactions}/s1/retry`))).toEqual([
      409,
      'transaction_not_retryable',
    ])
    const body = { Outcome: 'done', Data: { Id: 'secret' }, Reason: 'seen at the provider' }
    expect(await codeOf(await post(`${transactions}/s1/settle`, body))).toEqual([
      409,
      'transaction_not_in_doubt',
    ])
    expect(await actionsOf('s1')).toMatchObject([
      {
        Action: 'settle',
        Outcome: 'transaction_not_in_doubt',
        Reason: 'seen at the provider',
      },
      { Action: 'retry', Outcome: 'transaction_not_retryable', Reason: null },
    ])
    expect(JSON.stringify(await actionsOf('s1'))).not.toContain('secret')
  })

  it.each([
    ['no reason', { Outcome: 'done' }, 'Reason'],
    ['no outcome', { Reason: 'x' }, 'Outcome'],
    ['another outcome', { Outcome: 'maybe', Reason: 'x' }, 'Outcome'],
    ['data of a step that was not done', { Outcome: 'not_done', Data: 1, Reason: 'x' }, 'Data'],
    ['an unknown member', { Outcome: 'done', Reason: 'x', data: 1 }, 'the body'],
    ['no body', '', 'Outcome'],
  ])('a settlement with %s is rejected with 400', async (_, body, place) => {
    const [status, problem] = await problemOf(await post(`${transactions}/s1/settle`, body))
    expect([status, problem.code]).toEqual([400, 'invalid_request'])
    expect(problem.detail).toContain(place)
  })

  it.each(['replays', 'resume', 'cancel', 'retry', 'settle'])(
    'POST …/%s with an unknown query parameter is rejected with 400, and acts on no run',
    async (action) => {
      await host.queue('typo')
      const [status, problem] = await problemOf(
        await post(`${transactions}/typo/${action}?repaly=1`),
      )
      expect([status, problem.code]).toEqual([400, 'invalid_request'])
      expect(problem.detail).toContain('repaly: is not a query parameter')
      expect(await actionsOf('typo')).toEqual([])
    },
  )

  it.each([
    transactions,
    `${transactions}/bulk`,
    '/processes/OrderProcess/pause',
    '/processes/OrderProcess/resume',
    '/operations',
    '/operations/1/stop',
    '/operations/1/continue',
  ])('POST %s with a query parameter is rejected with 400', async (path) => {
    const [status, problem] = await problemOf(await post(`${path}?dryRun=true`))
    expect([status, problem.code]).toEqual([400, 'invalid_request'])
    expect(problem.detail).toContain('dryRun: is not a query parameter')
  })

  it('a service key that is bound to realms can retry and settle only runs of its realms', async () => {
    await host.queue('b1', 1, '43')
    const settle = { Outcome: 'not_done', Reason: 'x' }
    for (const [action, body] of [
      ['retry', ''],
      ['settle', settle],
    ] as const)
      expect(
        await codeOf(await post(`${transactions}/b1/${action}`, body, by('operator'))),
      ).toEqual([403, 'forbidden'])
  })

  it('if two callers act on the same version, one action succeeds and the other is rejected with 412 and the current version', async () => {
    await host.queue('m1')
    const headers = { 'If-Match': '"0"' }
    const responses = await Promise.all(
      [1, 2].map(() => post(`${transactions}/m1/cancel`, undefined, headers)),
    )
    const [done, moved] = responses.toSorted((a, b) => a.status - b.status)
    expect(done?.status).toBe(200)
    expect([moved?.status, await moved?.json()]).toMatchObject([
      412,
      { code: 'version_moved', Version: 1 },
    ])
    // `If-Match` refers to the run that the caller has read. Another run of the transaction may have the same version
    // number.
    const replay = () => post(`${transactions}/m1/replays?replay=0`, '', { 'If-Match': '"1"' })
    expect((await replay()).status).toBe(202)
    await post(`${transactions}/m1/cancel`)
    expect(await codeOf(await replay())).toEqual([412, 'version_moved'])
  })

  it.each([
    ['an empty reason', { Reason: '' }],
    ['a reason of 501 characters', { Reason: 'x'.repeat(501) }],
    ['a reason with a line break', { Reason: 'a\nb' }],
    ['a reason with a NUL', { Reason: 'a\0' }],
    ['a reason that overrides the text direction', { Reason: 'a\u202eb' }],
    ['half a surrogate pair in the reason', '{"Reason":"\\ud83d"}'],
    ['a reason that is a number', { Reason: 5 }],
    ['an unknown member', { Why: 'x' }],
    ['an array', []],
    ['null', 'null'],
    ['text that is not JSON', 'why'],
  ])(
    'an action is rejected if its body has %s, and nothing is changed or recorded',
    async (_, body) => {
      await host.queue('bad')
      for (const path of [
        `${transactions}/bad/cancel`,
        `${transactions}/bad/resume`,
        `${transactions}/bad/replays`,
        '/processes/OrderProcess/resume',
      ])
        expect(await codeOf(await post(path, body))).toEqual([400, 'invalid_request'])
      expect(await host.run('bad')).toMatchObject({ Status: 'Queued', Version: 0 })
      expect(await actionsOf('bad')).toEqual([])
    },
  )

  it.each([`${transactions}/any/cancel`, '/processes/OrderProcess/resume'])(
    'POST %s with a body of more than 256 KB is rejected with 413',
    async (path) => {
      const body = { Reason: 'x'.repeat(262_144) }
      expect(await codeOf(await post(path, body))).toEqual([413, 'payload_too_large'])
    },
  )

  it('a transaction with an invalid reason is not queued', async () => {
    const body = { TransactionID: 'bad-queue', InitialData: 1, Reason: 'a\u2066b' }
    expect((await post(transactions, body)).status).toBe(400)
    const bulk = await (await post(`${transactions}/bulk`, [body])).json()
    expect(bulk).toMatchObject({ invalid: 1, queued: 0 })
  })

  it.each(['7', 'W/"7"', '"7", "8"', '*', '"-1"', '"x"', '""', `"${'9'.repeat(400)}"`])(
    'an action with the header If-Match: %s is rejected with 400',
    async (header) => {
      await host.queue('if-match')
      for (const action of ['cancel', 'resume', 'replays'])
        expect(
          await codeOf(
            await post(`${transactions}/if-match/${action}`, '', { 'If-Match': header }),
          ),
        ).toEqual([400, 'invalid_request'])
    },
  )

  it('a request with If-Match to pause a process is rejected, because a process has no Version', async () => {
    const path = '/processes/OrderProcess/pause'
    expect(await codeOf(await post(path, '', { 'If-Match': '"1"' }))).toEqual([
      400,
      'invalid_request',
    ])
  })

  it('an action on behalf of a person is rejected and not recorded if the key lacks the scope act-for', async () => {
    const body = { TransactionID: 'no-act-for', InitialData: 1 }
    const headers = by('erp', { 'Acting-For': 'ada@example.com' })
    expect((await post(transactions, body, headers)).status).toBe(403)
    expect(await actionsOf('no-act-for')).toEqual([])
  })
})

describe('GET /actions', () => {
  it('GET /actions returns every action once, page by page, newest first', async () => {
    for (const id of ['p1', 'p2', 'p3']) {
      await host.queue(id)
      await post(`${transactions}/${id}/cancel`)
    }
    const all = (await read('?limit=500')).items
    const seen = []
    for (let before: number | null = null; ;) {
      const page: ActionPage = await read(`?limit=2${before === null ? '' : `&before=${before}`}`)
      seen.push(...page.items)
      if (page.next_before === null) break
      before = page.next_before
    }
    expect(seen).toEqual(all)
    expect(all.map(({ ID }) => ID)).toEqual(all.map(({ ID }) => ID).toSorted((a, b) => b - a))
    expect((await read('?process=OrderProcess&id=p2')).items).toMatchObject([{ Action: 'cancel' }])
    expect(await read('?process=Nobody')).toEqual({ items: [], next_before: null })
  })

  it('a service key that is bound to realms or processes can read only actions on these realms or processes', async () => {
    await host.queue('of-42', 1, '42')
    await host.queue('of-43', 1, '43')
    await host.queue('of-none', 1)
    for (const id of ['of-42', 'of-43', 'of-none']) await post(`${transactions}/${id}/cancel`)
    const visible = (await read('?limit=500', by('one-company'))).items
    expect(visible.map(({ TransactionID }) => TransactionID)).toEqual(
      expect.arrayContaining(['of-42', 'of-none']),
    )
    expect(visible.map(({ TransactionID }) => TransactionID)).not.toContain('of-43')
    expect(new Set(visible.map(({ Realm }) => Realm))).toEqual(new Set([null, '42']))
    // The visible entries with the realm null concern runs without a company. None of them is the pause of a process.
    expect(visible.filter(({ TransactionID }) => TransactionID === null)).toEqual([])
    expect(await read('', by('other-process'))).toEqual({ items: [], next_before: null })
    const foreign = await host.call('/actions?process=OrderProcess', {
      headers: by('other-process'),
    })
    expect(await codeOf(foreign)).toEqual([403, 'forbidden'])
  })

  it('a service key without the scope audit:read cannot read the action log (403)', async () => {
    const response = await host.call('/actions', { headers: by('erp') })
    expect([response.status, await response.json()]).toMatchObject([
      403,
      { code: 'forbidden', scope: 'audit:read' },
    ])
  })

  it.each([
    'limit=0',
    'limit=501',
    'limit=x',
    'before=0',
    'before=x',
    'before=-1',
    `before=${'9'.repeat(30)}`,
    'id=',
    'id=a%00',
    `id=${'x'.repeat(129)}`,
    'process=',
    'realm=42',
    'limt=10',
  ])('GET /actions?%s is rejected with 400', async (query) => {
    expect(await codeOf(await host.call(`/actions?${query}`))).toEqual([400, 'invalid_request'])
  })
})
