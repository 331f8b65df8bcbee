import type { ScheduleList } from '@integration-host/shared/contracts/schedule'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { bearer, type Fixture, startEmbedded, type TestKey } from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'

const scopes = ['transactions:read', 'transactions:operate', 'audit:read']
const keys: readonly TestKey[] = [
  { id: 'ops', scopes },
  { id: 'company-43', scopes, realms: ['43'] },
  { id: 'other', scopes, processes: ['Other'] },
  { id: 'reader', scopes: ['transactions:read'] },
]
const reports = defineProcess('Reports', {
  schedules: [
    { name: 'nightly', cron: '0 2 * * *', timeZone: 'Europe/Berlin', input: { days: 1 } },
    { name: 'companies', cron: '0 6 1 * *', each: 'company' },
  ],
}).step('report', (step) => step.complete(step.realm))

let host: Fixture
beforeAll(async () => {
  host = await startEmbedded({
    keys,
    env: { TOKEN_SERVICE_URL: 'http://127.0.0.1:9' },
    processes: [reports],
  })
  await until(async () => (await listed('ops')).length === 2)
})
afterAll(() => host[Symbol.asyncDispose]())

const call = (path: string, id = 'ops', init: RequestInit = {}) =>
  host.call(path, { ...init, headers: bearer(id) })
const listed = async (id: string): Promise<ScheduleList['items']> =>
  ((await (await call('/schedules', id)).json()) as ScheduleList).items
const post = (path: string, body: object = {}, id = 'ops') =>
  call(`/schedules/${path}`, id, { method: 'POST', body: JSON.stringify(body) })
const actions = async () =>
  ((await (await call('/actions?process=Reports')).json()) as { items: object[] }).items

describe('the routes of schedules', () => {
  it('GET /schedules shows each schedule with the next three times at which it is due', async () => {
    const [companies, nightly] = await listed('ops')
    expect(nightly).toMatchObject({
      Process: 'Reports',
      Name: 'nightly',
      Cron: '0 2 * * *',
      TimeZone: 'Europe/Berlin',
      Each: 'once',
      CatchUp: 'last',
      LastTime: null,
      LagSeconds: 0,
      Paused: false,
      RemovedAt: null,
    })
    expect(nightly?.NextTimes).toHaveLength(3)
    expect(companies).toMatchObject({ Name: 'companies', Each: 'company', OpenTime: null })
    expect(await listed('other')).toEqual([])
  })

  it('a paused schedule shows who paused it and why, but not to a service key that is limited to one company', async () => {
    const paused = await post('Reports/nightly/pause', { Reason: 'maintenance' })
    expect(await paused.json()).toMatchObject({ Paused: true, NextTimes: [], PausedBy: 'ops' })
    const seen = (await listed('company-43')).find(({ Name }) => Name === 'nightly')
    expect(seen).toMatchObject({ Paused: true, PausedBy: null, Reason: null })
    const resumed = await post('Reports/nightly/resume')
    expect(await resumed.json()).toMatchObject({ Paused: false, Reason: null })
    expect(await actions()).toMatchObject([
      { Action: 'resume_schedule', TransactionID: 'nightly@' },
      { Action: 'pause_schedule', TransactionID: 'nightly@', Reason: 'maintenance' },
    ])
  })

  it('POST /schedules/{process}/{name}/run starts a run with the input of the schedule, and records who started it', async () => {
    const response = await post('Reports/nightly/run', { Reason: 'the night was missed' })
    expect(response.status).toBe(200)
    const { TransactionID } = (await response.json()) as { readonly TransactionID: string }
    expect(TransactionID).toMatch(/^nightly@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    const run = `/processes/Reports/transactions/${encodeURIComponent(TransactionID)}`
    await eventually(async () =>
      expect(await (await call(run)).json()).toMatchObject({
        Status: 'Completed',
        InitialData: { days: 1 },
      }),
    )
    const [entry] = await actions()
    expect(entry).toMatchObject({ Action: 'queue', TransactionID, Reason: 'the night was missed' })
  })

  it("an operator's start of a schedule for all companies waits for token-service, and a second start is rejected meanwhile", async () => {
    const started = await post('Reports/companies/run')
    expect(await started.json()).toMatchObject({ TransactionID: null })
    const second = await post('Reports/companies/run')
    expect(second.status).toBe(409)
    expect(await second.json()).toMatchObject({ code: 'schedule_in_progress' })
    const shown = (await listed('ops')).find(({ Name }) => Name === 'companies')
    expect(shown?.OpenTime).not.toBeNull()
  })

  it.each([
    ['a schedule that does not exist', 'Reports/weekly/run', 'ops', 404, 'schedule_not_found'],
    [
      'the pause of a schedule that does not exist',
      'Reports/weekly/pause',
      'ops',
      404,
      'schedule_not_found',
    ],
    ['a process that is not loaded', 'None/nightly/run', 'ops', 404, 'process_not_found'],
    ['a key of one company', 'Reports/nightly/run', 'company-43', 403, 'forbidden'],
    ['a key of another process', 'Reports/nightly/pause', 'other', 403, 'forbidden'],
    ['a key without the scope', 'Reports/nightly/resume', 'reader', 403, 'forbidden'],
  ])('a request about a schedule is rejected for %s', async (_what, path, id, status, code) => {
    const response = await post(path, {}, id)
    expect(response.status).toBe(status)
    expect(await response.json()).toMatchObject({ code })
  })
})
