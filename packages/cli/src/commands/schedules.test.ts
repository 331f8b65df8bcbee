import { describe, expect, it } from 'vitest'
import { problem, useFakeService } from '../../test-support/fake-service.ts'
import { expectWrongUsage, run } from '../../test-support/run.ts'

const NEXT = '2026-11-24T07:00:00.000Z'
const nightly = {
  Process: 'Reports',
  Name: 'nightly',
  Cron: '0 2 * * *',
  TimeZone: 'America/New_York',
  Each: 'once',
  CatchUp: 'last',
  JitterSeconds: 0,
  NextTimes: [NEXT],
  LastTime: null,
  OpenTime: null,
  LagSeconds: 0,
  Paused: false,
  PausedAt: null,
  PausedBy: null,
  Reason: null,
  RemovedAt: null,
}
const paused = { ...nightly, Name: 'monthly', Paused: true, NextTimes: [], Reason: 'migration' }
const late = { ...nightly, Name: 'hourly', LagSeconds: 90 }
const removed = { ...nightly, Name: 'weekly', NextTimes: [], RemovedAt: NEXT }
const ID = 'nightly@2026-11-23T09:12:03.120Z'

const service = useFakeService({
  'GET /schedules': () => ({ body: { items: [nightly, paused, late, removed] } }),
  'POST /schedules/Reports/nightly/pause': () => ({ body: { ...nightly, Paused: true } }),
  'POST /schedules/Reports/nightly/resume': () => ({ body: nightly }),
  'POST /schedules/Reports/nightly/run': () => ({ body: { TransactionID: ID, Time: NEXT } }),
  'POST /schedules/Reports/monthly/run': () => ({ body: { TransactionID: null, Time: NEXT } }),
  'POST /schedules/Reports/none/run': () => problem(404, 'schedule_not_found'),
})

const cli = (...args: readonly string[]) =>
  run(['schedules', ...args], { env: { COORDINATOR_URL: service.url } })

describe('the commands `schedules`', () => {
  it('`schedules list` prints the state and the next time of each schedule', async () => {
    const { code, out } = await cli('list')
    expect(code).toBe(0)
    const rows = out.split('\n').map((line) => line.split(/ {2,}/))
    expect(rows[0]?.slice(0, 3)).toEqual(['PROCESS', 'SCHEDULE', 'STATE'])
    expect(rows[1]).toEqual([
      'Reports',
      'nightly',
      'ACTIVE',
      '0 2 * * *',
      'America/New_York',
      'once',
      NEXT,
    ])
    expect(rows.slice(1, 5).map((row) => row[2])).toEqual(['ACTIVE', 'PAUSED', 'LATE', 'REMOVED'])
    expect((await cli('list', '--json')).json).toEqual([nightly, paused, late, removed])
  })

  it('`schedules pause`, `schedules resume` and `schedules run` send the text of --reason and print the result', async () => {
    const done = await cli('pause', 'Reports', 'nightly', '--reason', 'migration')
    expect([done.code, done.out]).toEqual([0, 'The schedule nightly of Reports is paused.\n'])
    expect(service.requests.at(-1)?.body).toEqual({ Reason: 'migration' })
    expect((await cli('resume', 'Reports', 'nightly')).out).toContain(`its next time is ${NEXT}.`)
    expect((await cli('run', 'Reports', 'nightly')).out).toContain(`transactions show ${ID}`)
    expect((await cli('run', 'Reports', 'monthly')).out).toContain('one run for each company')
    expect((await cli('run', 'Reports', 'none')).code).toBe(3)
  })

  it.each([
    [['pause'], 'The names of a process and of its schedule are needed'],
    [['run', 'Reports'], 'The names of a process and of its schedule are needed'],
    [['resume', 'A', 'b', 'c'], "Unexpected argument 'c'"],
    [['list', 'A'], "Unexpected argument 'A'"],
  ])(
    '`schedules` rejects the arguments %j as wrong usage and sends no request',
    async (args, message) => {
      expectWrongUsage(await cli(...args), message, service.requests)
    },
  )
})
