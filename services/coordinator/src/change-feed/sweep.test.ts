import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ProviderEvent, EntryEvent } from '@integration-host/shared/contracts/provider-event'
import { IntegrationError } from '@integration-host/shared/errors'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { claimedRun } from '../../test-support/claimed-run.ts'
import { answered, stepDeps } from '../../test-support/step-outcome.ts'
import { createMemoryTransactionSource } from '../adapters/memory/transaction-source.ts'
import type { CallOutcome, CallRequest } from '../step/http-call.ts'
import type { Claim, TransactionSource } from '../run/transaction-source.ts'
import { createEntryKeeper, type EntryKeeper } from '../entry/entry-keeper.ts'
import { createEntryProof } from '../entry/prove-entries.ts'
import { type ChangeCursors, createChangeCursors } from './change-cursors.ts'
import { createSubscriptions, type Subscriptions } from '../change/subscriptions.ts'
import { createChangeFeed } from './sweep.ts'

const MINUTE = 60_000
const NOW = Date.parse('2026-11-23T12:00:00Z')
/** So long ago that the next subscription of the same process replaces one of this time. */
const LONG_AGO = NOW - 31 * 24 * 60 * MINUTE
const at = (ms: number): string => new Date(NOW + ms).toISOString()
const REALM = '4620816365291'

interface Found {
  readonly Id: string
  readonly createdAt?: number
  readonly changedAt: number
}
const invoice = ({ Id, createdAt = -1e9, changedAt }: Found) => ({
  Id,
  TotalAmt: 66,
  MetaData: { CreateTime: at(createdAt), LastUpdatedTime: at(changedAt) },
})
const changeData = (invoices: readonly Found[], time = at(1_000)) =>
  answered(
    200,
    JSON.stringify({
      CDCResponse: [{ QueryResponse: [{ Invoice: invoices.map(invoice) }] }],
      time,
    }),
  )

let now: number
let dataDir: string
let source: TransactionSource
let cursors: ChangeCursors
let subscriptions: Subscriptions
let published: ProviderEvent[]
let publishFails: boolean
let ownKeys: readonly string[]
let keeper: EntryKeeper
let reported: EntryEvent[]
beforeEach(async () => {
  now = LONG_AGO
  dataDir = await mkdtemp(join(tmpdir(), 'change-feed-'))
  source = await createMemoryTransactionSource(dataDir, { now: () => now })
  cursors = createChangeCursors(source)
  subscriptions = createSubscriptions(source)
  await subscriptions.keepSubscriptions('Sale', ['intuit.Invoice.create', 'intuit.Invoice.update'])
  now = NOW
  published = []
  publishFails = false
  reported = []
  keeper = createEntryKeeper({ source, payloadKeys: null })
  ownKeys = []
})
afterEach(async () => {
  await source[Symbol.asyncDispose]()
  await rm(dataDir, { recursive: true })
})

/** Runs a sweep of a company whose provider sends these responses. */
async function sweep(responses: readonly CallOutcome[], realm: string | null = REALM) {
  const calls: CallRequest[] = []
  const changeFeed = createChangeFeed({
    cursors,
    subscriptions,
    ownKeys: () => ownKeys,
    proof: createEntryProof({
      source,
      keeper,
      publish: async (event) => void reported.push(event),
    }),
    now: () => now,
    async publish(event) {
      if (publishFails) throw new IntegrationError('broker_unavailable', 'the broker is away')
      published.push(event)
    },
  })
  const run = claimedRun({ Process: 'ChangeFeed', StepName: 'read', Realm: realm })
  const outcome = await changeFeed.runBuiltIn?.(
    { run, lease: {} as Claim['lease'], items: [] },
    stepDeps({
      now: () => now,
      async call(request) {
        calls.push(request)
        return responses[calls.length - 1] ?? { kind: 'aborted', isSent: false }
      },
    }),
  )
  return { outcome, calls }
}
const cursor = () => cursors.changeCursor(REALM)

describe('a sweep of the change feed', () => {
  it("a sweep publishes the changes since the cursor, and then moves the cursor to the provider's time of the response", async () => {
    await cursors.beginCursor(REALM)
    now += 10 * MINUTE
    const { outcome, calls } = await sweep([
      changeData(
        [
          { Id: '1', changedAt: 5 * MINUTE },
          { Id: '2', createdAt: 4 * MINUTE, changedAt: 6 * MINUTE },
        ],
        at(10 * MINUTE + 300),
      ),
    ])
    expect(published.map(({ Id, Source }) => [Id, Source])).toEqual([
      [`Invoice-1@2026-11-23T12:05:00Z/${REALM}`, 'change-feed'],
      [`Invoice-2@2026-11-23T12:04:00Z/${REALM}`, 'change-feed'],
      [`Invoice-2@2026-11-23T12:06:00Z/${REALM}`, 'change-feed'],
    ])
    const position = at(10 * MINUTE + 300)
    expect(await cursor()).toMatchObject({ position, events: 3, incomplete: null })
    expect(outcome).toMatchObject({ kind: 'completed', response: null, data: { events: 3 } })
    expect(JSON.stringify(published)).not.toContain('66')
    const [{ url, headers } = { url: new URL('a:'), headers: {} }] = calls
    expect(url.pathname).toBe(`/v3/company/${REALM}/cdc`)
    expect(Object.fromEntries(url.searchParams)).toEqual({
      entities: 'Invoice',
      changedSince: '2026-11-23T12:00:00Z',
    })
    expect(headers).not.toHaveProperty('idempotency-key')
  })

  it('a sweep of the change feed begins five minutes before the end of the last sweep', async () => {
    await sweep([changeData([], at(0))])
    now += 60 * MINUTE
    const { calls } = await sweep([changeData([])])
    expect(calls[0]?.url.searchParams.get('changedSince')).toBe('2026-11-23T11:55:00Z')
  })

  it('a sweep publishes only changes that at least one process subscribes to', async () => {
    await subscriptions.keepSubscriptions('Sale', ['intuit.Invoice.update'])
    await sweep([
      changeData([
        { Id: '1', createdAt: MINUTE, changedAt: MINUTE },
        { Id: '2', changedAt: MINUTE },
      ]),
    ])
    expect(published.map(({ EntityId }) => EntityId)).toEqual(['2'])
  })

  it('a sweep also reads the changes to which processes of its own coordinator subscribe, even if these subscriptions are not stored yet', async () => {
    await subscriptions.keepSubscriptions('Sale', [])
    ownKeys = ['intuit.Invoice.update']
    await sweep([changeData([{ Id: '1', changedAt: MINUTE }])])
    expect(published).toHaveLength(1)
  })

  it('while no process subscribes to changes, a sweep makes no call and moves the cursor', async () => {
    await cursors.beginCursor(REALM)
    await subscriptions.keepSubscriptions('Sale', ['intuit.Invoice.void'])
    now += MINUTE
    const { outcome, calls } = await sweep([])
    expect([outcome?.kind, calls.length]).toEqual(['completed', 0])
    expect(await cursor()).toMatchObject({ position: at(MINUTE), events: 0 })
  })

  it('a query of a sweep includes inactive objects, and puts only times in quotation marks', async () => {
    await subscriptions.keepSubscriptions('Sale', ['intuit.Customer.update'])
    await cursors.beginCursor(REALM)
    now += 40 * 24 * 60 * MINUTE
    const none = answered(200, JSON.stringify({ QueryResponse: {} }))
    const { calls } = await sweep([changeData([]), none])
    expect(calls[1]?.url.searchParams.get('query')).toBe(
      "select * from Customer where Active in (true, false) and MetaData.LastUpdatedTime >= '2026-11-23T12:00:00Z' " +
        "and MetaData.LastUpdatedTime < '2026-12-04T12:00:00Z' orderby MetaData.LastUpdatedTime startposition 1 maxresults 1000",
    )
    expect((await cursor())?.incomplete).toContain('deletions of Customer before 2026-12-04')
  })

  it.each<[string, CallOutcome, object]>([
    ['a 429', answered(429, '', '30'), { kind: 'held' }],
    ['a faulted credential', answered(424), { kind: 'waiting', credential: `ACC-${REALM}` }],
    ['an unavailable provider', answered(503), { kind: 'retry', errorClass: 'http_503' }],
    [
      'no response',
      { kind: 'failed', reason: 'ECONNRESET', isSent: true },
      { kind: 'retry', errorClass: 'no_answer' },
    ],
    ['a shutdown', { kind: 'aborted', isSent: false }, { kind: 'released' }],
    [
      'a rejection',
      answered(400, '{"Fault":{}}'),
      { kind: 'failed', errorClass: 'change_feed_rejected' },
    ],
    ['another document', answered(200, '{}'), { kind: 'retry', errorClass: 'response_invalid' }],
    [
      'a page without a Content-Type',
      answered(200, '<html></html>'),
      { kind: 'retry', errorClass: 'response_not_json' },
    ],
    [
      'the end of the access to the company',
      answered(403),
      { kind: 'failed', errorClass: 'http_403' },
    ],
    ['the removal of the credential', answered(404), { kind: 'failed', errorClass: 'http_404' }],
  ])('a sweep does not move the cursor after %s', async (_, response, expected) => {
    const { position } = await cursors.beginCursor(REALM)
    now += MINUTE
    expect((await sweep([response])).outcome).toMatchObject(expected)
    expect(await cursor()).toMatchObject({ position, sweptAt: null })
  })

  it('a sweep does not move the cursor if the company is disconnected between two requests', async () => {
    await subscriptions.keepSubscriptions('Time', ['intuit.TimeActivity.update'])
    const { position } = await cursors.beginCursor(REALM)
    now += MINUTE
    const { outcome } = await sweep([changeData([]), answered(404)])
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'http_404' })
    expect(await cursor()).toMatchObject({ position, sweptAt: null })
  })

  it('a sweep does not move the cursor before the broker has confirmed every event', async () => {
    const { position } = await cursors.beginCursor(REALM)
    publishFails = true
    const changed = changeData([{ Id: '1', changedAt: MINUTE }])
    expect((await sweep([changed])).outcome).toMatchObject({
      kind: 'retry',
      errorClass: 'broker_unavailable',
    })
    expect(await cursor()).toMatchObject({ position, sweptAt: null })
    publishFails = false
    await sweep([changed])
    expect(published).toHaveLength(1)
  })

  it('a run of the process ChangeFeed without a company fails', async () => {
    expect((await sweep([], null)).outcome).toMatchObject({ errorClass: 'realm_missing' })
  })
})
