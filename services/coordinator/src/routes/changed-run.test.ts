import type { Scope } from '@integration-host/shared/access/scope'
import { until } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  bearer,
  type Fixture,
  keyOf,
  requestsWait,
  startEmbedded,
  type TestKey,
  writeKeys,
} from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'
import type { Step } from '../step/step.ts'
import { DELAYED_RUNS_PER_KEY } from '../run/start-time.ts'
import { WAITING } from './run-ends.ts'

/** Data of another caller, which no response to a key without `transactions:read` may contain. */
const SECRET = 'SECRETDATA'
/** The members that a response to such a key may have. */
const ALLOWED = new Set([
  'Process',
  'TransactionID',
  'ReplayID',
  'Status',
  'Version',
  'NextAttemptAt',
  'NotBefore',
  'DeadlineAt',
  'CreatedAt',
  'UpdatedAt',
  'CompletedAt',
  'ErasedAt',
  'PurgedAt',
])

let isBroken = true
const sale = defineProcess('Sale').step('only', async (step: Step) =>
  isBroken ? step.fail(`no customer ${SECRET}`) : step.complete(null),
)

const entryOf = (id: string, scopes: readonly Scope[]): TestKey => ({ id, scopes, realms: ['1'] })
const entries = [
  entryOf('queues', ['transactions:queue']),
  entryOf('operates', ['transactions:operate']),
  entryOf('reads', ['transactions:queue', 'transactions:read', 'transactions:operate']),
  entryOf('other', ['transactions:queue', 'transactions:read']),
]

describe('what the response to a change shows', () => {
  let host: Fixture
  beforeAll(async () => {
    host = await startEmbedded({ processes: [sale], keys: entries })
  })
  afterAll(() => host[Symbol.asyncDispose]())

  const post = (key: string, path: string, body: object = {}, headers: object = {}) =>
    host.call(path, {
      method: 'POST',
      headers: {
        'Content-Type': 'application/json',
        ...bearer(key),
        ...headers,
      },
      body: JSON.stringify(body),
    })
  const transactions = '/processes/Sale/transactions'
  const queue = (key: string, id: string, body: object = {}, headers: object = {}) =>
    post(key, transactions, { TransactionID: id, InitialData: 'own', Realm: '1', ...body }, headers)
  /** Checks that a response has no stored data, and returns its body. */
  async function withoutData(response: Response, brought: readonly string[] = []) {
    const text = await response.text()
    expect(text).not.toContain(SECRET)
    const body = JSON.parse(text) as Record<string, unknown>
    expect(
      Object.keys(body).filter((name) => !ALLOWED.has(name) && !brought.includes(name)),
    ).toEqual([])
    return body
  }

  it('a key that may only queue gets its own data back, and not those of a debounced run that another caller has queued', async () => {
    const debounced = {
      InitialData: { salary: SECRET },
      Tags: { owner: SECRET },
      Debounce: { Key: 'k', Seconds: 60 },
    }
    expect((await queue('reads', 'deb', debounced)).status).toBe(202)
    expect((await queue('reads', 'deb absorbed', debounced)).status).toBe(202)
    const own = { InitialData: 'guess', Debounce: debounced.Debounce }
    const repeated = await queue('queues', 'deb', own)
    expect(repeated.status).toBe(200)
    expect(await withoutData(repeated, ['InitialData', 'Realm'])).toMatchObject({
      TransactionID: 'deb',
      Status: 'Queued',
      InitialData: 'guess',
      Realm: '1',
    })
    const absorbed = await queue('queues', 'deb mine', own)
    expect(absorbed.status).toBe(202)
    expect(await withoutData(absorbed, ['InitialData', 'Realm'])).toMatchObject({
      TransactionID: 'deb',
      InitialData: 'guess',
    })
  })

  it('a key that may only queue does not see how the steps of a repeated transaction have ended', async () => {
    await queue('queues', 'ended')
    await host.reached('ended', 'Failed')
    const response = await queue('queues', 'ended', {}, { Prefer: 'wait=30' })
    expect([response.status, response.headers.get('Preference-Applied')]).toEqual([200, null])
    const body = await withoutData(response, ['InitialData', 'Realm'])
    expect(body).toMatchObject({ TransactionID: 'ended', Status: 'Failed' })
  })

  it('`Prefer: wait` is ignored for a key without transactions:read, and applied for a key with it', async () => {
    const ignored = await queue('queues', 'not waited', {}, { Prefer: 'wait=30' })
    expect([ignored.status, ignored.headers.get('Preference-Applied')]).toEqual([202, null])
    const waited = await queue('reads', 'waited', {}, { Prefer: 'wait=30' })
    expect([waited.status, waited.headers.get('Preference-Applied')]).toEqual([200, 'wait=30'])
    expect(await waited.json()).toMatchObject({ Status: 'Failed', LastError: expect.any(String) })
  })

  it('a key that may only operate sees no data of the run that it replays, resumes, retries, settles or cancels', async () => {
    await queue('reads', 'operated', { InitialData: SECRET, Tags: { owner: SECRET } })
    await host.reached('operated', 'Failed')
    const act = (action: string, body: object = {}) =>
      post('operates', `${transactions}/operated/${action}`, body)
    const replayed = await withoutData(await act('replays'))
    expect(replayed).toMatchObject({ TransactionID: 'operated', ReplayID: 1 })
    await host.reached('operated', 'Failed', 1)
    const withData = await act('replays', { InitialData: 'own' })
    expect(await withoutData(withData, ['InitialData'])).toMatchObject({ InitialData: 'own' })
    await host.reached('operated', 'Failed', 2)
    expect(await withoutData(await act('resume'))).toMatchObject({ ReplayID: 2 })
    await queue('reads', 'delayed', { InitialData: SECRET, NotBefore: 3_600 })
    await queue('reads', 'cancelled', { InitialData: SECRET, NotBefore: 3_600 })
    await withoutData(await post('operates', `${transactions}/delayed/retry`))
    const cancelled = await post('operates', `${transactions}/cancelled/cancel`)
    expect(await withoutData(cancelled)).toMatchObject({ Status: 'Cancelled' })
  })

  it('a key that may only operate sees nothing of the request of an operation that another key has started', async () => {
    const started = await post('reads', '/operations', {
      Action: 'cancel',
      Process: 'Sale',
      Ids: [SECRET, 'x'],
      PerSecond: 1,
      Reason: SECRET,
    })
    const { ID } = (await started.json()) as { ID: string }
    const stopped = await post('operates', `/operations/${ID}/stop`)
    expect(stopped.status).toBe(200)
    const text = await stopped.text()
    expect(text).not.toContain(SECRET)
    expect(JSON.parse(text)).toMatchObject({ ID, Status: 'Stopped' })
  })

  it('one key takes only its share of the places of `Prefer: wait`, so the wait of another key is applied', async () => {
    isBroken = false
    const client = new AbortController()
    await queue('reads', 'tomorrow', { NotBefore: 86_400 })
    const wait = (key: string, seconds: number) =>
      fetch(`${host.url}${transactions}`, {
        method: 'POST',
        headers: {
          'Content-Type': 'application/json',
          ...bearer(key),
          Prefer: `wait=${seconds}`,
        },
        body: JSON.stringify({ TransactionID: 'tomorrow', InitialData: 'own', Realm: '1' }),
        signal: client.signal,
      })
    const held = Array.from({ length: WAITING.perKey }, () => wait('reads', 50).catch(() => null))
    await requestsWait(host, WAITING.perKey)
    const further = await wait('reads', 50)
    expect([further.status, further.headers.get('Preference-Applied')]).toEqual([202, null])
    const other = await wait('other', 1)
    expect([other.status, other.headers.get('Preference-Applied')]).toEqual([202, 'wait=1'])
    client.abort()
    await Promise.all(held)
    await requestsWait(host, 0)
  })

  it('a key with 10,000 delayed runs queues no further one, and a run that starts at once or another key is not affected', async () => {
    const lines = Array.from({ length: DELAYED_RUNS_PER_KEY }, (_, n) =>
      JSON.stringify({ TransactionID: `late ${n}`, InitialData: 1, Realm: '1', NotBefore: 86_400 }),
    )
    const bulk = async (body: string) => {
      const response = await fetch(`${host.url}${transactions}/bulk`, {
        method: 'POST',
        headers: {
          'Content-Type': 'application/x-ndjson',
          Authorization: `Bearer ${keyOf('queues')}`,
        },
        body,
      })
      return (await response.json()) as Record<string, unknown>
    }
    await bulk(lines.join('\n'))
    const late = { NotBefore: 86_400 }
    const rejected = await queue('queues', 'too late', late)
    expect([rejected.status, rejected.headers.get('Retry-After')]).toEqual([429, '60'])
    expect(await rejected.json()).toMatchObject({ code: 'quota_exceeded' })
    const mixed = [
      { TransactionID: 'bulk late', InitialData: 1, Realm: '1', NotBefore: 86_400 },
      { TransactionID: 'bulk now', InitialData: 1, Realm: '1' },
    ]
    expect(await bulk(mixed.map((line) => JSON.stringify(line)).join('\n'))).toMatchObject({
      queued: 1,
      results: [{ outcome: 'invalid', code: 'quota_exceeded' }, { outcome: 'queued' }],
    })
    expect((await queue('queues', 'late 0', late)).status).not.toBe(429)
    expect((await queue('other', 'late of other', late)).status).toBe(202)
  })

  it.each([
    ['was revoked', entries.filter(({ id }) => id !== 'reads'), 401, 'unauthorized'],
    ['has lost its scope', [entryOf('reads', ['transactions:queue'])], 403, 'forbidden'],
    [
      'has lost its company',
      [{ ...entryOf('reads', ['transactions:queue', 'transactions:read']), realms: ['2'] }],
      403,
      'forbidden',
    ],
  ])(
    'a request that waits ends as soon as the coordinator reads that its key %s, although its run has not ended',
    async (change, changed, status, code) => {
      const waitFor = (key: string, id: string) =>
        queue(key, id, { NotBefore: 3_600 }, { Prefer: 'wait=50' })
      const waiting = waitFor('reads', change)
      const kept = waitFor('other', `other ${change}`)
      await requestsWait(host, 2)
      const others = entries.filter(({ id }) => id === 'other')
      await writeKeys(host.backends, [...changed.filter(({ id }) => id !== 'other'), ...others])
      const response = await waiting
      expect(response.status).toBe(status)
      expect(await response.json()).toMatchObject({ code })
      await requestsWait(host, 1) // the request of the other key
      const path = encodeURIComponent(`other ${change}`)
      await host.call(`${transactions}/${path}/cancel`, { method: 'POST' })
      expect((await kept).status).toBe(200)
      await writeKeys(host.backends, entries)
      const headers = { Authorization: `Bearer ${keyOf('reads')}` }
      await until(async () => (await host.call(`${transactions}/${path}`, { headers })).ok)
    },
    30_000, // shorter than the wait
  )
})
