import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type FakeService, problem, startFakeService } from '../../test-support/fake-service.ts'
import { CommandFailed } from '../exit-code.ts'
import { expectWrongUsage, run, type Surroundings } from '../../test-support/run.ts'

const AT = '2026-11-21T08:00:00.000Z'
const ID = '3e0c'
const operation = (members: object = {}) => ({
  ID,
  Action: 'resume',
  Process: 'OrderProcess',
  Filter: { status: ['Failed'] },
  IdCount: null,
  FromStep: null,
  PerSecond: 50,
  DryRun: false,
  Status: 'Running',
  StatusReason: null,
  KeyID: 'ops',
  Person: null,
  Reason: 'the API is back',
  Done: 0,
  Skipped: 0,
  Failed: 0,
  FailedByCode: {},
  CreatedAt: AT,
  UpdatedAt: AT,
  FinishedAt: null,
  ...members,
})

let service: FakeService
/** The responses of the coordinator to requests for the operation, in order. The last response is repeated. */
let reports: object[]
/** The objects of the operation, if it takes back. */
let taken: object[]
beforeEach(async () => {
  reports = [operation()]
  taken = []
  service = await startFakeService({
    'POST /operations': () => ({ status: 202, body: operation() }),
    [`GET /operations/${ID}`]: () => ({
      body: { Failures: [], Matches: [], ...(reports.length > 1 ? reports.shift() : reports[0]) },
    }),
    'GET /operations': () => ({
      body: { items: [operation(), operation({ ID: '2b', Status: 'Paused' })], next_cursor: null },
    }),
    [`GET /operations/${ID}/objects`]: () => ({ body: { items: taken, next_cursor: null } }),
    [`POST /operations/${ID}/stop`]: () => ({ body: operation({ Status: 'Stopped', Done: 7 }) }),
    [`POST /operations/${ID}/continue`]: () =>
      problem(409, 'operation_not_paused', { detail: 'the operation is not paused' }),
  })
})
afterEach(() => service[Symbol.asyncDispose]())

const cli = (args: readonly string[], surroundings: Surroundings = {}) =>
  run(['operations', ...args], {
    env: { COORDINATOR_URL: service.url, NO_COLOR: '1' },
    sleep: async () => {},
    ...surroundings,
  })
const START = ['start', '--action', 'resume', '--process', 'OrderProcess']
const MANY_IDS = Array.from({ length: 10_001 }, (_, id) => ['--id', `${id}`]).flat()
const REASON = ['--reason', 'the API is back']

describe('the command `operations start`', () => {
  it('`operations start` sends the action and the filter that the options describe, and prints the id of the operation', async () => {
    const options = ['--status', 'failed', '--class', 'http_503', '--tag', 'a=b', '--since', AT]
    const { code, out } = await cli([...START, ...options, ...REASON, '--per-second', '10'])
    expect([code, out]).toEqual([
      0,
      `Operation ${ID} is started: integration-host operations show ${ID}\n`,
    ])
    expect(service.requests[0]?.body).toEqual({
      Action: 'resume',
      Process: 'OrderProcess',
      Filter: { status: ['Failed'], class: ['http_503'], tag: ['a:b'], since: AT },
      Reason: 'the API is back',
      PerSecond: 10,
      DryRun: false,
    })
  })

  it.each([
    [['--id', '1', '--id', '2'], { Ids: ['1', '2'] }],
    [['--every-run'], { Filter: {} }],
  ])(
    '`operations start` accepts the options %j instead of a filter to select the runs',
    async (options, members) => {
      expect((await cli([...START, ...options, ...REASON])).code).toBe(0)
      expect(service.requests[0]?.body).toMatchObject(members)
    },
  )

  it('`operations start --dry-run` waits until the runs are counted, and prints their number and the first runs', async () => {
    const Matches = Array.from({ length: 25 }, (_, n) => ({
      TransactionID: `m${n}`,
      ReplayID: 0,
      Status: 'Failed',
    }))
    reports = [
      operation({ DryRun: true }),
      operation({ DryRun: true, Status: 'Completed', Done: 25, Matches }),
    ]
    const { code, out } = await cli([...START, '--status', 'failed', ...REASON, '--dry-run'])
    expect(code).toBe(0)
    expect(service.requests[0]?.body).toMatchObject({ DryRun: true })
    expect(out).toContain('Progress     25 runs would be changed, 0 skipped, 0 failed\n')
    expect(out).toMatch(/^WOULD CHANGE +REPLAY +STATUS\nm0 +0 +Failed$/m)
    expect(out).toContain('… and 5 more (--json prints all)\n')
  })

  it.each([
    [operation({ Status: 'Completed', Done: 3 }), 0],
    [operation({ Status: 'Completed', Done: 2, Failed: 1, FailedByCode: { forbidden: 1 } }), 1],
    [operation({ Status: 'Paused', StatusReason: 'store_unavailable' }), 1],
    [operation({ Status: 'Stopped' }), 1],
  ])(
    '`operations start --watch` ends as soon as the operation is %j, with exit code %d',
    async (end, expected) => {
      reports = [operation(), operation({ Done: 1 }), operation({ Done: 1 }), end]
      const { code, out } = await cli([...START, '--status', 'failed', ...REASON, '--watch'])
      expect(code).toBe(expected)
      const running = out.split('\n').filter((line) => line.startsWith('Running: '))
      expect(running).toEqual([
        'Running: 0 runs changed, 0 skipped, 0 failed',
        'Running: 1 run changed, 0 skipped, 0 failed',
      ])
    },
  )

  it('on a terminal `operations show --watch` redraws the operation', async () => {
    reports = [operation(), operation({ Done: 1 }), operation({ Status: 'Completed', Done: 2 })]
    const { out } = await cli(['show', ID, '--watch'], { typed: [], columns: 80 })
    expect(out.split('A\u001b[J')).toHaveLength(3)
  })

  it('on a terminal `operations show --watch` clears all rows of a line that the terminal wraps', async () => {
    const Reason = `${'x'.repeat(60)}${'\u65e5'.repeat(10)}`
    reports = [operation({ Reason }), operation({ Status: 'Completed' })]
    const { out } = await cli(['show', ID, '--watch'], { typed: [], columns: 60 })
    const [first = ''] = out.split('\u001b')
    // The line with the reason has 93 columns, so the terminal wraps this line into two rows. No other line is wrapped.
    const rows = first.trimEnd().split('\n').length + 1
    expect(first.split('\n').filter((line) => line.length > 60)).toEqual([`Reason       ${Reason}`])
    expect(out).toContain(`\u001b[${rows}A\u001b[J`)
  })

  it('on a terminal `operations show --watch` leaves out the last lines if the screen has too few rows', async () => {
    const Reason = 'x'.repeat(100)
    reports = [operation({ Reason }), operation({ Status: 'Completed' })]
    const screen = { typed: [], columns: 40, rows: 9 }
    const { out } = await cli(['show', ID, '--watch'], screen)
    const [first = ''] = out.split('\u001b')
    // The line with the reason takes three rows, which do not fit on the screen. `Started by` is the last line that
    // fits.
    expect(first.trimEnd().split('\n').at(-1)).toMatch(/^Started by/)
  })

  it('on a terminal `operations show --watch` shows an error instead of the operation while the coordinator is unreachable', async () => {
    let polls = 0
    const { url } = service
    const stop = new AbortController()
    const { out, err } = await cli(['show', ID, '--watch'], {
      env: { COORDINATOR_URL: url, NO_COLOR: '1' },
      typed: [],
      columns: 80,
      stop: stop.signal,
      async sleep() {
        polls += 1
        if (polls === 1) await service[Symbol.asyncDispose]()
        else stop.abort(new CommandFailed(130, 'Stopped by SIGINT.'))
      },
    })
    service = await startFakeService({})
    expect(out.split('A\u001b[J')[1]).toMatch(/^coordinator at .* cannot be reached/)
    expect(err).toBe('Stopped by SIGINT.\n')
  })

  it.each([
    [[...START, ...REASON], 'Select the runs'],
    [[...START, '--every-run', '--status', 'failed', ...REASON], 'Select the runs'],
    [[...START, '--every-run'], '--reason is needed'],
    [['start', '--process', 'P', '--every-run', ...REASON], '--action is needed'],
    [['start', '--action', 'delete', '--process', 'P', '--every-run', ...REASON], '--action '],
    [[...START, '--every-run', ...REASON, '--per-second', '1001'], '--per-second '],
    [[...START, '--every-run', ...REASON, '--from-step', 'csv'], '--from-step is allowed only'],
    [[...START, '--id', '.', ...REASON], '--id must not be'],
    [[...START, ...MANY_IDS, ...REASON], '--id Too big'],
    [['show'], 'The id of an operation is needed'],
    [['list', '--limit', '0'], '--limit must be at least 1'],
  ])(
    '`operations` rejects the arguments %j as wrong usage and sends no request',
    async (args, message) => {
      expectWrongUsage(await cli(args), message, service.requests)
    },
  )
})

describe('a dry run of the action take-back', () => {
  it('waits until all objects are looked at, and prints them by entity, in total, and those that are left', async () => {
    const object = (EntityID: string, members: object) => ({
      TransactionID: `${ID}/77/${EntityID}`,
      Realm: '77',
      Entity: 'Invoice',
      EntityID,
      Reason: null,
      Fields: null,
      ...members,
    })
    const changed = { Outcome: 'left', Reason: 'changed_outside', Fields: ['Line[1].Amount'] }
    taken = [object('1', { Outcome: 'pending' })]
    reports = [operation({ Action: 'take-back', DryRun: true, Status: 'Completed', Done: 3 })]
    const args = ['start', '--action', 'take-back', '--process', 'P', '--realm', '77', ...REASON]
    const { code, out } = await cli([...args, '--since', '12h', '--until', '1h', '--dry-run'], {
      async sleep() {
        taken = [
          object('1', { Outcome: 'deleted' }),
          object('2', { Outcome: 'deleted' }),
          object('3', changed),
          object('4', { Entity: 'Customer', Outcome: 'inactivated' }),
        ]
      },
    })
    expect(code).toBe(0)
    expect(service.requests[0]?.body).toMatchObject({
      Action: 'take-back',
      Filter: { realm: ['77'], since: expect.any(String), until: expect.any(String) },
      DryRun: true,
    })
    const lines = out.split('\n').map((line) => line.trim().replaceAll(/ {2,}/g, ' | '))
    expect(lines.slice(lines.indexOf('ENTITY | WOULD BE | COUNT') + 1)).toEqual([
      'Customer | inactivated | 1',
      'Invoice | deleted | 2',
      'Invoice | left: changed_outside | 1',
      'in total | deleted | 2',
      'in total | inactivated | 1',
      'in total | left: changed_outside | 1',
      '',
      'LEFT | REALM | WHY | CHANGED FIELDS',
      'Invoice 3 | 77 | changed_outside | Line[1].Amount',
      '',
    ])
  })
})

describe('the commands `operations show`, `list`, `stop` and `continue`', () => {
  it('`operations show` prints the counts and the runs that failed, without control characters', async () => {
    reports = [
      operation({
        Status: 'Paused',
        StatusReason: 'store_unavailable',
        Reason: 'a\u001b[31m',
        Done: 3,
        Failed: 2,
        FailedByCode: { store_unavailable: 2 },
        Failures: [{ TransactionID: '66', ReplayID: null, Code: 'store_unavailable' }],
      }),
    ]
    const { code, out } = await cli(['show', ID])
    expect(code).toBe(0)
    expect(out).toContain('Status       Paused\nPaused by    store_unavailable\n')
    expect(out).toContain('Failed       store_unavailable 2\n')
    expect(out).toMatch(/^66 +store_unavailable$/m)
    expect(out).toContain('Reason       a�[31m\n')
  })

  it('`operations list` prints a line for each operation', async () => {
    const { out } = await cli(['list'])
    expect(out).toMatch(/^3e0c +resume +OrderProcess +Running +0 +0 +0 /m)
    expect(out).toMatch(/^2b +resume +OrderProcess +Paused /m)
  })

  it('`operations stop` and `continue` send the reason, and print the outcome or the rejection', async () => {
    expect((await cli(['stop', ID, '--reason', 'enough'])).out).toBe(
      `Operation ${ID} is stopped: 7 runs changed, 0 skipped, 0 failed.\n`,
    )
    expect(service.requests[0]?.body).toEqual({ Reason: 'enough' })
    expect(await cli(['continue', ID])).toMatchObject({
      code: 1,
      err: 'the operation is not paused (operation_not_paused)\n',
    })
  })
})
