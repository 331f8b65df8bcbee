import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Fixture, startEmbedded } from '../../test-support/fixture.ts'
import type { BulkResponse } from './contracts.ts'

let host: Fixture
beforeAll(async () => {
  host = await startEmbedded()
  await host.queue('known')
  await host.reached('known', 'Completed')
})
afterAll(() => host[Symbol.asyncDispose]())

const transactions = '/processes/OrderProcess/transactions'
const json = { 'Content-Type': 'application/json' }
const ndjson = { 'Content-Type': 'application/x-ndjson' }

describe('the routes of the coordinator', () => {
  it.each([
    [`${transactions}?state=Failed`, 'state'],
    [`${transactions}?status=Failed&limt=10`, 'limt'],
    [`${transactions}/known?run=1`, 'run'],
    [`${transactions}/known/runs?replay=1`, 'replay'],
    [`${transactions}/known/items/order/body?bodies=omit`, 'bodies'],
    ['/processes?name=OrderProcess', 'name'],
    ['/processes/OrderProcess/summary?step=order', 'step'],
    ['/integrity?process=OrderProcess', 'process'],
    ['/events?since=0', 'since'],
    ['/events?proces=OrderProcess', 'proces'],
  ])('GET %s is rejected because of the unknown query parameter %s', async (path, name) => {
    const response = await host.call(path)
    expect([response.status, await response.json()]).toMatchObject([
      400,
      { code: 'invalid_request', detail: expect.stringContaining(`${name}: is not a query`) },
    ])
  })

  it('a line of a bulk request that begins with a character that is no white space of JSON is invalid, and blank lines are skipped', async () => {
    const line = JSON.stringify({ TransactionID: 'known', InitialData: 'known' })
    const begins = ['\u00A0', '\v', '\f', '\u2028', '\u3000', '\uFEFF']
    const body = [
      ` \t${line} \r`,
      '\r',
      ' ',
      ...begins.map((space) => space + line),
      '\u00A0',
    ].join('\n')
    const response = await host.call(`${transactions}/bulk`, {
      method: 'POST',
      headers: ndjson,
      body,
    })
    const { results, ...counts } = (await response.json()) as BulkResponse
    expect(counts).toMatchObject({ exists: 1, invalid: begins.length + 1, queued: 0 })
    expect(results.map(({ outcome }) => outcome)).toEqual([
      'exists',
      ...begins.map(() => 'invalid'),
      'invalid',
    ])
  })

  it('a bulk request with the lone byte 0xA0 is not UTF-8 and is rejected', async () => {
    const body = Buffer.concat([Buffer.from([0xa0]), Buffer.from('{"TransactionID":"a0"}')])
    const response = await host.call(`${transactions}/bulk`, {
      method: 'POST',
      headers: ndjson,
      body,
    })
    expect([response.status, await response.json()]).toMatchObject([
      400,
      { detail: 'the body must be UTF-8' },
    ])
  })

  it('the OpenAPI document describes the body of a request that queues a transaction', async () => {
    const document = (await (await fetch(`${host.url}/openapi.json`)).json()) as {
      paths: Record<string, Record<string, unknown>>
    }
    expect(document.paths['/processes/{process}/transactions']?.['post']).toMatchObject({
      requestBody: { content: { 'application/json': { schema: {} } } },
    })
  })

  it('HEAD /events gets a response and opens no stream', async () => {
    const response = await host.call('/events', { method: 'HEAD' })
    expect([response.status, response.headers.get('Content-Type')]).toEqual([
      200,
      'text/event-stream',
    ])
    const metrics = await (await fetch(`${host.url}/metrics`)).text()
    expect(metrics).toContain('coordinator_event_watchers{service="coordinator"} 0')
  })

  it('a request for events with an unknown value of coalesce is rejected', async () => {
    const response = await host.call('/events?coalesce=yes')
    expect([response.status, await response.json()]).toMatchObject([
      400,
      { code: 'invalid_request' },
    ])
  })

  it('a request for the events of an unknown process is rejected with 404', async () => {
    const response = await host.call('/events?process=Unknown')
    expect([response.status, ((await response.json()) as { code: string }).code]).toEqual([
      404,
      'process_not_found',
    ])
  })

  it.each(['', '/summary', '/transactions', '/transactions/known'])(
    'GET /processes/Order%s is rejected with 404, and the response names the loaded processes',
    async (path) => {
      const response = await host.call(`/processes/Order${path}`)
      expect([response.status, await response.json()]).toMatchObject([
        404,
        { detail: expect.stringMatching(/^no process Order is loaded.*; loaded: OrderProcess$/) },
      ])
    },
  )
})

describe('queueing an invalid transaction', () => {
  const body = (value: unknown): string => JSON.stringify(value)
  const id = (TransactionID: unknown) => body({ TransactionID, InitialData: '1' })
  it.each<[string, string, number]>([
    ['a body that is not JSON', 'nope', 400],
    ['an empty body', '', 400],
    ['an array instead of an object', '[]', 400],
    ['a body without an id', body({ InitialData: 1 }), 400],
    ['an empty id', id(''), 400],
    ['an id that is a number', id(66), 400],
    ['an id of 129 characters', id('x'.repeat(129)), 400],
    ['an id of 129 emoji', id('😀'.repeat(129)), 400],
    ['an id with a NUL', id('a\0'), 400],
    ['an id with a newline', id('a\n'), 400],
    ['an id with a lone surrogate', '{"TransactionID":"\\ud83d","InitialData":1}', 400],
    ['a body without initial data', body({ TransactionID: 'x' }), 400],
    ['a body with an unknown member', body({ TransactionID: 'x', InitialData: 1, Extra: 1 }), 400],
    ['a realm that is a number', body({ TransactionID: 'x', InitialData: 1, Realm: 5 }), 400],
    ['a realm with a slash', body({ TransactionID: 'x', InitialData: 1, Realm: 'a/b' }), 400],
    ...[
      -1,
      1.5,
      31_536_001,
      'tomorrow',
      '2027-01-01',
      '2027-02-30T00:00:00Z',
      '9999-01-01T00:00:00Z',
      '90',
      null,
    ].map((NotBefore): [string, string, number] => [
      `NotBefore ${NotBefore}`,
      body({ TransactionID: 'x', InitialData: 1, NotBefore }),
      400,
    ]),
    ...[
      {},
      { Seconds: 5 },
      { Key: '', Seconds: 5 },
      { Key: 'k' },
      { Key: 'k', Seconds: 0 },
      { Key: 'k', Seconds: -1 },
      { Key: 'k', Seconds: 1.5 },
      { Key: 'k', Seconds: '5' },
      { Key: 'k', Seconds: 5, MaxSeconds: 4 },
      { Key: 'k', Seconds: 5, MaxSeconds: 31_536_001 },
      { Key: 'k'.repeat(129), Seconds: 5 },
      { Key: 'a\nb', Seconds: 5 },
      { Key: '\ud83d', Seconds: 5 },
      { Key: 'k', Seconds: 5, Extra: 1 },
      'k',
    ].map((Debounce): [string, string, number] => [
      `Debounce ${JSON.stringify(Debounce)}`,
      body({ TransactionID: 'x', InitialData: 1, Debounce }),
      400,
    ]),
    [
      'both NotBefore and Debounce',
      body({
        TransactionID: 'x',
        InitialData: 1,
        NotBefore: 5,
        Debounce: { Key: 'k', Seconds: 5 },
      }),
      400,
    ],
    ['initial data with a NUL', body({ TransactionID: 'x', InitialData: { a: 'b\0' } }), 400],
    ...['9007199254740993', '1e400', '0.1234567890123456789'].map(
      (number): [string, string, number] => [
        `the number ${number}, which a double cannot hold`,
        `{"TransactionID":"x","InitialData":{"a":[${number}]}}`,
        400,
      ],
    ),
    [
      'truncated JSON of 100,000 levels',
      `{"TransactionID":"x","InitialData":${'['.repeat(100_000)}`,
      400,
    ],
    [
      'initial data of 100,000 levels',
      `{"TransactionID":"x","InitialData":${'['.repeat(100_000)}${']'.repeat(100_000)}}`,
      400,
    ],
    [
      'a body of more than 256 KB',
      body({ TransactionID: 'x', InitialData: 'x'.repeat(262_144) }),
      413,
    ],
  ])('a request that queues a transaction is rejected if it has %s', async (_, text, status) => {
    const response = await host.call(transactions, { method: 'POST', headers: json, body: text })
    expect(response.status).toBe(status)
    expect(response.headers.get('Content-Type')).toContain('application/problem+json')
    expect((await host.call(`${transactions}/x`)).status).toBe(404)
  })

  it('an invalid NotBefore is reported with its path, and in a bulk request also with its line', async () => {
    const delayed = (at: unknown) => ({
      TransactionID: `d${String(at)}`,
      InitialData: 1,
      NotBefore: at,
    })
    const post = (path: string, data: unknown) =>
      host.call(path, { method: 'POST', headers: json, body: JSON.stringify(data) })
    const rejected = await post(transactions, delayed('9999-01-01T00:00:00Z'))
    expect(await rejected.text()).toContain('NotBefore: must be at most a year ahead')
    const bulk = await post(`${transactions}/bulk`, [delayed(3_600), delayed(-1), delayed('soon')])
    const shape =
      /^NotBefore: must be a time of RFC 3339 with an offset, or a whole number of seconds/
    expect(await bulk.json()).toMatchObject({
      queued: 1,
      invalid: 2,
      results: [
        { outcome: 'queued' },
        { outcome: 'invalid', errors: [expect.stringMatching(shape)] },
        { outcome: 'invalid', errors: [expect.stringMatching(shape)] },
      ],
    })
  })

  it('the first request of a debounced transaction gets 202 and the waiting run, and its repetition gets 200', async () => {
    const post = async (path: string, data: unknown) => {
      const response = await host.call(path, {
        method: 'POST',
        headers: json,
        body: JSON.stringify(data),
      })
      return { status: response.status, body: (await response.json()) as object }
    }
    const debounced = (name: string, more = {}) => ({
      TransactionID: name,
      InitialData: name,
      Debounce: { Key: 'invoice 7', Seconds: 3_600, ...more },
    })
    expect((await post(transactions, debounced('deb-a'))).status).toBe(202)
    const second = await post(transactions, debounced('deb-b'))
    expect(second).toMatchObject({
      status: 202,
      body: { TransactionID: 'deb-a', InitialData: 'deb-b', Absorbed: 1, DebounceKey: 'invoice 7' },
    })
    expect(await post(transactions, debounced('deb-b'))).toEqual({ ...second, status: 200 })
    expect((await post(transactions, debounced('deb-a'))).status).toBe(200)
    const bulk = [debounced('deb-c'), debounced('deb-b'), debounced('deb-d', { MaxSeconds: 1 })]
    expect((await post(`${transactions}/bulk`, bulk)).body).toMatchObject({
      queued: 0,
      absorbed: 1,
      exists: 1,
      invalid: 1,
      results: [
        { outcome: 'absorbed' },
        { outcome: 'exists' },
        { outcome: 'invalid', errors: ['Debounce.MaxSeconds: must not be less than Seconds'] },
      ],
    })
    await post(`${transactions}/deb-a/cancel`, {})
  })

  it('a delayed run starts within a second after its start time', async () => {
    const response = await host.call(transactions, {
      method: 'POST',
      headers: json,
      body: body({ TransactionID: 'in two seconds', InitialData: '1', NotBefore: 2 }),
    })
    expect(response.status).toBe(202)
    const queued = (await response.json()) as { NotBefore: string; NextAttemptAt: string }
    expect(queued.NextAttemptAt).toBe(queued.NotBefore)
    type View = { Status: string; Items: { StartedAt: string }[] }
    const read = async () =>
      (await (await host.call(`${transactions}/in%20two%20seconds`)).json()) as View
    await eventually(async () => expect((await read()).Items.length).toBeGreaterThan(0))
    const [first] = (await read()).Items
    const lateMs = Date.parse(first?.StartedAt ?? '') - Date.parse(queued.NotBefore)
    expect(lateMs).toBeGreaterThanOrEqual(0)
  })

  it.each([
    ['Latin-1', Buffer.from(id('Müller'), 'latin1')],
    ['UTF-16', Buffer.from(id('x'), 'utf16le')],
    ['truncated UTF-8', Buffer.from(id('😀')).subarray(0, -4)],
  ])(
    'a request that queues transactions is rejected if its body is in %s, whatever charset the Content-Type names',
    async (_, bytes) => {
      for (const charset of ['', '; charset=utf-8', '; charset=iso-8859-1'])
        for (const path of [transactions, `${transactions}/bulk`]) {
          const response = await host.call(path, {
            method: 'POST',
            headers: { 'Content-Type': `application/json${charset}` },
            body: bytes,
          })
          expect(response.status).toBe(400)
        }
    },
  )

  it('a request that queues a transaction is rejected with 415 for every content type except application/json', async () => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded'])
      expect(
        (
          await host.call(transactions, {
            method: 'POST',
            headers: { 'Content-Type': type },
            body: id('x'),
          })
        ).status,
      ).toBe(415)
  })

  it('a request that queues a transaction for an unknown business process is rejected with 404', async () => {
    for (const process of ['Nobody', '__proto__', 'orderprocess', '%00', 'a%2Fb']) {
      const response = await host.call(`/processes/${process}/transactions`, {
        method: 'POST',
        headers: json,
        body: id('x'),
      })
      expect([response.status, ((await response.json()) as { code: string }).code]).toEqual([
        404,
        'process_not_found',
      ])
    }
  })
})

describe('queueing in bulk', () => {
  const send = (body: string, headers: Record<string, string> = ndjson) =>
    host.call(`${transactions}/bulk`, { method: 'POST', headers, body })

  it('a bulk request returns a result for each line, and queues the valid lines even if other lines are invalid', async () => {
    const response = await send(
      [
        '{"TransactionID":"b1","InitialData":1}',
        'not json',
        '',
        '{"TransactionID":"b1","InitialData":1}',
        '{"TransactionID":"b1","InitialData":2}',
        '{"TransactionID":"","InitialData":2}',
        '{"TransactionID":"b2","InitialData":{"deep":[1]}}\r',
        '{"TransactionID":"b5","InitialData":12345678901234567890}',
        `{"TransactionID":"b3","InitialData":"${'x'.repeat(262_144)}"}`,
        `{"TransactionID":"b4","InitialData":${'['.repeat(50_000)}${']'.repeat(50_000)}}`,
      ].join('\n'),
    )
    expect(response.status).toBe(200)
    const report = (await response.json()) as { results: { outcome: string }[] }
    expect(report).toMatchObject({ queued: 2, exists: 1, conflicts: 1, invalid: 5 })
    expect(report.results.map(({ outcome }) => outcome)).toEqual([
      'queued',
      'invalid',
      'exists',
      'conflict',
      'invalid',
      'queued',
      'invalid',
      'invalid',
      'invalid',
    ])
  })

  it('a bulk request rejects a large line, and one with a long number, without delaying other requests', async () => {
    // Parsing these numbers in quadratic time would take longer than any test may.
    const long = (zeros: number) => `{"TransactionID":"b7","InitialData":1.${'0'.repeat(zeros)}1}`
    const response = await send(
      [long(4_000_000), long(200_000), `  ${' '.repeat(1_000_000)}`].join('\n'),
    )
    expect(await response.json()).toMatchObject({
      invalid: 2,
      results: [
        { line: 1, TransactionID: null, errors: ['line: may have at most 262144 bytes'] },
        {
          line: 2,
          TransactionID: null,
          errors: ['line: a number in JSON may have at most 400 characters'],
        },
      ],
    })
    expect((await send(`[${long(4_000_000)}]`, json)).status).toBe(200)
    expect(
      (await host.call(transactions, { method: 'POST', headers: json, body: long(200_000) }))
        .status,
    ).toBe(400)
  })

  it('a transaction with more than 25,000 members and elements is rejected before it is parsed', async () => {
    const full = `{"TransactionID":"b8","InitialData":[${'1,'.repeat(25_000)}1]}`
    const sentence = 'JSON may have at most 25000 members and elements'
    for (const [body, headers] of [
      [full, ndjson],
      [`[${full}]`, json],
    ] as const)
      expect(await (await send(body, headers)).json()).toMatchObject({
        invalid: 1,
        results: [{ TransactionID: null, errors: [`line: ${sentence}`] }],
      })
    for (const path of [transactions, `${transactions}/b8/replays`]) {
      const response = await host.call(path, { method: 'POST', headers: json, body: full })
      expect(response.status).toBe(400)
      expect(await response.json()).toMatchObject({ detail: sentence })
    }
  })

  it('only a bulk request reads more than 262,144 bytes, even if its length is not announced', async () => {
    const body = new ReadableStream({
      pull: (controller) => controller.enqueue(Buffer.alloc(65_536, 0x20)),
    })
    const response = await host.call('/operations', {
      method: 'POST',
      headers: json,
      body,
      duplex: 'half',
    })
    expect(response.status).toBe(413)
    expect(await response.json()).toMatchObject({
      detail: 'the body may have at most 262144 bytes',
    })
  })

  it('a bulk request reports an array element as invalid if a single request would reject it', async () => {
    const ids = ['x'.repeat(129), 'a\0', 'a\n', '\ud83d', '.', '..', 66, null]
    const lines = [
      ...ids.map((TransactionID) => ({ TransactionID, InitialData: 1 })),
      { TransactionID: 'b6' },
      { TransactionID: 'b6', InitialData: 'a\0' },
      { TransactionID: 'b6', InitialData: 1, Realm: 5 },
      { TransactionID: 'b6', InitialData: 1, Extra: 1 },
      'b6',
      null,
    ]
    const response = await send(JSON.stringify(lines), json)
    expect(await response.json()).toMatchObject({ queued: 0, invalid: lines.length })
    expect((await host.call(`${transactions}/b6`)).status).toBe(404)
  })

  it.each([
    ['an empty NDJSON body', '', ndjson, 400],
    ['an object instead of an array', '{}', json, 400],
    ['truncated JSON', '[', json, 400],
    ['an empty array', '[]', json, 400],
    ['more than 10,000 lines', '1\n'.repeat(10_001), ndjson, 400],
    ['the content type text/csv', '[]', { 'Content-Type': 'text/csv' }, 415],
    ['a body of more than 12 MiB', 'x'.repeat(12_582_913), ndjson, 413],
  ])('a bulk request is rejected if it has %s', async (_, body, headers, status) => {
    expect((await send(body, headers)).status).toBe(status)
  })
})

describe('reading transactions', () => {
  it('the list of transactions returns all transactions page by page, newest first', async () => {
    for (const n of [1, 2, 3, 4, 5]) await host.queue(`page-${n}`)
    const seen: string[] = []
    let cursor: string | null = ''
    while (cursor !== null) {
      const query: string = cursor === '' ? '' : `&cursor=${cursor}`
      const response = await host.call(`${transactions}?limit=2${query}`)
      const page = (await response.json()) as {
        items: { TransactionID: string }[]
        next_cursor: string | null
      }
      seen.push(...page.items.map(({ TransactionID }) => TransactionID))
      cursor = page.next_cursor
    }
    expect(new Set(seen).size).toBe(seen.length)
    expect(seen).toEqual(expect.arrayContaining(['page-1', 'page-5', 'known']))
  })

  it.each([
    'limit=0',
    'limit=501',
    'limit=x',
    'status=Finished',
    'since=yesterday',
    'since=2026-11-20',
    'cursor=nonsense',
    `cursor=${Buffer.from('["2026-11-20 10:00:00\' or 1=1","x",0]').toString('base64url')}`,
    `cursor=${Buffer.from('["2026-99-99 10:00:00","x",0]').toString('base64url')}`,
  ])('the list of transactions rejects the query ?%s', async (query) => {
    const response = await host.call(`${transactions}?${query}`)
    expect(response.status).toBe(400)
  })

  it('the API returns a run with InDoubt: true until its step in doubt is completed', async () => {
    let isCut = true
    host.target.on('/order', (request) => {
      // Runs of other tests may still call this target.
      if (!isCut || !request.url?.includes('doubtful')) return true
      request.socket.destroy()
      return undefined
    })
    await host.queue('doubtful')
    const run = await host.reached('doubtful', 'Retrying')
    // While the next attempt of the run is in flight, the run is not in the list of `Retrying` runs. So the list is
    // requested again until that attempt has failed too.
    const page = await eventually(async () => {
      const response = await host.call(`${transactions}?status=Retrying`)
      const body = (await response.json()) as { items: unknown[] }
      expect(body.items).not.toEqual([])
      return body
    })
    isCut = false
    expect(run).toMatchObject({ InDoubt: true, ErrorClass: 'no_answer' })
    expect(page.items).toMatchObject([{ TransactionID: 'doubtful', InDoubt: true }])
    expect(await host.reached('doubtful', 'Completed')).toMatchObject({ InDoubt: false })
  })

  it('a transaction whose id has special characters can be read with the id percent-encoded in the path', async () => {
    for (const id of ['a/b', '../x', 'ä ö?#%', '😀']) {
      await host.queue(id)
      expect(await host.run(id)).toMatchObject({ TransactionID: id })
    }
  })

  it.each([
    ['unknown', '', 404],
    ['known', '?replay=7', 404],
    ['known', '?replay=-1', 400],
    ['known', '?replay=x', 400],
    ['x'.repeat(129), '', 400],
    ['a%00', '', 400],
    ['%FF', '', 404],
  ])('reading the transaction %s%s gets the status %i', async (id, query, status) => {
    expect((await host.call(`${transactions}/${id}${query}`)).status).toBe(status)
  })
})

describe('operator actions on a transaction', () => {
  it.each([
    ['replays', 'unknown', '', 404, 'transaction_not_found'],
    ['replays', 'known', '{"fromStep":"nowhere"}', 400, 'step_not_found'],
    ['replays', 'known', '{"fromStep":5}', 400, 'invalid_request'],
    ['replays', 'known', '{"other":1}', 400, 'invalid_request'],
    ['replays', 'known', 'nope', 400, 'invalid_request'],
    ['resume', 'known', '', 409, 'transaction_not_resumable'],
    ['resume', 'unknown', '', 404, 'transaction_not_found'],
    ['undo', 'unknown', '', 404, 'transaction_not_found'],
    ['cancel', 'known', '', 409, 'transaction_not_active'],
    ['cancel', 'unknown', '', 404, 'transaction_not_found'],
  ])(
    'POST …/%s for the transaction %s with the body %j is rejected with %i %s',
    async (action, id, body, status, code) => {
      const response = await host.call(`${transactions}/${id}/${action}`, {
        method: 'POST',
        ...(body !== '' && { body }),
      })
      expect([response.status, ((await response.json()) as { code: string }).code]).toEqual([
        status,
        code,
      ])
      expect((await host.run('known')).ReplayID).toBe(0)
    },
  )

  it('the list of processes shows the steps and limits of each process, whether it is paused, and whether it has consumers', async () => {
    expect(await (await host.call('/processes')).json()).toEqual({
      items: [
        {
          Process: 'OrderProcess',
          Steps: ['order', 'report', 'csv'],
          RequireInternet: true,
          On: [],
          Events: [],
          Decisions: [],
          Watches: [],
          BuiltIn: false,
          Paused: false,
          PausedAt: null,
          PausedBy: null,
          Reason: null,
          Retry: { MaxAttempts: 10, BaseMs: 1_000, CapMs: 300_000 },
          Dispatch: 'message',
          Concurrency: null,
          ConcurrencyByKey: false,
          StepTimeoutSeconds: 300,
          Version: null,
          DeadlineSeconds: null,
          Consuming: true,
        },
      ],
      not_loaded: [],
    })
    for (const action of ['pause', 'resume'])
      expect((await host.call(`/processes/Nobody/${action}`, { method: 'POST' })).status).toBe(404)
  })
})
