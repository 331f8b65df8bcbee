import { Secret } from '@integration-host/shared/secrets/secret'
import { afterEach, describe, expect, it } from 'vitest'
import {
  type FakeResponse,
  type FakeService,
  problem,
  type Routes,
  SERVICE_KEY,
  startFakeService,
} from '../../packages/cli/test-support/fake-service.ts'
import { checkBooks, type Promised } from './books.ts'
import { createClient } from './client.ts'

const TIME = '2026-11-20T10:00:00.000Z'
const attempt = (StepName: string, Outcome = 'completed') => ({
  StepName,
  Attempt: 1,
  Outcome,
  ResponseStatus: null,
  Error: null,
  StartedAt: TIME,
  FinishedAt: TIME,
})
const run = (members: object = {}): FakeResponse => ({
  body: {
    Process: 'OrderProcess',
    TransactionID: '1',
    ReplayID: 0,
    Status: 'Completed',
    StepName: 'csv',
    InitialData: '1',
    Realm: null,
    Version: 4,
    Attempt: 1,
    NextAttemptAt: null,
    LastError: null,
    CreatedAt: TIME,
    UpdatedAt: TIME,
    CompletedAt: TIME,
    Items: [],
    Attempts: [attempt('order'), attempt('report'), attempt('csv')],
    ...members,
  },
})

describe('the check of the records after a round', () => {
  let service: FakeService
  afterEach(() => service[Symbol.asyncDispose]())

  const ORDER = 'GET /processes/OrderProcess/transactions/1'
  const REFRESH = 'POST /credentials/ACC-a/refresh'
  async function check(
    routes: Routes,
    promised: Promised = { orders: ['1'], companies: ['a'] },
    deadlineMs = 600,
  ) {
    service = await startFakeService({
      [ORDER]: () => run(),
      [REFRESH]: () => ({ body: {} }),
      'GET /integrity': () => ({ body: { violations: { items: 0 } } }),
      ...routes,
    })
    const { url } = service
    const { signal } = new AbortController()
    const client = createClient({
      at: {
        demoApi: url,
        tokenService: url,
        accountingGateway: url,
        coordinator: url,
        sandboxProvider: url,
        serviceKey: new Secret(SERVICE_KEY),
      },
      signal,
      deadlineMs: 5_000,
    })
    return checkBooks(promised, { client, now: () => performance.now(), signal, deadlineMs })
  }
  const clean = { lost: [], doubled: [], stuck: [], lockedOut: [], violations: 0 }

  it('the check reports no violation if every order is completed and every company can be refreshed', async () => {
    expect(await check({})).toEqual(clean)
  })

  it('the check reports an order as lost if the coordinator has no record of the order', async () => {
    const books = await check({ [ORDER]: () => problem(404, 'transaction_not_found') })
    expect(books).toEqual({ ...clean, lost: ['1'] })
  })

  it('the check reports that an order ran twice if the coordinator has a second run of the order', async () => {
    expect(await check({ [ORDER]: () => run({ ReplayID: 1 }) })).toEqual({
      ...clean,
      doubled: ['1'],
    })
  })

  it('the check reports that an order ran twice if a step was completed twice', async () => {
    const Attempts = [attempt('order'), attempt('order')]
    expect(await check({ [ORDER]: () => run({ Attempts }) })).toEqual({ ...clean, doubled: ['1'] })
  })

  it('the check does not count an order as run twice if a step completed after a failed attempt', async () => {
    const Attempts = [attempt('order', 'http_503'), attempt('order')]
    expect(await check({ [ORDER]: () => run({ Attempts }) })).toEqual(clean)
  })

  it('the check waits for an order that completes before the deadline', async () => {
    let reads = 0
    const books = await check(
      { [ORDER]: () => run({ Status: (reads += 1) === 1 ? 'Running' : 'Completed' }) },
      undefined,
      30_000,
    )
    expect(books).toEqual(clean)
  })

  it('the check counts an order as stuck if the order is not completed at the deadline', async () => {
    expect(await check({ [ORDER]: () => run({ Status: 'Queued' }) })).toEqual({
      ...clean,
      stuck: ['1'],
    })
  })

  it.each([
    ['is faulted', 424, 'credential_faulted'],
    ['does not exist', 404, 'credential_not_found'],
    ['cannot be refreshed before the deadline', 503, 'store_unavailable'],
  ])('the check counts a company as locked out if its credential %s', async (_, status, code) => {
    const books = await check({ [REFRESH]: () => problem(status, code) })
    expect(books).toEqual({ ...clean, lockedOut: ['a'] })
  })

  it('the check reports how many database rows of the coordinator contradict each other', async () => {
    const violations = { items: 2, headers: 1 }
    expect(await check({ 'GET /integrity': () => ({ body: { violations } }) })).toMatchObject({
      violations: 3,
    })
  })

  it('the check reports null as the number of contradictory rows if the coordinator does not respond', async () => {
    const books = await check({ 'GET /integrity': () => problem(503, 'store_unavailable') })
    expect(books.violations).toBeNull()
  })
})
