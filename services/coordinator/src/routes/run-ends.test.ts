import { until } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Fixture,
  openBackends,
  requestsWait,
  startEmbedded,
  startFixture,
} from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'
import type { Step } from '../step/step.ts'
import type { QueueResult } from '../run/transaction-source.ts'
import type { Run } from '../run/run.ts'
import { createTransitionFeed } from '../events/transaction-events.ts'
import { createRunEnds, WAITING } from './run-ends.ts'

/** For each transaction id, the function that lets its step complete. */
const waiting = new Map<string, () => void>()
const sale = defineProcess('Sale').step('only', async (step: Step) => {
  if (step.initialData === 'fail') return step.fail('no such customer')
  if (step.initialData === 'wait')
    await new Promise<void>((resolve) => waiting.set(step.transactionId, resolve))
  return step.complete({ sold: true })
})

/** Shorter than the waits, so that a test fails if the end of a run is noticed only when the time has elapsed. */
const timeout = 25_000

describe('a request that queues a transaction with `Prefer: wait`', { timeout }, () => {
  let host: Fixture
  beforeAll(async () => {
    host = await startEmbedded({ processes: [sale] })
  })
  afterAll(async () => {
    for (const end of waiting.values()) end()
    await host[Symbol.asyncDispose]()
  })

  const queue = (
    id: string,
    prefer: string | null = 'wait=30',
    body: object = { InitialData: 'now' },
    init: RequestInit = {},
  ) =>
    host.call('/processes/Sale/transactions', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...(prefer !== null && { Prefer: prefer }) },
      body: JSON.stringify({ TransactionID: id, ...body }),
      ...init,
    })
  const act = (id: string, action: string) =>
    host.call(`/processes/Sale/transactions/${id}/${action}`, { method: 'POST' })
  /** The stored run, without the members that the response to a queued transaction does not have. */
  const stored = async (id: string) => {
    const {
      Items: _items,
      Attempts: _attempts,
      AttemptCount: _count,
      LeaseOwner: _owner,
      LeaseUntil: _until,
      StartedAt: _startedAt,
      ...run
    } = (await host.run(id)) as unknown as Record<string, unknown>
    return run
  }
  const isWaiting = (id: string) => until(() => Promise.resolve(waiting.has(id)))

  it('gets 200 with the run as it is stored when the run has completed', async () => {
    const response = await queue('completes', 'respond-async, wait=30')
    expect(response.status).toBe(200)
    expect(response.headers.get('Preference-Applied')).toBe('wait=30')
    const run = await response.json()
    expect(run).toMatchObject({ TransactionID: 'completes', Status: 'Completed', StepName: 'only' })
    expect(run).toEqual(await stored('completes'))
  })

  it('gets 200 with the error when the run has failed', async () => {
    const response = await queue('fails', 'wait=30', { InitialData: 'fail' })
    expect(response.status).toBe(200)
    const run = await response.json()
    expect(run).toMatchObject({ Status: 'Failed', LastError: 'no such customer' })
    expect(run).toEqual(await stored('fails'))
  })

  it('gets 200 when an operator has cancelled the run', async () => {
    const responding = queue('cancelled', 'wait=30', { InitialData: 'wait' })
    await isWaiting('cancelled')
    await act('cancelled', 'cancel')
    const response = await responding
    expect([response.status, await response.json()]).toMatchObject([200, { Status: 'Cancelled' }])
  })

  it('gets 202 with the current state of a run that has not ended in time', async () => {
    const response = await queue('takes longer', 'wait=1', { InitialData: 'wait' })
    expect(response.status).toBe(202)
    expect(await response.json()).toMatchObject({ Status: 'Running', StepName: 'only', Attempt: 1 })
  })

  it('waits for the run of an earlier request with the same transaction', async () => {
    await queue('repeated', null, { InitialData: 'wait' })
    await isWaiting('repeated')
    const responses = [1, 2].map(() => queue('repeated', 'wait=30', { InitialData: 'wait' }))
    await requestsWait(host, 2)
    waiting.get('repeated')?.()
    for (const response of await Promise.all(responses))
      expect([response.status, await response.json()]).toMatchObject([200, { Status: 'Completed' }])
  })

  it('gets 202 if it repeats an earlier request and the run has not ended in time', async () => {
    await queue('repeated early', null, { InitialData: 'wait' })
    const response = await queue('repeated early', 'wait=1', { InitialData: 'wait' })
    expect([response.status, await response.json()]).toMatchObject([202, { Status: 'Running' }])
    const withoutWait = await queue('repeated early', 'wait=0', { InitialData: 'wait' })
    expect([withoutWait.status, withoutWait.headers.get('Preference-Applied')]).toEqual([202, null])
  })

  it('no longer waits when the client has closed its connection', async () => {
    const client = new AbortController()
    const init = { signal: client.signal }
    const response = queue('disconnected', 'wait=30', { InitialData: 'wait' }, init)
    await requestsWait(host, 1)
    client.abort()
    await expect(response).rejects.toThrow('aborted')
    await requestsWait(host, 0)
  })

  it('gets a response at once if the run of an earlier request has ended', async () => {
    await queue('ended')
    const response = await queue('ended')
    expect([response.status, await response.json()]).toMatchObject([200, { Status: 'Completed' }])
  })

  it('gets `NotBefore: null` if an operator has started the delayed run during the wait', async () => {
    const body = { InitialData: 'now', NotBefore: 3_600 }
    const response = queue('delayed', 'wait=30', body)
    await until(async () => (await host.run('delayed')).Status === 'Queued')
    expect((await act('delayed', 'retry')).status).toBe(202)
    const run = await (await response).json()
    expect(run).toMatchObject({ Status: 'Completed', NotBefore: null })
    expect(run).toEqual(await stored('delayed'))
  })

  it('waits at most 50 seconds, as `Preference-Applied` shows', async () => {
    const response = await queue('long wait', 'wait=86400')
    expect(response.headers.get('Preference-Applied')).toBe('wait=50')
  })

  it.each(['wait=soon', 'wait=0', 'wait', 'respond-async', 'return=minimal'])(
    'gets its response without a wait if the header is `Prefer: %s`',
    async (prefer) => {
      const id = `unknown ${prefer}`
      const response = await queue(id, prefer, { InitialData: 'wait' })
      expect(response.status).toBe(202)
      expect(response.headers.get('Preference-Applied')).toBe(null)
    },
  )

  it('is rejected like any other request if the transaction is invalid, unknown or in conflict', async () => {
    await queue('taken', null)
    const conflict = await queue('taken', 'wait=30', { InitialData: 'other' })
    const invalid = await queue('', 'wait=30')
    const unknown = await host.call('/processes/Unknown/transactions', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Prefer: 'wait=30' },
      body: '{"TransactionID": "x", "InitialData": 1}',
    })
    expect([conflict.status, invalid.status, unknown.status]).toEqual([409, 400, 404])
  })

  it('gets 202 when the service shuts down', async () => {
    await using own = await openBackends('embedded')
    const ending = await startFixture(own, { processes: [sale] })
    const response = ending.call('/processes/Sale/transactions', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Prefer: 'wait=30' },
      body: '{"TransactionID": "at the shutdown", "InitialData": "wait"}',
    })
    await requestsWait(ending, 1)
    const ended = ending[Symbol.asyncDispose]()
    const { status, headers } = await response
    expect([status, headers.get('Preference-Applied')]).toEqual([202, 'wait=30'])
    waiting.get('at the shutdown')?.()
    await ended
  })
})

describe('waiting for the end of a run', { timeout }, () => {
  const run = {
    Process: 'Sale',
    TransactionID: '1',
    ReplayID: 0,
    Status: 'Running',
    StepName: 'only',
    NotBefore: null,
    DebounceKey: null,
  } as Run
  const claim = {} as NonNullable<QueueResult['claim']>
  const queued: QueueResult = { outcome: 'queued', run, claim }
  const HOUR = 3_600_000
  const event = {
    Process: 'Sale',
    TransactionID: '1',
    ReplayID: 0,
    Status: 'Completed',
    StepName: 'only',
    Attempt: 1,
    ErrorClass: null,
    ProviderError: null,
    WaitingFor: null,
    InDoubt: false,
    NextAttemptAt: null,
    Version: 2,
    At: '2026-11-20T10:00:00.000Z',
  } as const
  const open = (get: () => Promise<Run>) => {
    const feed = createTransitionFeed()
    const source = {
      get: async () => ({
        run: await get(),
        lease: { LeaseOwner: null, LeaseUntil: null, StartedAt: null },
        items: [],
        attempts: [],
        attemptCount: 0,
        families: [],
      }),
    }
    return { feed, ends: createRunEnds({ feed, source }) }
  }
  const unavailable = () => Promise.reject(new Error('the store is unavailable'))
  const ignore = (): void => {}
  const service = { shareOf: null }

  it('ends with the event of this run, and ignores those of other runs', async () => {
    const { feed, ends } = open(unavailable)
    const reached = ends.wait(queued, service, HOUR, ignore)
    feed.add({ ...event, Process: 'Other' })
    feed.add({ ...event, TransactionID: '2' })
    feed.add({ ...event, ReplayID: 1 })
    feed.add({ ...event, Status: 'Retrying' })
    expect(ends.size).toBe(1)
    feed.add(event)
    expect(await reached).toMatchObject({ Status: 'Completed', Version: 2, CompletedAt: event.At })
    expect(ends.size).toBe(0)
  })

  it.each(['exists', 'queued'] as const)(
    'ends if a run that another replica may have started (%s) has ended before it was watched',
    async (outcome) => {
      const { ends } = open(() => Promise.resolve({ ...run, Status: 'Completed' }))
      expect(await ends.wait({ outcome, run }, service, HOUR, ignore)).toMatchObject({
        Status: 'Completed',
      })
      expect(ends.size).toBe(0)
    },
  )

  it('ends with the run as it was queued if the store is unavailable', async () => {
    const { feed, ends } = open(unavailable)
    const reached = ends.wait(queued, service, HOUR, ignore)
    feed.add({ ...event, Status: 'Failed' })
    expect(await reached).toBe(run)
  })

  it('ends when the client disconnects', async () => {
    const { ends } = open(unavailable)
    let disconnect = ignore
    const reached = ends.wait(queued, service, HOUR, (stopWaiting) => (disconnect = stopWaiting))
    disconnect()
    expect(await reached).toBe(run)
    expect(ends.size).toBe(0)
  })

  it(`is not possible while ${WAITING.total} requests wait already, and at shutdown`, async () => {
    const { feed, ends } = open(unavailable)
    const all = Array.from({ length: WAITING.total }, () =>
      ends.wait(queued, service, HOUR, ignore),
    )
    expect(await ends.wait(queued, service, HOUR, ignore)).toBe(null)
    expect(ends.size).toBe(WAITING.total)
    feed.add(event)
    const statuses = (await Promise.all(all)).map((ended) => ended?.Status)
    expect(new Set(statuses)).toEqual(new Set(['Completed']))
    ends[Symbol.dispose]()
    expect(await ends.wait(queued, service, HOUR, ignore)).toBe(null)
  })
})
