import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  type FakeCoordinator,
  type DemoApiFixture,
  SERVICE_KEY,
  startFakeCoordinator,
  startDemoApiFixture,
} from '../../test-support/demo-api-fixture.ts'

let coordinator: FakeCoordinator
let demo: DemoApiFixture

beforeAll(async () => {
  coordinator = await startFakeCoordinator()
  demo = await startDemoApiFixture(coordinator.url)
})
beforeEach(() => {
  coordinator.calls.length = 0
  coordinator.response = { status: 202 }
})
afterAll(async () => {
  await demo[Symbol.asyncDispose]()
  await coordinator[Symbol.asyncDispose]()
})

describe.each(['GET', 'POST'])('%s requests to the path /queue of the demo API', (method) => {
  it('the demo API queues the number from the query as transaction id and initial data, and presents the service key', async () => {
    const answer = await demo.send('/queue?number=66', { method })
    expect(answer).toMatchObject({ status: 200, text: 'Enqueued 66' })
    expect(answer.headers['content-type']).toMatch(/^text\/plain/)
    expect(coordinator.calls).toEqual([
      {
        method: 'POST',
        path: '/processes/OrderProcess/transactions',
        authorization: `Bearer ${SERVICE_KEY}`,
        body: { TransactionID: '66', InitialData: '66' },
      },
    ])
  })

  it('the demo API returns the same response if the number was queued before', async () => {
    coordinator.response = { status: 200 }
    expect(await demo.send('/queue?number=66', { method })).toMatchObject({
      status: 200,
      text: 'Enqueued 66',
    })
  })
})

describe.each(['GET', 'POST'])('%s requests to the path /replay of the demo API', (method) => {
  it('the demo API requests a replay of the transaction whose id is the number from the query', async () => {
    const answer = await demo.send('/replay?number=66', { method })
    expect(answer).toMatchObject({ status: 200, text: 'Replay started for 66' })
    expect(coordinator.calls).toEqual([
      {
        method: 'POST',
        path: '/processes/OrderProcess/transactions/66/replays',
        authorization: `Bearer ${SERVICE_KEY}`,
        body: {},
      },
    ])
  })
})

it('the demo API reads the number from a form in the body of a POST request', async () => {
  const answer = await demo.send('/queue', {
    method: 'POST',
    headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
    body: 'number=6%206',
  })
  expect(answer.text).toBe('Enqueued 6 6')
})

it('the demo API rejects a POST with one number in the query and another in the form', async () => {
  const answer = await demo.send('/queue?number=1', {
    method: 'POST',
    headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
    body: 'number=2',
  })
  expect(answer).toMatchObject({ status: 400, text: 'number: must be given once' })
})

describe('the demo API after a response of the coordinator', () => {
  it.each<[string, FakeCoordinator['response'], number, string]>([
    [
      '/queue',
      { status: 409, code: 'transaction_conflict' },
      409,
      `Couldn't enqueue 66: it is queued with other data`,
    ],
    [
      '/replay',
      { status: 404, code: 'transaction_not_found' },
      400,
      `Couldn't replay 66: there is no such transaction`,
    ],
    [
      '/replay',
      { status: 409, code: 'transaction_active' },
      400,
      `Couldn't replay 66: it is still running`,
    ],
    [
      '/queue',
      { status: 503, code: 'store_unavailable' },
      503,
      `Couldn't enqueue 66: the coordinator is not available`,
    ],
    [
      '/replay',
      { status: 503, code: 'broker_unavailable' },
      503,
      `Couldn't replay 66: the coordinator is not available`,
    ],
    [
      '/queue',
      { status: 500, code: 'internal_error' },
      503,
      `Couldn't enqueue 66: the coordinator is not available`,
    ],
    ['/queue', 'none', 503, `Couldn't enqueue 66: the coordinator is not available`],
    ['/replay', 'none', 503, `Couldn't replay 66: the coordinator is not available`],
    [
      '/queue',
      { status: 401, code: 'unauthorized' },
      502,
      `Couldn't enqueue 66: the coordinator rejected the request`,
    ],
    [
      '/replay',
      { status: 404, code: 'process_not_found' },
      502,
      `Couldn't replay 66: the coordinator rejected the request`,
    ],
    ['/queue', { status: 302 }, 502, `Couldn't enqueue 66: the coordinator rejected the request`],
  ])(
    'the demo API responds to %s in plain text if the coordinator responds %j, with the status %i',
    async (path, told, status, text) => {
      coordinator.response = told
      const answer = await demo.send(`${path}?number=66`)
      expect(answer).toMatchObject({ status, text })
      expect(answer.headers['content-type']).toMatch(/^text\/plain/)
      expect(answer.headers['retry-after']).toBe(status === 503 ? '5' : undefined)
      expect(coordinator.calls).toHaveLength(1)
    },
  )

  it("the demo API passes the coordinator's Retry-After on to the client", async () => {
    coordinator.response = { status: 503, code: 'store_unavailable', retryAfter: '42' }
    expect((await demo.send('/queue?number=66')).headers['retry-after']).toBe('42')
  })

  it('the demo API reports an unreachable coordinator in /health/ready, and still serves /order', async () => {
    const fake = await startFakeCoordinator()
    await using ownDemo = await startDemoApiFixture(fake.url)
    await ownDemo.send('/queue?number=1')
    expect(await ownDemo.send('/health/ready')).toMatchObject({ status: 200 })

    await fake[Symbol.asyncDispose]()

    expect(await ownDemo.send('/queue?number=1')).toMatchObject({ status: 503 })
    const { status, text } = await ownDemo.send('/health/ready')
    expect(status).toBe(503)
    expect(JSON.parse(text)).toMatchObject({ dependencies: { coordinator: { status: 'down' } } })
    expect(await ownDemo.send('/order?order=1')).toMatchObject({ status: 201 })
  })
})

describe.each(['/queue', '/replay'])(
  'the number in a request to the path %s of the demo API',
  (path) => {
    const BAD: readonly (readonly [string, string, string])[] = [
      ['no parameter', '', 'number: is missing'],
      ['an empty number', '?number=', 'number: must not be empty'],
      ['a dot as number, which would change the path', '?number=.', 'number: must not be . or ..'],
      ['two dots as number', '?number=..', 'number: must not be . or ..'],
      ['a number without =', '?number', 'number: must not be empty'],
      ['two numbers', '?number=1&number=2', 'number: must be given once'],
      ['a number in array syntax', '?number[]=1', 'unknown parameter'],
      ['a number in object syntax', '?number[a]=1', 'unknown parameter'],
      ['an unknown parameter', '?number=1&debug=true', 'unknown parameter'],
      ['a replayId', '?number=1&replayId=5', 'unknown parameter'],
      ['a member of __proto__', '?__proto__[x]=1&number=A1', 'unknown parameter'],
      ['the parameter __proto__', '?__proto__=1&number=A1', 'unknown parameter'],
      [
        'a number of 129 characters',
        `?number=${'x'.repeat(129)}`,
        'number: must have at most 128 characters',
      ],
      [
        'a number of 10,000 characters',
        `?number=${'x'.repeat(10_000)}`,
        'number: must have at most 128 characters',
      ],
      ['a number with NUL', '?number=a%00.csv', 'number: must not contain control characters'],
      [
        'a number with a line break',
        '?number=a%0d%0aSet-Cookie:x',
        'number: must not contain control characters',
      ],
      ['a number with a tab', '?number=a%09b', 'number: must not contain control characters'],
      ['a number with DEL', '?number=a%7f', 'number: must not contain control characters'],
      [
        'a number with a C1 control character',
        '?number=a%C2%85',
        'number: must not contain control characters',
      ],
      ['a number that is not UTF-8', '?number=%ff%fe', 'the parameters are not well-formed UTF-8'],
      ['a number in overlong UTF-8', '?number=%C0%AF', 'the parameters are not well-formed UTF-8'],
      [
        'a number with an encoded surrogate',
        '?number=%ED%A0%80',
        'the parameters are not well-formed UTF-8',
      ],
      [
        'a percent sign without hex digits',
        '?number=%',
        'the parameters are not well-formed UTF-8',
      ],
      [
        'a percent sign with one hex digit',
        '?number=%2',
        'the parameters are not well-formed UTF-8',
      ],
      [
        'a percent sign with other letters',
        '?number=%zz',
        'the parameters are not well-formed UTF-8',
      ],
      ['a number after 500 parameters', `?${'a=1&'.repeat(500)}number=1`, 'unknown parameter'],
    ]
    it.each(BAD)(
      'the demo API rejects %s with 400 in plain text and does not call the coordinator',
      async (_, query, text) => {
        const answer = await demo.send(path + query)
        expect(answer).toMatchObject({ status: 400, text })
        expect(answer.headers['content-type']).toMatch(/^text\/plain/)
        expect(answer.headers).not.toHaveProperty('set-cookie')
        expect(coordinator.calls).toEqual([])
      },
    )

    const FINE: readonly (readonly [string, string, string])[] = [
      ['128 characters', 'x'.repeat(128), 'x'.repeat(128)],
      ['an encoded space and a plus sign', 'a%20b+c', 'a b c'],
      ['a parent path', '..%2f..%5cetc%2Fpasswd', '../..\\etc/passwd'],
      ['a doubly encoded path', '%252e%252e%252fx', '%2e%2e%2fx'],
      ['a reserved device name of Windows', 'CON', 'CON'],
      ['a spreadsheet formula', '%3D1%2B1', '=1+1'],
      ['an unencoded equals sign', '=1', '=1'],
      ['SQL', `1';DROP%20TABLE%20"Order_Header";--`, `1';DROP TABLE "Order_Header";--`],
      ['HTML markup', '%3Cscript%3Ealert(1)%3C/script%3E', '<script>alert(1)</script>'],
      ['template expressions', '$%7B7*7%7D%7B%7B7*7%7D%7D%25s', '${7*7}{{7*7}}%s'],
      ['the name of a property of every object', 'constructor', 'constructor'],
      ['digits of other scripts', '%EF%BC%91%D9%A2', '１٢'],
      ['a composed letter', '%C3%A9', 'é'],
      ['a decomposed letter', 'e%CC%81', 'e\u0301'],
      ['a right-to-left override', '%E2%80%AEgpj', '\u202Egpj'],
      ['a character outside the basic plane', '%F0%9F%98%80', '😀'],
      ['a number that a double cannot hold', '9007199254740993', '9007199254740993'],
    ]
    it.each(FINE)(
      'the demo API decodes the percent-encoding of %s only once',
      async (_, encoded, number) => {
        const answer = await demo.send(`${path}?number=${encoded}`)
        expect(answer).toMatchObject({
          status: 200,
          text: path === '/queue' ? `Enqueued ${number}` : `Replay started for ${number}`,
        })
        // The response contains the number from the request, so a browser must not interpret the response as HTML.
        expect(answer.headers).toMatchObject({
          'content-type': expect.stringMatching(/^text\/plain/),
          'x-content-type-options': 'nosniff',
        })
        expect(coordinator.calls).toMatchObject([
          path === '/queue'
            ? { body: { TransactionID: number, InitialData: number } }
            : {
                path: `/processes/OrderProcess/transactions/${encodeURIComponent(number)}/replays`,
              },
        ])
      },
    )
  },
)
