import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type FakeService, problem, startFakeService } from '../../../test-support/fake-service.ts'
import { run } from '../../../test-support/run.ts'

const AT = '2026-11-21T08:00:00.000Z'
const header = (id: string, members: object = {}) => ({
  Process: 'OrderProcess',
  TransactionID: id,
  ReplayID: 0,
  Status: 'Queued',
  StepName: 'order',
  InitialData: id,
  Realm: null,
  Version: 1,
  Attempt: 0,
  NextAttemptAt: null,
  LastError: null,
  CreatedAt: AT,
  UpdatedAt: AT,
  CompletedAt: null,
  ErrorClass: null,
  WaitingFor: null,
  ...members,
})
const all = [
  header('5', { Status: 'Waiting', WaitingFor: 'ACC-1' }),
  header('4', {
    Status: 'Failed',
    LastError: `the response was\n\u001b[31m404 ${'x'.repeat(100)}`,
  }),
  header('3', { Status: 'Retrying', NextAttemptAt: AT, Attempt: 2 }),
  header('2'),
  header('1'),
]
const AT_PATH = '/processes/OrderProcess/transactions'

let processes: string[]
let service: FakeService
beforeEach(async () => {
  processes = ['OrderProcess']
  service = await startFakeService({
    'GET /processes': () => ({
      body: {
        items: processes.map((Process) => ({ Process, BuiltIn: Process === 'Webhook' })),
      },
    }),
    // Each page has two transactions, regardless of the requested limit, so that a list has several pages.
    [`GET ${AT_PATH}`]: ({ query }) => {
      const start = all.findIndex(({ TransactionID }) => TransactionID === query.get('cursor')) + 1
      const items = all.slice(start, start + Math.min(2, Number(query.get('limit'))))
      const isLast = start + items.length >= all.length
      return { body: { items, next_cursor: isLast ? null : items.at(-1)?.TransactionID } }
    },
    [`POST ${AT_PATH}`]: () => ({ status: 202, body: header('9') }),
    [`POST ${AT_PATH}/9/replays`]: () =>
      problem(409, 'transaction_active', { detail: 'run 0 is active' }),
    [`POST ${AT_PATH}/9/cancel`]: () =>
      problem(412, 'version_moved', { detail: 'the version of the run is 3 now', Version: 3 }),
    [`POST ${AT_PATH}/9/resume`]: () => ({ status: 202, body: header('9', { ReplayID: 3 }) }),
  })
})
afterEach(() => service[Symbol.asyncDispose]())

const cli = (...args: readonly string[]) =>
  run(['transactions', ...args], { env: { COORDINATOR_URL: service.url } })
const routes = () => service.requests.map(({ route }) => route)

describe('transactions list', () => {
  it('`transactions list` reads pages until it has as many transactions as --limit allows, and prints the cursor of the next page', async () => {
    const { code, out, err } = await cli('list', '--limit', '3')
    expect([code, err]).toEqual([0, 'There are more: --cursor 3, or --all.\n'])
    expect(out.split('\n').map((line) => line.split(/ +/)[0])).toEqual(['ID', '5', '4', '3', ''])
    expect(
      service.requests.slice(1).map(({ query }) => [query.get('limit'), query.get('cursor')]),
    ).toEqual([
      ['3', null],
      ['1', '4'],
    ])
  })

  it('`transactions list` shows what a run waits for and prints each error on one line', async () => {
    const { out, err } = await cli('list', '--all')
    expect(err).toBe('')
    expect(out).toMatch(/^5 .*Waiting .*ACC-1$/m)
    expect(out).toMatch(new RegExp(`^3 .*Retrying +order +2 +${AT} +${AT}$`, 'm'))
    expect(out).toMatch(/^4 .*the response was �\[31m404 x+…$/m)
    expect(out.trimEnd().split('\n')).toHaveLength(6)
  })

  it('`transactions list` sends its filters to the coordinator', async () => {
    await cli(
      'list',
      '--status',
      'failed',
      '--since',
      AT,
      '--cursor',
      '3',
      '--process',
      'OrderProcess',
    )
    expect(routes()).toEqual([`GET ${AT_PATH}`])
    expect(Object.fromEntries(service.requests[0]?.query ?? [])).toEqual({
      status: 'Failed',
      since: AT,
      limit: '50',
      cursor: '3',
    })
  })

  it('`transactions list --json` prints one document on each line, with all members of the response', async () => {
    expect((await cli('list', '--all', '--json')).json).toEqual(all)
  })
})

describe('the option --process of commands on transactions', () => {
  it.each([
    [['A', 'B'], '--process is needed; there are: A, B'],
    [[], '--process is needed; there are: none'],
  ])(
    'the commands on transactions require --process if the coordinator has the business processes %j',
    async (names, message) => {
      processes = names
      const { code, err } = await cli('show', '1')
      expect([code, err]).toEqual([2, expect.stringContaining(message)])
    },
  )

  it('the built-in process of webhooks does not count as a process of its own', async () => {
    processes = ['Webhook', 'OrderProcess']
    expect((await cli('list', '--limit', '1')).code).toBe(0)
    expect(routes()).toContain(`GET ${AT_PATH}`)
  })
})

describe('commands that change a transaction', () => {
  it('`transactions queue`, `replay`, `resume` and `cancel` send the values of their options', async () => {
    expect((await cli('queue', '9', '--data', '{"n": 1}', '--realm', '77')).out).toBe(
      '9 is queued.\n',
    )
    expect(service.requests.at(-1)?.body).toEqual({
      TransactionID: '9',
      InitialData: { n: 1 },
      Realm: '77',
    })
    await cli('queue', '9')
    expect(service.requests.at(-1)?.body).toEqual({ TransactionID: '9', InitialData: '9' })
    await cli('queue', '9', '--tag', 'order=A-7', '--tag', 'plan=gold')
    expect(service.requests.at(-1)?.body).toMatchObject({ Tags: { order: 'A-7', plan: 'gold' } })
    expect((await cli('resume', '9', '--replay', '3')).out).toBe(
      '9 continues at step order, in run 3.\n',
    )
    expect(service.requests.at(-1)?.query.get('replay')).toBe('3')
  })

  it('--reason goes into the body, and --if-version into the header If-Match', async () => {
    await cli('queue', '9', '--reason', 'by hand')
    expect(service.requests.at(-1)?.body).toMatchObject({ Reason: 'by hand' })
    await cli('resume', '9', '--replay', '3', '--reason', 'the API is back', '--if-version', '7')
    expect(service.requests.at(-1)).toMatchObject({
      body: { Reason: 'the API is back' },
      headers: { 'if-match': '"7"' },
    })
    await cli('replay', '9', '--from-step', 'csv', '--replay', '0', '--reason', 'again')
    expect(service.requests.at(-1)?.body).toEqual({ fromStep: 'csv', Reason: 'again' })
    expect(service.requests.at(-1)?.query.get('replay')).toBe('0')
    expect(service.requests.at(-1)?.headers).not.toHaveProperty('if-match')
  })

  it('a command whose --if-version is not the version of the run any more fails with the message of the coordinator', async () => {
    const { code, err } = await cli('cancel', '9', '--if-version', '2')
    expect([code, err]).toEqual([1, 'the version of the run is 3 now (version_moved)\n'])
  })

  it('the commands on transactions print the message and the problem code if the coordinator rejects a request', async () => {
    const { code, out, err } = await cli('replay', '9')
    expect({ code, out, err }).toEqual({
      code: 1,
      out: '',
      err: 'run 0 is active (transaction_active)\n',
    })
  })

  it.each([
    [['queue'], 'The id of a transaction is needed'],
    [['queue', '.'], 'must not be . or ..'],
    [['queue', '9', '10'], "Unexpected argument '10'"],
    [['queue', '9', '--data', 'text'], '--data is not JSON'],
    [['queue', '9', '--realm', 'a b'], '--realm must be'],
    [['queue', '9', '--file', 'x'], "Unexpected argument '9'"],
    [['queue', '--file', 'x', '--data', '1'], '--file cannot be combined'],
    [['queue', '--file', 'x', '--tag', 'a=1'], '--file cannot be combined'],
    [['queue', '9', '--tag', 'a'], '--tag must be NAME=VALUE'],
    [['cancel', '9', '--replay', 'x'], '--replay must be a whole number'],
    [['cancel', '9', '--replay', '9999999999'], '--replay is too large'],
    [['cancel', '9', '--if-version', 'x'], '--if-version must be a whole number'],
    [['resume', '9', '--reason', ''], '--reason must not be empty'],
    [['replay', '9', '--reason', 'x'.repeat(501)], '--reason must have at most 500 characters'],
    [['queue', '9', '--reason', 'a\nb'], '--reason must not contain control characters'],
    [['queue', '--file', 'x', '--reason', 'why'], '--file cannot be combined'],
    [['list', '--status', 'Lost'], '--status must be one of Queued'],
    [['list', '--since', 'yesterday'], '--since must be a time'],
    [['list', '--limit', '0'], '--limit must be at least 1'],
    [['list', '--limit', '5', '--all'], 'Either --limit or --all'],
  ])(
    'the commands on transactions reject the arguments %j as wrong usage and send no request',
    async (args, message) => {
      const { code, out, err } = await cli(...args)
      expect([code, out, err]).toEqual([2, '', expect.stringContaining(message)])
      expect(routes().filter((route) => route.startsWith('POST'))).toEqual([])
    },
  )
})

describe('transactions queue --file', () => {
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'cli-'))
  })
  afterEach(() => rm(folder, { recursive: true }))
  const queue = async (content: string) => {
    const file = join(folder, 'file.ndjson')
    await writeFile(file, content)
    return cli('queue', '--file', file)
  }

  it.each([
    ['', 'has no transactions'],
    ['{"TransactionID": "1"}\n\n{', 'line 3: is not JSON; nothing was queued'],
  ])(
    '`transactions queue --file` rejects a file that contains %j and sends no request',
    async (content, message) => {
      const { code, err } = await queue(content)
      expect([code, err]).toEqual([2, expect.stringContaining(message)])
      expect(routes()).toEqual(['GET /processes'])
    },
  )

  it('`transactions queue --file` reports an error if the file cannot be read', async () => {
    const { code, err } = await cli('queue', '--file', join(folder, 'none'))
    expect([code, err]).toEqual([2, expect.stringContaining('cannot be read (ENOENT)')])
  })
})
