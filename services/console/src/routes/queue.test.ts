import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'
import {
  type FakeResponse,
  type FakeService,
  startFakeService,
} from '../../test-support/fake-service.ts'

const AT = '2026-11-24T03:00:00.000Z'
const RUN = {
  Process: 'OrderProcess',
  TransactionID: '66',
  ReplayID: 0,
  Status: 'Queued',
  StepName: 'order',
  InitialData: 1,
  Realm: null,
  Version: 0,
  Attempt: 0,
  NextAttemptAt: null,
  LastError: null,
  CreatedAt: AT,
  UpdatedAt: AT,
  CompletedAt: null,
  ErrorClass: null,
  WaitingFor: null,
  InDoubt: false,
  DefinitionVersion: null,
  DeadlineAt: null,
  NotBefore: null,
  DebounceKey: null,
  Absorbed: 0,
  Tags: null,
  ConcurrencyKey: null,
  InputChanged: false,
  ErasedAt: null,
  PurgedAt: null,
}
const QUEUED = { ReplayID: 0, Status: 'Queued', CompanyUnchecked: false }
const BODY = { Process: 'OrderProcess', TransactionID: '66', Data: '1' }

describe('queueing transactions from the console', () => {
  let coordinator: FakeService
  let tokenService: FakeService
  /** The response of token-service to a request for a company. */
  let company: FakeResponse
  let console: ConsoleFixture
  let cookie: string
  let answer: FakeResponse

  beforeAll(async () => {
    coordinator = await startFakeService(() => answer)
    tokenService = await startFakeService(() => company)
    console = await startConsoleFixture({
      COORDINATOR_URL: coordinator.url,
      TOKEN_SERVICE_URL: tokenService.url,
    })
    cookie = await console.signIn({ Link: console.signInLink().split('#')[1] })
  })
  beforeEach(() => {
    answer = { status: 202, body: RUN }
    company = { status: 200, body: {} }
  })
  afterAll(async () => {
    for (const one of [console, coordinator, tokenService]) await one?.[Symbol.asyncDispose]()
  })

  const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
    console.request(path, { method: 'POST', cookie, body: JSON.stringify(body), headers })
  const sent = () => coordinator.requests.filter(({ method }) => method === 'POST')

  it('the console sends the typed data unchanged to the coordinator, together with the name of the person', async () => {
    const response = await post('/api/queue', {
      ...BODY,
      TransactionID: 'a/b "c"',
      Realm: '42',
      Tags: { source: 'shop' },
      Reason: 'the first was wrong',
      Data: '{"amount": 9007199254740993}',
    })
    expect(response.status).toBe(202)
    expect(await response.json()).toEqual({ ...QUEUED, IsNew: true })
    const request = sent().at(-1)
    expect(request?.url.pathname).toBe('/processes/OrderProcess/transactions')
    expect(request?.headers['acting-for']).toBe('operator')
    expect(request?.body).toBe(
      String.raw`{"TransactionID":"a/b \"c\"","Realm":"42","Tags":{"source":"shop"},"Reason":"the first was wrong","InitialData":{"amount": 9007199254740993}}`,
    )
  })

  it('the console reports that a transaction is not new if it already exists with the same data', async () => {
    answer = { status: 200, body: { ...RUN, Status: 'Completed' } }
    const response = await post('/api/queue', BODY)
    expect([response.status, await response.json()]).toEqual([
      200,
      { ...QUEUED, Status: 'Completed', IsNew: false },
    ])
  })

  it('a transaction of a company that does not exist is rejected, and nothing is sent to the coordinator', async () => {
    company = { status: 404, body: { code: 'credential_not_found' } }
    const before = sent().length
    const response = await post('/api/queue', { ...BODY, Realm: '42' })
    expect([response.status, await response.json()]).toMatchObject([
      404,
      { code: 'credential_not_found', detail: expect.stringContaining('no company 42') },
    ])
    expect(sent().length).toBe(before)
    const paths = tokenService.requests.map(({ url }) => url.pathname)
    // The console also reads the state of the service now and then.
    expect(paths.findLast((path) => !path.startsWith('/health'))).toBe('/credentials/ACC-42')
    expect((await post('/api/queue', BODY)).status).toBe(202)
  })

  it.each([
    ['does not respond', { status: 503, body: {} }],
    ['is replaced by a proxy that knows no such path', { status: 404, body: {} }],
    ['rejects the key', { status: 403, body: { code: 'forbidden' } }],
  ])(
    'while token-service %s, a transaction is queued with a notice that its company was not checked',
    async (_, found) => {
      company = found
      const response = await post('/api/queue', { ...BODY, Realm: '42' })
      expect([response.status, await response.json()]).toMatchObject([
        202,
        { CompanyUnchecked: true },
      ])
    },
  )

  it('two requests to queue a transaction with the same Idempotency-Key cause only one request to the coordinator', async () => {
    const before = sent().length
    const headers = { 'Idempotency-Key': 'the-key-of-a-dialog' }
    const both = await Promise.all([
      post('/api/queue', BODY, headers),
      post('/api/queue', BODY, headers),
    ])
    expect(both.map(({ status }) => status)).toEqual([202, 202])
    expect(sent().length - before).toBe(1)
  })

  it.each([
    ['transaction_conflict', 409, undefined],
    ['process_not_found', 404, undefined],
    ['process_built_in', 409, undefined],
    ['payload_too_large', 413, undefined],
    ['input_invalid', 400, ['amount: must be a number', 'lines.0.sku: is missing']],
  ])(
    'the console forwards the problem %s of the coordinator to the browser',
    async (code, status, errors) => {
      answer = { status, body: { code, detail: 'a sentence', ...(errors && { errors }) } }
      const response = await post('/api/queue', BODY)
      expect(response.status).toBe(status)
      expect(await response.json()).toMatchObject({
        code,
        detail: 'a sentence',
        ...(errors && { errors }),
      })
    },
  )

  it.each([
    ['data that is not JSON', { Data: '{' }],
    ['data that would add a member', { Data: '1,"Realm":"other"' }],
    ['no id', { TransactionID: '' }],
    ['a company that cannot exist', { Realm: 'a b' }],
    ['an unknown member', { NotBefore: 5 }],
  ])(
    'a request to queue a transaction with %s is rejected with 400, and nothing is sent to the coordinator',
    async (_, change) => {
      const before = sent().length
      expect((await post('/api/queue', { ...BODY, ...change })).status).toBe(400)
      expect(sent().length).toBe(before)
    },
  )

  it('the console accepts a transaction with 256 KB of data, even if each character of the data is escaped in the request', async () => {
    const Data = JSON.stringify('\u0001'.repeat(43_000))
    expect(Data.length).toBeGreaterThan(250_000)
    expect((await post('/api/queue', { ...BODY, Data })).status).toBe(202)
    expect(sent().at(-1)?.body.endsWith(`"InitialData":${Data}}`)).toBe(true)
  })
})
