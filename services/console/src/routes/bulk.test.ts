import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'
import {
  type FakeRequest,
  type FakeService,
  startFakeService,
} from '../../test-support/fake-service.ts'
import { OPERATION } from '../../test-support/operation.ts'

const FAILURES = [
  { TransactionID: '66', ReplayID: 0, Code: 'store_unavailable' },
  { TransactionID: 'a/b', ReplayID: null, Code: 'store_unavailable' },
]
const MATCHES = [{ TransactionID: 'match', ReplayID: 0, Status: 'Failed' }]
const BODY = {
  Action: 'resume',
  Process: 'OrderProcess',
  Filter: { status: ['Failed'] },
  Reason: 'the target is back',
}

describe('the actions of the console on many runs', () => {
  let coordinator: FakeService
  let tokenService: FakeService
  let console: ConsoleFixture
  let cookie: string
  let answers: ((request: FakeRequest) => { status?: number; body: unknown } | undefined)[]

  beforeAll(async () => {
    coordinator = await startFakeService((request) => {
      const { method, url } = request
      if (!url.pathname.startsWith('/operations')) return undefined
      const answer = answers.shift()?.(request)
      if (answer !== undefined) return answer
      if (method === 'GET' && url.pathname === '/operations')
        return { body: { items: [OPERATION, { ...OPERATION, DryRun: true }], next_cursor: null } }
      return { body: { ...OPERATION, Failures: FAILURES, Matches: MATCHES } }
    })
    tokenService = await startFakeService(({ url }) =>
      url.pathname === '/credentials'
        ? { body: { items: [{ Name: 'ACC-42', Label: 'Rosewood' }], next_cursor: null } }
        : undefined,
    )
    console = await startConsoleFixture({
      COORDINATOR_URL: coordinator.url,
      TOKEN_SERVICE_URL: tokenService.url,
    })
    cookie = await console.signIn({ Link: console.signInLink().split('#')[1] })
  })
  beforeEach(() => {
    answers = []
  })
  afterAll(async () => {
    for (const one of [console, coordinator, tokenService]) await one?.[Symbol.asyncDispose]()
  })

  const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
    console.request(path, { method: 'POST', cookie, body: JSON.stringify(body), headers })
  /** The bodies that the coordinator has received at this path. */
  const sent = (path: string) =>
    coordinator.requests
      .filter(({ method, url }) => method === 'POST' && url.pathname === path)
      .map(({ body }) => JSON.parse(body) as Record<string, unknown>)

  it('a dry run with a filter and the action that follows it include only runs queued before the dry run', async () => {
    const { Reason: _, ...count } = BODY
    const before = new Date().toISOString()
    expect((await post('/api/bulk', { ...count, DryRun: true })).status).toBe(202)
    const [counted = {}] = sent('/operations').slice(-1)
    const { until } = counted['Filter'] as { until: string }
    expect(counted).toMatchObject({ DryRun: true, Reason: 'counted before a bulk action' })
    expect(until >= before && until <= new Date().toISOString()).toBe(true)
    await post('/api/bulk', { ...BODY, Filter: { status: ['Failed'], until } })
    expect(sent('/operations').at(-1)).toEqual({
      ...BODY,
      Filter: { status: ['Failed'], until: until.replace('.000Z', 'Z') },
      PerSecond: 20,
      DryRun: false,
    })
  })

  it('an action on 1,000 selected runs is accepted, and the coordinator gets the name of the person', async () => {
    const Ids = Array.from({ length: 1_000 }, (_, index) => `${'😀'.repeat(60)}${index}`)
    const { Filter: _, ...rest } = BODY
    expect((await post('/api/bulk', { ...rest, Ids })).status).toBe(202)
    expect(sent('/operations').at(-1)?.['Ids']).toEqual(Ids)
    // After an action, the console itself reads the coordinator again.
    const request = coordinator.requests.findLast(({ method }) => method === 'POST')
    expect(request?.headers['acting-for']).toBe('operator')
    expect((await post('/api/bulk', { ...rest, Ids: [...Ids, 'one'] })).status).toBe(400)
  })

  it.each([
    ['no reason', { Reason: undefined }],
    ['an unknown action', { Action: 'settle' }],
    ['neither ids nor a filter', { Filter: undefined }],
    ['more than 100 runs a second', { PerSecond: 101 }],
    ['an unknown filter', { Filter: { statuz: ['Failed'] } }],
  ])(
    'the start of a bulk action with %s is rejected with 400, and nothing is sent to the coordinator',
    async (_, change) => {
      const before = coordinator.requests.length
      expect((await post('/api/bulk', { ...BODY, ...change })).status).toBe(400)
      const later = coordinator.requests.slice(before)
      expect(later.filter(({ method }) => method === 'POST')).toEqual([])
    },
  )

  it('the page of a bulk action shows its counts and failed runs, and the list of actions contains no dry runs', async () => {
    const response = await console.request('/api/bulk/op-1', { cookie })
    expect(await response.json()).toEqual({ ...OPERATION, Failures: FAILURES })
    const list = await console.request('/api/bulk', { cookie })
    expect(await list.json()).toEqual({ Operations: [OPERATION] })
  })

  it('the downloaded file of a bulk action has a line for the action and one for each failed run', async () => {
    const response = await console.request('/api/bulk/op-1/file', { cookie })
    expect(response.headers.get('Content-Disposition')).toBe(
      'attachment; filename="bulk-op-1.ndjson"',
    )
    const lines = (await response.text()).trimEnd().split('\n')
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([OPERATION, ...FAILURES])
  })

  it('the objects that an action takes back are read page by page, with the names of their companies', async () => {
    const object = {
      TransactionID: 'op-1/Invoice-129',
      Realm: '42',
      Entity: 'Invoice',
      EntityID: '129',
      Outcome: 'left',
      Reason: 'changed_outside',
      Fields: ['DocNumber'],
    }
    answers = [() => ({ body: { items: [object], next_cursor: 'c/1' } })]
    const response = await console.request('/api/bulk/op-1/objects?cursor=c%2F0', { cookie })
    expect(await response.json()).toEqual({
      items: [object],
      next_cursor: 'c/1',
      Companies: { 42: 'Rosewood' },
    })
    const { pathname, searchParams } = coordinator.requests.at(-1)?.url ?? new URL('x:')
    expect([pathname, searchParams.get('cursor')]).toEqual(['/operations/op-1/objects', 'c/0'])
    expect((await console.request('/api/bulk/op-1/objects?page=2', { cookie })).status).toBe(400)
  })

  it.each(['stop', 'continue'])(
    'POST /api/bulk/{id}/%s requires a reason, and sends the reason to the coordinator',
    async (change) => {
      expect((await post(`/api/bulk/op-1/${change}`, {})).status).toBe(400)
      expect((await post(`/api/bulk/op-1/${change}`, { Reason: 'wrong filter' })).status).toBe(200)
      expect(sent(`/operations/op-1/${change}`)).toEqual([{ Reason: 'wrong filter' }])
    },
  )

  it('the console sends an id with slashes to the coordinator as one segment of the path', async () => {
    await console.request(`/api/bulk/${encodeURIComponent('../credentials')}`, { cookie })
    const paths = coordinator.requests.map(({ url }) => url.pathname)
    expect(paths).toContain('/operations/..%2Fcredentials')
    expect(paths).not.toContain('/credentials')
  })

  it('bulk requests with the same Idempotency-Key cause one action, even while the first request is in progress', async () => {
    const before = sent('/operations').length
    const headers = { 'Idempotency-Key': 'a-key-of-one-dialog' }
    const responses = await Promise.all([1, 2, 3].map(() => post('/api/bulk', BODY, headers)))
    responses.push(await post('/api/bulk', BODY, headers))
    expect(responses.map(({ status }) => status)).toEqual([202, 202, 202, 202])
    for (const response of responses) expect(await response.json()).toMatchObject({ ID: 'op-1' })
    expect(sent('/operations')).toHaveLength(before + 1)
    await post('/api/bulk', BODY, { 'Idempotency-Key': 'a-key-of-another-dialog' })
    expect(sent('/operations')).toHaveLength(before + 2)
  })

  it('if a bulk request was rejected, a repetition with the same Idempotency-Key is sent to the coordinator again', async () => {
    const headers = { 'Idempotency-Key': 'a-key-of-a-retry' }
    const body = { code: 'too_many_operations', detail: 'The key has 20 operations' }
    answers = [() => ({ status: 409, body })]
    expect((await post('/api/bulk', BODY, headers)).status).toBe(409)
    expect((await post('/api/bulk', BODY, headers)).status).toBe(202)
  })

  it('the stored response of a bulk request is sent only to the session that made the request, until that session ends', async () => {
    const headers = { 'Idempotency-Key': 'a-key-of-two-sessions' }
    const other = await console.signIn({ Link: console.signInLink().split('#')[1] })
    const before = sent('/operations').length
    const options = { method: 'POST', body: JSON.stringify(BODY), headers }
    await console.request('/api/bulk', { ...options, cookie: other })
    await console.request('/api/bulk', { ...options, cookie })
    expect(sent('/operations')).toHaveLength(before + 2)
    await console.request('/api/session', { method: 'DELETE', cookie: other })
    const ended = await console.request('/api/bulk', { ...options, cookie: other })
    expect(ended.status).toBe(401)
  })

  it('the console rejects an Idempotency-Key of less than 8 characters with 400', async () => {
    expect((await post('/api/bulk', BODY, { 'Idempotency-Key': 'x' })).status).toBe(400)
  })
})
