import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type FakeService, problem, startFakeService } from '../../../test-support/fake-service.ts'
import { run, type Surroundings } from '../../../test-support/run.ts'
import { CommandFailed } from '../../exit-code.ts'

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
const runOf = (ReplayID: number) => ({
  ReplayID,
  Status: 'Failed',
  StepName: 'csv',
  ErrorClass: 'http_503',
  InDoubt: true,
  InputChanged: ReplayID > 0,
  CreatedAt: AT,
  UpdatedAt: AT,
  CompletedAt: AT,
  PurgedAt: null,
})
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
    [`GET ${AT_PATH}`]: () => ({ body: { items: [], next_cursor: null } }),
    // Each page has two transactions, regardless of the requested limit, so that a list has several pages. The second
    // page is empty, because a page of search results may be empty.
    'GET /transactions': ({ query }) => {
      if (query.get('cursor') === '4') return { body: { items: [], next_cursor: 'empty' } }
      if (query.get('cursor') === 'empty') query.set('cursor', '4')
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
    [`POST ${AT_PATH}/9/undo`]: () => ({ status: 202, body: header('9') }),
    [`POST ${AT_PATH}/9/retry`]: () => ({ status: 202, body: header('9') }),
    [`POST ${AT_PATH}/9/settle`]: () => ({
      status: 202,
      body: header('9', { Status: 'Running', StepName: 'csv' }),
    }),
    [`POST ${AT_PATH}/9/events/approved`]: () => ({
      body: {
        ...header('9', { ReplayID: 1 }),
        Item: {
          StepName: 'approved',
          Status: 'Received',
          FinishedAt: AT,
          Sender: { KeyID: 'erp', Person: 'ada@example.com', Reason: null, EventID: 'e1' },
        },
      },
    }),
    [`POST ${AT_PATH}/9/events/approved/links`]: () => ({
      status: 201,
      body: { Url: 'https://decide.test/decisions/1', ExpiresAt: '2026-12-06T00:00:00Z' },
    }),
    [`GET ${AT_PATH}/9/runs`]: ({ query }) => ({
      body: {
        items: [runOf(query.get('before') === null ? 2 : 0)],
        next_before: query.get('before') === null ? 2 : null,
      },
    }),
    [`POST ${AT_PATH}/9/resume`]: () => ({ status: 202, body: header('9', { ReplayID: 3 }) }),
  })
})
afterEach(() => service[Symbol.asyncDispose]())

const cli = (...args: readonly string[]) =>
  run(['transactions', ...args], { env: { COORDINATOR_URL: service.url } })
const routes = () => service.requests.map(({ route }) => route)

describe('the command `transactions list`', () => {
  it('`transactions list` reads pages until it has --limit transactions, and prints the cursor of the next page', async () => {
    const { code, out, err } = await cli('list', '--limit', '3')
    expect([code, err]).toEqual([0, 'There are more: --cursor 3, or --all.\n'])
    expect(out.split('\n').map((line) => line.split(/ +/)[0])).toEqual(['ID', '5', '4', '3', ''])
    expect(service.requests.map(({ route }) => route)).toEqual(Array(3).fill('GET /transactions'))
    expect(service.requests.map(({ query }) => query.get('limit'))).toEqual(['3', '1', '1'])
  })

  it('`transactions list` shows what a run waits for and prints each error on one line', async () => {
    const { out, err } = await cli('list', '--all')
    expect(err).toBe('')
    expect(out).toMatch(/^5 .*Waiting .*ACC-1$/m)
    expect(out).toMatch(new RegExp(`^3 +OrderProcess +0 +Retrying +order +2 +${AT} +${AT}$`, 'm'))
    expect(out).toMatch(/^4 .*the response was �\[31m404 x+…$/m)
    expect(out.trimEnd().split('\n')).toHaveLength(6)
  })

  it('without a terminal `transactions list` fits into 120 columns', async () => {
    const { out } = await cli('list', '--all')
    for (const line of out.split('\n')) expect(line.length).toBeLessThanOrEqual(120)
  })

  it('`transactions list` sends its filters to the coordinator', async () => {
    const args =
      `--process OrderProcess --status failed,waiting --class http_503 --class http_429 --step csv --definition-version 3 --realm 77 ` +
      `--waiting-for ACC-1 --priority high --tag order=A:7 --id-prefix inv- --in-doubt --since ${AT} --from ${AT} --until ${AT} ` +
      `--order updated --cursor 3`
    expect((await cli('list', ...args.split(' '))).code).toBe(0)
    expect(routes()).toEqual([`GET ${AT_PATH}`])
    expect(service.requests[0]?.query.toString()).toBe(
      new URLSearchParams([
        ['status', 'Failed'],
        ['status', 'Waiting'],
        ['step', 'csv'],
        ['class', 'http_503'],
        ['class', 'http_429'],
        ['version', '3'],
        ['realm', '77'],
        ['waitingFor', 'ACC-1'],
        ['priority', 'high'],
        ['inDoubt', 'true'],
        ['idPrefix', 'inv-'],
        ['tag', 'order:A:7'],
        ['from', AT],
        ['until', AT],
        ['since', AT],
        ['order', 'updated'],
        ['cursor', '3'],
        ['limit', '50'],
      ]).toString(),
    )
  })

  it.each([
    ['30m', 30 * 60_000],
    ['2h', 2 * 3_600_000],
    ['3d', 3 * 86_400_000],
  ])(
    '`transactions list --since %s` subtracts the duration from the current time',
    async (since, ms) => {
      await run(['transactions', 'list', '--since', since], {
        env: { COORDINATOR_URL: service.url },
        wallClock: () => Date.parse(AT) + ms,
      })
      expect(service.requests[0]?.query.get('since')).toBe(AT)
    },
  )

  it('on a terminal `transactions list` fits the table to the screen width, and colours statuses unless NO_COLOR is set', async () => {
    const list = (env: Readonly<Record<string, string>>) =>
      run(['transactions', 'list', '--all'], {
        env: { COORDINATOR_URL: service.url, ...env },
        typed: [],
        columns: 80,
      })
    const coloured = (await list({})).out
    expect(coloured).toContain('\u001b[31mFailed')
    const { out } = await list({ NO_COLOR: '1' })
    expect(out).not.toContain('\u001b')
    for (const line of out.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
  })

  describe('the command `transactions list --watch`', () => {
    const stopped = new CommandFailed(130, 'Stopped by SIGINT.')

    /**
     * Runs `list --watch`, and changes the run with the id 1 after the first request. Stops after the third request.
     */
    async function watched(args: readonly string[], surroundings: Surroundings = {}) {
      const stop = new AbortController()
      const changed = all.findIndex(({ TransactionID }) => TransactionID === '1')
      const original = all[changed]
      let polls = 0
      try {
        return await run(['transactions', 'list', '--watch', ...args], {
          env: { COORDINATOR_URL: service.url, NO_COLOR: '1' },
          stop: stop.signal,
          async sleep() {
            polls += 1
            all[changed] = header('1', { Status: 'Completed', Version: 2 })
            if (polls === 3) stop.abort(stopped)
          },
          ...surroundings,
        })
      } finally {
        if (original !== undefined) all[changed] = original
      }
    }

    it('without a terminal `transactions list --watch` prints a run again only when it has changed', async () => {
      const { code, out } = await watched([])
      expect(code).toBe(130)
      const ids = out.split('\n').map((line) => line.split(/ +/).slice(0, 4).join(' '))
      expect(ids.filter((line) => line.startsWith('1 '))).toEqual([
        '1 OrderProcess 0 Queued',
        '1 OrderProcess 0 Completed',
      ])
      expect(ids.filter((line) => line.startsWith('2 '))).toHaveLength(1)
    })

    it('on a terminal `transactions list --watch` redraws the list', async () => {
      const { out } = await watched([], { typed: [], columns: 100 })
      const screens = out.split('A\u001b[J') // the cursor moves up, and the screen is cleared from there
      expect(screens).toHaveLength(3)
      expect(screens[0]).toContain('5 runs at ')
      expect(screens[2]).toMatch(/^1 .*Completed/m)
    })

    it('`transactions list --watch` continues while the coordinator restarts', async () => {
      const { url } = service
      let polls = 0
      const stop = new AbortController()
      const { code, err } = await run(['transactions', 'list', '--watch'], {
        env: { COORDINATOR_URL: url },
        stop: stop.signal,
        async sleep() {
          polls += 1
          if (polls === 1) await service[Symbol.asyncDispose]()
          else stop.abort(stopped)
        },
      })
      expect([code, err]).toEqual([130, expect.stringContaining('cannot be reached')])
      service = await startFakeService({})
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

  it('without --process, a command on transactions never acts on the built-in process for webhooks', async () => {
    processes = ['Webhook', 'OrderProcess']
    expect((await cli('queue', '9')).code).toBe(0)
    expect(routes()).toContain(`POST ${AT_PATH}`)
  })
})

describe('commands that change a transaction', () => {
  it('the commands `transactions queue`, `replay`, `resume` and `cancel` send the values of their options', async () => {
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
    await cli('queue', '9', '--not-before', '90')
    expect(service.requests.at(-1)?.body).toMatchObject({ NotBefore: 90 })
    await cli('queue', '9', '--not-before', '2026-12-01T02:00:00-05:00')
    expect(service.requests.at(-1)?.body).toMatchObject({ NotBefore: '2026-12-01T02:00:00-05:00' })
    await cli('queue', '9', '--priority', 'high')
    expect(service.requests.at(-1)?.body).toMatchObject({ Priority: 'high' })
    await cli('queue', '9', '--debounce', 'inv-9', '--debounce-seconds', '30')
    expect(service.requests.at(-1)?.body).toMatchObject({ Debounce: { Key: 'inv-9', Seconds: 30 } })
    const longer = ['--debounce-seconds', '30', '--debounce-max-seconds', '60']
    await cli('queue', '9', '--debounce', 'inv-9', ...longer)
    expect(service.requests.at(-1)?.body).toMatchObject({ Debounce: { MaxSeconds: 60 } })
    await cli('queue', '9', '--tag', 'order=A-7', '--tag', 'plan=gold')
    expect(service.requests.at(-1)?.body).toMatchObject({ Tags: { order: 'A-7', plan: 'gold' } })
    expect((await cli('resume', '9', '--replay', '3')).out).toBe(
      '9 continues at step order, in run 3.\n',
    )
    expect(service.requests.at(-1)?.query.get('replay')).toBe('3')
  })

  it('the command `transactions undo` begins the undo of a run', async () => {
    expect((await cli('undo', '9', '--reason', 'refund')).out).toBe(
      '9 is being undone from step order, in run 0.\n',
    )
    expect(service.requests.at(-1)?.body).toEqual({ Reason: 'refund' })
  })

  it('the commands `transactions retry`, `settle` and `replay --data` send the body that the coordinator expects', async () => {
    expect((await cli('retry', '9', '--reason', 'now')).out).toBe(
      '9 is due now at step order, in run 0.\n',
    )
    expect(service.requests.at(-1)?.body).toEqual({ Reason: 'now' })
    const settled = [
      'settle',
      '9',
      '--outcome',
      'done',
      '--data',
      '{"Id": "1"}',
      '--reason',
      'seen',
    ]
    expect((await cli(...settled)).out).toBe('9 is settled, in run 0: Running at csv.\n')
    expect(service.requests.at(-1)?.body).toEqual({
      Outcome: 'done',
      Data: { Id: '1' },
      Reason: 'seen',
    })
    await cli('settle', '9', '--outcome', 'not_done', '--reason', 'not there', '--if-version', '3')
    expect(service.requests.at(-1)).toMatchObject({
      body: { Outcome: 'not_done', Reason: 'not there' },
      headers: { 'if-match': '"3"' },
    })
    await cli('replay', '9', '--data', 'null')
    expect(service.requests.at(-1)?.body).toEqual({ InitialData: null })
  })

  it('`transactions signal` sends an event, and prints who has sent the one that the run keeps', async () => {
    const event = ['--data', '{"approved": true}', '--event-id', 'e1', '--reason', 'agreed']
    expect((await cli('signal', '9', 'approved', ...event, '--replay', '1')).out).toBe(
      `Run 1 of 9 has the event approved from ada@example.com, received at ${AT}.\n`,
    )
    const sent = service.requests.at(-1)
    expect(sent?.body).toEqual({ EventID: 'e1', Data: { approved: true }, Reason: 'agreed' })
    expect(sent?.query.get('replay')).toBe('1')
    await cli('signal', '9', 'approved')
    expect(service.requests.at(-1)?.body).toEqual({})
    expect((await cli('signal', '9', 'approved', '--data', '{')).err).toContain('--data')
    expect((await cli('signal', '9')).err).toContain('The name of the event is needed')
  })

  it('`transactions link` prints the address with which a person decides', async () => {
    const person = ['--for', 'ada@example.com']
    expect((await cli('link', '9', 'approved', ...person)).out).toBe(
      'https://decide.test/decisions/1\n',
    )
    expect(service.requests.at(-1)?.body).toEqual({ For: 'ada@example.com' })
    await cli('link', '9', 'approved', ...person, '--expires', '2h', '--reason', 'her turn')
    expect(service.requests.at(-1)?.body).toEqual({
      For: 'ada@example.com',
      ExpiresInSeconds: 7_200,
      Reason: 'her turn',
    })
    expect((await cli('link', '9', 'approved')).err).toContain('--for is needed')
    expect((await cli('link', '9', ...person)).err).toContain('The name of the event is needed')
    const past = ['--expires', '2020-01-01T00:00:00Z']
    expect((await cli('link', '9', 'approved', ...person, ...past)).err).toContain('in the future')
  })

  it('`transactions runs` lists each run with its status, and marks runs in doubt and runs with changed initial data', async () => {
    const { out, err } = await cli('runs', '9')
    expect(err).toBe('')
    expect(out).toMatch(/^2 +Failed +csv +http_503 .*in doubt, other initial data$/m)
    expect(out).toMatch(/^0 +Failed +csv +http_503 .*in doubt$/m)
    expect((await cli('runs', '9', '--limit', '1')).err).toBe('There are more: --limit.\n')
  })

  it('the commands on transactions send --reason in the body, and --if-version as the header If-Match', async () => {
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

  it('a command with --if-version fails with the message of the coordinator if the run has another version', async () => {
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
    [['queue', '9', '--priority', 'urgent'], '--priority must be'],
    [['queue', '9', '--not-before', 'tomorrow'], '--not-before must be'],
    [['queue', '9', '--debounce', 'a'], '--debounce and --debounce-seconds belong together'],
    [['queue', '9', '--debounce-max-seconds', '9'], '--debounce and --debounce-seconds belong'],
    [['queue', '9', '--debounce', 'a', '--debounce-seconds', 'x'], '--debounce-seconds must be'],
    [['queue', '9', '--debounce', 'a', '--debounce-seconds', '0'], '--debounce'],
    [
      ['queue', '9', '--debounce', 'a', '--debounce-seconds', '1', '--not-before', '1'],
      '--debounce cannot be combined with --not-before',
    ],
    [['queue', '9', '--file', 'x'], "Unexpected argument '9'"],
    [['queue', '--file', 'x', '--data', '1'], '--file cannot be combined'],
    [['queue', '--file', 'x', '--tag', 'a=1'], '--file cannot be combined'],
    [['queue', '--file', 'x', '--debounce-seconds', '1'], '--file cannot be combined with --deb'],
    [['queue', '--file', 'x', '--debounce-max-seconds', '1'], '--file cannot be combined with --d'],
    [['queue', '9', '--tag', 'a'], '--tag must be NAME=VALUE'],
    [['cancel', '9', '--replay', 'x'], '--replay must be a whole number'],
    [['cancel', '9', '--replay', '9999999999'], '--replay is too large'],
    [['cancel', '9', '--if-version', 'x'], '--if-version must be a whole number'],
    [['resume', '9', '--reason', ''], '--reason must not be empty'],
    [['replay', '9', '--reason', 'x'.repeat(501)], '--reason must have at most 500 characters'],
    [['queue', '9', '--reason', 'a\nb'], '--reason must not contain control characters'],
    [['queue', '--file', 'x', '--reason', 'why'], '--file cannot be combined'],
    [['settle', '9', '--reason', 'x'], '--outcome must be done or not_done'],
    [['settle', '9', '--outcome', 'not-done'], '--outcome must be done or not_done'],
    [['settle', '9', '--outcome', 'done'], '--reason is needed'],
    [
      ['settle', '9', '--outcome', 'not_done', '--data', '1', '--reason', 'x'],
      '--data needs --outcome done',
    ],
    [['replay', '9', '--data', 'text'], '--data is not JSON'],
    [['list', '--status', 'Lost'], '--status must be one of Queued'],
    [['list', '--since', 'yesterday'], '--since must be a duration such as'],
    [['list', '--tag', 'x:y'], '--tag must be NAME=VALUE'],
    [['list', '--realm', 'a b'], '--realm must be'],
    [['list', '--order', 'id'], '--order must be created or updated'],
    [['list', '--watch', '--interval', '0'], '--interval must be 1 to 3600'],
    [['list', '--interval', '5'], '--interval needs --watch'],
    [['list', '--watch', '--all'], '--watch cannot be combined'],
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

describe('the command `transactions queue --file`', () => {
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
    ['\u00A0{"TransactionID": "1"}', 'line 1: is not JSON; nothing was queued'],
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
