import type { OperationDetail, OperationPage } from '@integration-host/shared/contracts/operations'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Fixture,
  keyOf,
  serviceKey,
  startEmbedded,
  type TestKey,
  watchEvents,
} from '../../test-support/fixture.ts'

const scopes = ['transactions:read', 'transactions:operate', 'audit:read']
const entries: readonly TestKey[] = [
  { id: 'reader', scopes: ['transactions:read'] },
  { id: 'company', scopes, realms: ['42'] },
  { id: 'other-process', scopes, processes: ['Invoice*'] },
  { id: 'console', scopes: [...scopes, 'act-for'] },
]

let host: Fixture
beforeAll(async () => {
  host = await startEmbedded({ keys: entries })
  // The process is paused, so its transactions stay in the state in which these tests put them.
  await call('/processes/OrderProcess/pause', { method: 'POST' })
})
afterAll(() => host[Symbol.asyncDispose]())

interface Init {
  readonly method?: string
  readonly body?: unknown
  readonly key?: string
  readonly headers?: Record<string, string>
}
const call = (path: string, { method, body, key, headers }: Init = {}) =>
  host.call(path, {
    method: method ?? (body === undefined ? 'GET' : 'POST'),
    headers: {
      'Content-Type': 'application/json',
      Authorization: `Bearer ${key === undefined ? serviceKey : keyOf(key)}`,
      ...headers,
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
const codeOf = async (response: Response) => [
  response.status,
  ((await response.json()) as { code?: string }).code,
]
const cancelOf = (...Ids: string[]) => ({
  Action: 'cancel',
  Process: 'OrderProcess',
  Ids,
  Reason: 'duplicates',
})
const start = async (body: object, more: Init = {}): Promise<OperationDetail> => {
  const response = await call('/operations', { body, ...more })
  expect(response.status).toBe(202)
  return (await response.json()) as OperationDetail
}
const finished = (id: string, status = 'Completed'): Promise<OperationDetail> =>
  eventually(async () => {
    const operation = (await (await call(`/operations/${id}`)).json()) as OperationDetail
    expect(operation.Status).toBe(status)
    return operation
  })

describe('POST /operations', () => {
  it('a bulk operation changes its runs in the background, with an event and an action log entry for each change', async () => {
    for (const id of ['a1', 'a2']) await host.queue(id, 'business data', '42')
    const events = await watchEvents(host, 'a2')
    const started = await start(cancelOf('a1', 'a2', 'gone', 'a1'), {
      key: 'console',
      headers: { 'Acting-For': 'ada@example.com' },
    })
    expect(started).toMatchObject({
      Action: 'cancel',
      Process: 'OrderProcess',
      Filter: null,
      IdCount: 3,
      PerSecond: 50,
      DryRun: false,
      KeyID: 'console',
      Person: 'ada@example.com',
      Reason: 'duplicates',
      Done: 0,
    })
    expect(await finished(started.ID)).toMatchObject({
      Done: 2,
      Skipped: 0,
      Failed: 1,
      FailedByCode: { transaction_not_found: 1 },
      Failures: [{ TransactionID: 'gone', ReplayID: null, Code: 'transaction_not_found' }],
      FinishedAt: expect.any(String) as string,
    })
    const { items } = (await (await call('/actions?limit=3')).json()) as { items: object[] }
    const what = { OperationID: started.ID, KeyID: 'console', Person: 'ada@example.com' }
    expect(items).toMatchObject([
      { ...what, Action: 'cancel', Reason: 'duplicates', Realm: '42' },
      { ...what, Action: 'cancel', Reason: 'duplicates', Realm: '42' },
      { ...what, Action: 'start_operation', Reason: 'duplicates', TransactionID: null },
    ])
    expect(JSON.stringify(items)).not.toContain('business data')
    for (const id of ['a1', 'a2']) expect(await host.run(id)).toMatchObject({ Status: 'Cancelled' })
    await eventually(() => expect(events.seen).toMatchObject([{ Status: 'Cancelled' }]))
    events.stop()
    const metrics = await (await host.call('/metrics')).text()
    expect(metrics).toMatch(
      /coordinator_operation_runs_total\{action="cancel",outcome="done".*\} 2/,
    )
    expect(metrics).toMatch(/coordinator_operations\{status="Paused".*\} 0/)
  })

  it('a bulk operation selects runs with the filter of the run list; a dry run only lists the selected runs', async () => {
    for (const id of ['f1', 'f2', 'g1']) await host.queue(id)
    const body = {
      Action: 'cancel',
      Process: 'OrderProcess',
      Filter: { status: ['Queued'], idPrefix: 'f', from: '2026-01-01T16:00:00+16:00' },
      Reason: 'by mistake',
    }
    const dry = await start({ ...body, DryRun: true })
    expect(await finished(dry.ID)).toMatchObject({
      Done: 2,
      Filter: { status: ['Queued'], idPrefix: 'f', from: '2026-01-01T00:00:00Z' },
      Matches: [
        { TransactionID: 'f2', ReplayID: 0, Status: 'Queued' },
        { TransactionID: 'f1', ReplayID: 0, Status: 'Queued' },
      ],
    })
    expect(await host.run('f1')).toMatchObject({ Status: 'Queued' })
    const { ID } = await start(body)
    expect(await finished(ID)).toMatchObject({ Done: 2 })
    expect(await host.run('f1')).toMatchObject({ Status: 'Cancelled' })
    expect(await host.run('g1')).toMatchObject({ Status: 'Queued' })
  })

  it('a key that is bound to realms starts bulk operations only on runs of these realms, and cannot read operations on all realms', async () => {
    await host.queue('own', 1, '42')
    await host.queue('foreign', 1, '43')
    const { ID } = await start(cancelOf('own', 'foreign'), { key: 'company' })
    expect(await finished(ID)).toMatchObject({ Done: 1, FailedByCode: { forbidden: 1 } })
    expect(await host.run('foreign')).toMatchObject({ Status: 'Queued' })
    const all = await start(cancelOf('own'))
    await finished(all.ID)
    const { items } = (await (
      await call('/operations', { key: 'company' })
    ).json()) as OperationPage
    expect(items.map((operation) => operation.ID)).toEqual([ID])
    expect((await call(`/operations/${ID}`, { key: 'company' })).status).toBe(200)
    for (const [path, method] of [
      ['', 'GET'],
      ['/stop', 'POST'],
      ['/continue', 'POST'],
    ] as const)
      for (const key of ['company', 'other-process'])
        expect(await codeOf(await call(`/operations/${all.ID}${path}`, { method, key }))).toEqual([
          403,
          'forbidden',
        ])
    expect(
      await codeOf(
        await call('/operations', {
          key: 'company',
          body: { ...cancelOf(), Ids: undefined, Filter: { realm: ['43'] } },
        }),
      ),
    ).toEqual([403, 'forbidden'])
  })

  it('a bulk operation is rejected if the key lacks the scope or may not use the process', async () => {
    for (const key of ['reader', 'other-process'])
      expect(await codeOf(await call('/operations', { key, body: cancelOf('x') }))).toEqual([
        403,
        'forbidden',
      ])
  })

  it.each([
    ['no reason', { Reason: undefined }, 'Reason'],
    ['an unknown action', { Action: 'settle' }, 'Action'],
    ['neither ids nor a filter', { Ids: undefined }, 'Filter'],
    ['ids and a filter', { Filter: {} }, 'Filter'],
    ['no ids', { Ids: [] }, 'Ids'],
    ['an id that cannot exist', { Ids: ['a\nb'] }, 'Ids.0'],
    ['10,001 ids', { Ids: Array.from({ length: 10_001 }, String) }, 'Ids'],
    ['an unknown filter', { Ids: undefined, Filter: { statuz: ['Failed'] } }, 'statuz'],
    ['a status that does not exist', { Ids: undefined, Filter: { status: ['Gone'] } }, 'status'],
    ['a step for a cancellation', { FromStep: 'order' }, 'FromStep'],
    ['PerSecond 0', { PerSecond: 0 }, 'PerSecond'],
    ['PerSecond 1001', { PerSecond: 1001 }, 'PerSecond'],
    ['an unknown member', { DryRum: true }, 'DryRum'],
  ])(
    'a bulk operation with %s is rejected with 400, and the error names the invalid member',
    async (_, change, member) => {
      const response = await call('/operations', { body: { ...cancelOf('x'), ...change } })
      const problem = (await response.json()) as { code: string }
      expect([response.status, problem.code]).toEqual([400, 'invalid_request'])
      expect(JSON.stringify(problem)).toContain(member)
    },
  )

  it('a bulk operation can cancel the runs of a process that is not loaded, but cannot resume them', async () => {
    await host.source.queue({ name: 'Removed', steps: ['only'] }, [
      { TransactionID: 'o1', InitialData: 1 },
    ])
    const body = { ...cancelOf('o1'), Process: 'Removed' }
    expect(await finished((await start(body)).ID)).toMatchObject({ Done: 1 })
    expect((await host.source.get('Removed', 'o1', null))?.run.Status).toBe('Cancelled')
    expect(
      await codeOf(await call('/operations', { body: { ...body, Action: 'resume' } })),
    ).toEqual([404, 'process_not_found'])
  })

  it('a bulk operation is rejected with 404 if its process is not loaded, and with 400 if the process lacks the step', async () => {
    const nobody = { ...cancelOf('x'), Process: 'Nobody' }
    expect(await codeOf(await call('/operations', { body: nobody }))).toEqual([
      404,
      'process_not_found',
    ])
    const replay = { ...cancelOf('x'), Action: 'replay', FromStep: 'gone' }
    expect(await codeOf(await call('/operations', { body: replay }))).toEqual([
      400,
      'step_not_found',
    ])
  })
})

describe('listing, stopping and continuing bulk operations', () => {
  it('bulk operations are listed newest first, page by page, without the ids of their transactions', async () => {
    for (const id of ['l1', 'l2', 'l3']) await finished((await start(cancelOf(id))).ID)
    const pages: string[] = []
    const read = async (query: string) =>
      (await (await call(`/operations?limit=2${query}`)).json()) as OperationPage
    let page = await read('')
    expect(page.items[0]).not.toHaveProperty('Failures')
    for (;;) {
      pages.push(...page.items.map(({ CreatedAt }) => CreatedAt))
      if (page.next_cursor === null) break
      page = await read(`&cursor=${page.next_cursor}`)
    }
    expect(pages.length).toBeGreaterThanOrEqual(3)
    expect(pages).toEqual(pages.toSorted().toReversed())
  })

  it('a running bulk operation can be stopped once, with a reason; an ended bulk operation can be neither stopped nor continued', async () => {
    const ids = Array.from({ length: 30 }, (_, n) => `s${n}`)
    for (const id of ids) await host.queue(id)
    const { ID } = await start({ ...cancelOf(...ids), PerSecond: 1 })
    const stop = () => call(`/operations/${ID}/stop`, { body: { Reason: 'wrong ids' } })
    const stopped = await stop()
    expect([stopped.status, await stopped.json()]).toMatchObject([200, { Status: 'Stopped', ID }])
    expect(await codeOf(await stop())).toEqual([409, 'operation_not_running'])
    expect(await codeOf(await call(`/operations/${ID}/continue`, { method: 'POST' }))).toEqual([
      409,
      'operation_not_paused',
    ])
    const { items } = (await (await call('/actions?limit=5')).json()) as { items: object[] }
    expect(items).toContainEqual(
      expect.objectContaining({ Action: 'stop_operation', Reason: 'wrong ids', OperationID: ID }),
    )
    const cancelled = await host.source.search({
      process: 'OrderProcess',
      filter: { idPrefix: 's', status: ['Cancelled'] },
      order: 'created',
      visible: { realms: ['*'], processes: ['*'] },
      after: null,
      limit: 50,
    })
    expect(cancelled.runs.length).toBeLessThan(3)
  })

  it('reading, stopping or continuing a bulk operation that does not exist is rejected with 404', async () => {
    for (const [path, method] of [
      ['', 'GET'],
      ['/stop', 'POST'],
      ['/continue', 'POST'],
    ] as const)
      expect(await codeOf(await call(`/operations/gone${path}`, { method }))).toEqual([
        404,
        'operation_not_found',
      ])
  })

  it.each([
    'limit=0',
    'limit=201',
    'limit=x',
    'cursor=x',
    `cursor=${Buffer.from('["2999-01-01T00:00:00Z","x"]').toString('base64url')}`,
    'status=Running',
  ])('GET /operations?%s is rejected with 400', async (query) => {
    expect(await codeOf(await call(`/operations?${query}`))).toEqual([400, 'invalid_request'])
  })
})
