import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type FakeService, startFakeService } from '../../../test-support/fake-service.ts'
import { run, type Surroundings } from '../../../test-support/run.ts'

const AT = '2026-11-21T08:00:00.000Z'
const DUPLICATE = {
  Fault: {
    Error: [
      {
        Message: 'Duplicate Name Exists Error',
        Detail: 'The name supplied already exists. : null',
        code: '6240',
      },
    ],
    type: 'ValidationFault',
  },
  time: AT,
}

let service: FakeService
let members: Record<string, unknown>
let responseBody: string
beforeEach(async () => {
  members = {}
  responseBody = JSON.stringify(DUPLICATE)
  service = await startFakeService({
    'GET /processes': () => ({ body: { items: [{ Process: 'OrderProcess' }] } }),
    'GET /processes/OrderProcess/transactions/66': () => ({
      body: {
        Process: 'OrderProcess',
        TransactionID: '66',
        ReplayID: 0,
        Status: 'Failed',
        StepName: 'customer',
        InitialData: { Name: 'Ada' },
        Realm: '1',
        Version: 2,
        Attempt: 1,
        NextAttemptAt: null,
        LastError: 'POST https://gateway/v3 responded with 400',
        ErrorClass: 'http_400',
        WaitingFor: null,
        CreatedAt: AT,
        UpdatedAt: AT,
        CompletedAt: AT,
        Items: [item('order', 'Completed', 200), item('customer', 'Failed', 400)],
        Attempts: [
          {
            StepName: 'customer',
            Attempt: 1,
            Outcome: 'http_400',
            ResponseStatus: 400,
            ResponseId: '1-65-intuit-tid',
            TraceId: null,
            Request: { Method: 'POST', Url: 'https://gateway/v3/company/1/customer' },
            Error: 'POST https://gateway/v3 responded with 400',
            StartedAt: AT,
            FinishedAt: AT,
          },
        ],
        ...members,
      },
    }),
  })
})
afterEach(() => service[Symbol.asyncDispose]())

const item = (step: string, status: string, responseStatus: number) => ({
  StepName: step,
  Status: status,
  Attempt: 1,
  IdempotencyKey: `66/${step}`,
  ResponseStatus: responseStatus,
  ResponseBody: status === 'Completed' ? 'the-completed-body' : responseBody,
  Data: null,
  Error: null,
  StartedAt: AT,
  FinishedAt: AT,
})
const show = (args: readonly string[] = [], surroundings: Surroundings = {}) =>
  run(['transactions', 'show', '66', ...args], {
    env: { COORDINATOR_URL: service.url },
    ...surroundings,
  })

describe('the command `transactions show`', () => {
  it('`transactions show` prints for a failed step the id, the error messages and the body of the response', async () => {
    const { code, out } = await show()
    expect(code).toBe(0)
    expect(out).toContain(
      [
        'Response of step customer: 400',
        '  Request      POST https://gateway/v3/company/1/customer',
        '  Response id  1-65-intuit-tid',
        '  error 6240: Duplicate Name Exists Error: The name supplied already exists.',
        `  ${JSON.stringify(DUPLICATE)}`,
        '',
      ].join('\n'),
    )
    expect(out).not.toContain('the-completed-body')
  })

  it.each([
    ['{"fault":{"error":[{"message":"m","detail":"d","code":"3200"}]}}', 'error 3200: m: d'],
    [
      '<?xml version="1.0"?><IntuitResponse><Fault type="x"><Error code="5010"><Message>Stale &lt;Object&gt;</Message><Detail>d &amp;amp; e</Detail></Error></Fault></IntuitResponse>',
      'error 5010: Stale <Object>: d &amp; e',
    ],
  ])('`transactions show` prints the error messages of the body %j', async (body, line) => {
    responseBody = body
    expect((await show()).out).toContain(`  ${line}\n  ${body}`)
  })

  it('`transactions show` prints the round and the progress of a step, and which steps were skipped', async () => {
    const report = { Done: 7, Of: 12, Note: 'page 7', At: AT }
    const paged = { ...item('customer', 'Running', 200), Round: 6, Report: report }
    members = { Items: [{ ...item('order', 'Skipped', 200), ResponseStatus: null }, paged] }
    const { out } = await show()
    expect(out).toMatch(/order\s+Skipped/)
    expect(out).toContain('Running, round 6')
    expect(out).toMatch(/Progress\s+7 of 12: page 7/)
    members = { Items: [{ ...paged, Report: { $sealed: 'x' } }] }
    expect((await show()).out).not.toContain('Progress')
  })

  it('`transactions show` prints a status that only a later release knows', async () => {
    members = { Status: 'Dreaming', Items: [item('order', 'Dreamt', 200)] }
    const { code, out } = await show()
    expect([code, out]).toEqual([0, expect.stringMatching(/Status +Dreaming\n[^]*order +Dreamt/)])
  })

  it('`transactions show` prints the parent of a child, and counts the children of a run by place', async () => {
    members = {
      Parent: { Process: 'Import', TransactionID: '9', ReplayID: 1, Place: 'orders' },
      Children: [
        {
          Place: 'lines',
          Process: 'Line',
          IsLoaded: false,
          IdPrefix: '66/OrderProcess.lines/',
          Total: 20,
          Active: 1,
          Waiting: 0,
          Completed: 17,
          Failed: 2,
          Tolerated: 1,
          Concurrent: null,
        },
      ],
    }
    const { out } = await show()
    expect(out).toMatch(/^Parent +9 of Import, replay 1, place orders$/m)
    expect(out).toMatch(
      /^Children +lines: 20 of Line: 17 completed, 2 failed, 1 active \(the process is not loaded\)$/m,
    )
  })

  it('`transactions show` removes from a response all characters that could control the terminal', async () => {
    responseBody = 'a\nb\u001b[31m\u202e\u009b'
    expect((await show()).out).toContain('\n  a b�[31m��\n')
  })

  it('`transactions show` truncates long initial data and responses to 1,024 characters unless --full is set', async () => {
    members = { InitialData: 'i'.repeat(200_000) }
    responseBody = 'r'.repeat(5_000)
    const short = await show()
    expect(short.out).toContain(`"${'i'.repeat(1_023)}… (200002 characters; --full shows all)`)
    expect(short.out).toContain(`  ${'r'.repeat(1_024)}… (5000 characters; --full shows all)`)
    expect(short.out.length).toBeLessThan(4_000)
    const full = await show(['--full'])
    expect(full.out).toContain('i'.repeat(200_000))
    expect(full.out).toContain('r'.repeat(5_000))
    expect(full.out).not.toContain('--full')
  })

  it('if the step of a run called waitFor(), `transactions show` prints the time until which the run waits', async () => {
    members = {
      Status: 'Retrying',
      ErrorClass: 'step_waits',
      LastError: 'the step called waitFor and starts again later',
      NextAttemptAt: AT,
      Items: [],
      Attempts: [],
    }
    const { out } = await show()
    expect(out).toContain(`Waits for    the time that its step chose with waitFor: ${AT}\n`)
    expect(out).not.toContain('Error')
  })

  it('`transactions show` prints version, deadline, tags, lease owner, previous initial data, erasure and number of attempts', async () => {
    members = {
      DefinitionVersion: '2026-11',
      DeadlineAt: AT,
      Tags: { order: 'A:7', shop: 'x' },
      InputChanged: true,
      LeaseOwner: 'worker-1',
      LeaseUntil: AT,
      ErasedAt: AT,
      AttemptCount: 118,
    }
    const { out } = await show()
    expect(out).toContain('Began with   version 2026-11 of the process\n')
    expect(out).toMatch(/^Changes {6}\d+ \(the number that --if-version expects\)$/m)
    expect(out).not.toMatch(/^Version/m)
    expect(out).toContain(`Deadline     ${AT}\n`)
    expect(out).toContain('Tags         order=A:7, shop=x\n')
    expect(out).toContain('             differs from that of the previous run\n')
    expect(out).toContain(`Runs at      worker-1, lease until ${AT}\n`)
    expect(out).toContain(`Data erased  ${AT}\n`)
    expect(out).toContain('These are the newest 1 of 118 attempts.\n')
  })

  it('on a terminal `transactions show` makes its tables fit the width of the terminal', async () => {
    const { out } = await show([], { typed: [], columns: 70 })
    const table = out.split('\n').filter((line) => /^(STEP|ATTEMPT|1 |customer)/.test(line))
    expect(table.length).toBeGreaterThan(3)
    for (const line of table) expect(line.length).toBeLessThanOrEqual(70)
  })

  it('`transactions show --json` prints all members of the response', async () => {
    members = { LeaseOwner: 'worker-1', InDoubt: true }
    expect((await show(['--json'])).json).toMatchObject([
      { LeaseOwner: 'worker-1', InDoubt: true, Attempts: [{ ResponseId: '1-65-intuit-tid' }] },
    ])
  })
})
