import { IntegrationError } from '@integration-host/shared/errors'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { Secret } from '@integration-host/shared/secrets/secret'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import {
  type Backends,
  type Fixture,
  keyOf,
  openBackends,
  serviceKey,
  startFixture,
  type TestKey,
} from '../../test-support/fixture.ts'
import { EXPORT_LAG_MS } from '../run/run-detail.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { EXPORTS } from './export.ts'
import { createSealedCursors } from './sealed-cursors.ts'

const read = { scopes: ['transactions:read'] }
const entries: readonly TestKey[] = [
  { id: 'one-company', ...read, realms: ['42'] },
  { id: 'one-process', ...read, processes: ['OrderProcess'] },
]
const other = { name: 'AnEarlierProcess', steps: ['only'] as [string] }

let backends: Backends
let source: TransactionSource
let host: Fixture
/** Called for each page of an export. */
let onPage = (_process: string): void => {}
/** Called at the beginning of each export. The export continues when the promise has resolved. */
let onBegin = async (): Promise<void> => {}
beforeAll(async () => {
  backends = await openBackends('embedded')
  source = await backends.openSource()
  host = await startFixture(backends, {
    source,
    wrapSource: (real) => ({
      ...real,
      records(kind) {
        const records = real.records(kind)
        if (kind.prefix !== '') return records
        return {
          ...records,
          async now() {
            await onBegin()
            return (await records.now()) + EXPORT_LAG_MS
          },
        }
      },
      // Each page has one run, so that a small export has several pages.
      async exportPage(range, after, limit) {
        onPage(range.process)
        const page = await real.exportPage(range, after, limit)
        const [first] = page.runs
        if (first === undefined || page.runs.length === 1) return page
        const { CompletedAt, TransactionID, ReplayID } = first.run
        const next = {
          completedAt: CompletedAt ?? '',
          transactionId: TransactionID,
          replayId: ReplayID,
        }
        return { runs: [first], next }
      },
    }),
    keys: entries,
  })
  for (const [id, realm] of [
    ['1', '42'],
    ['2', '43'],
    ['3', undefined],
  ] as const) {
    await host.queue(id, `data of ${id}`, realm)
    await host.reached(id, 'Completed')
  }
  await source.queue(other, [{ TransactionID: 'old', InitialData: 1 }])
  await source.operate('cancel', other, 'old', null, anAct)
})
afterAll(async () => {
  await host[Symbol.asyncDispose]()
  await source[Symbol.asyncDispose]()
  await backends[Symbol.asyncDispose]()
})

async function exported(query = '', key: string = serviceKey) {
  const response = await host.call(`/transactions/export${query}`, {
    headers: { Authorization: `Bearer ${key}` },
  })
  const text = await response.text()
  const lines = text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line))
  return { response, lines, runs: lines.filter((line) => 'TransactionID' in line) }
}
const ids = ({ runs }: Awaited<ReturnType<typeof exported>>) =>
  runs.map(({ TransactionID }) => TransactionID)

describe('GET /transactions/export', () => {
  it('an export has the finished runs of every stored process with their items and attempts, followed by a last line', async () => {
    const { response, lines, runs } = await exported()
    expect(response.status).toBe(200)
    expect(response.headers.get('Content-Type')).toBe('application/x-ndjson')
    expect(runs.map(({ Process, TransactionID }) => `${Process} ${TransactionID}`)).toEqual([
      'AnEarlierProcess old',
      'OrderProcess 1',
      'OrderProcess 2',
      'OrderProcess 3',
    ])
    expect(runs[1]).toMatchObject({
      InitialData: 'data of 1',
      Items: [{ StepName: 'order' }, { StepName: 'report' }, { StepName: 'csv' }],
      Attempts: [{ Outcome: 'completed' }, { Outcome: 'completed' }, { Outcome: 'completed' }],
    })
    expect(lines.at(-1)).toEqual({
      next_cursor: null,
      Runs: 4,
      Until: expect.stringMatching(/^\d{4}-.*Z$/),
    })
  })

  it('an export has only the runs of `process` that ended between `since` and `until`', async () => {
    const { runs } = await exported('?process=OrderProcess')
    const [one, two] = runs.map(({ CompletedAt }) => CompletedAt)
    expect(ids(await exported(`?process=OrderProcess&since=${two}`))).toEqual(['2', '3'])
    expect(ids(await exported(`?process=OrderProcess&until=${two}`))).toEqual(['1'])
    expect(ids(await exported(`?process=OrderProcess&since=${one}&until=${one}`))).toEqual([])
  })

  it('an export has only the runs of the realms and processes of its key', async () => {
    expect(ids(await exported('', keyOf('one-company')))).toEqual(['old', '1', '3'])
    expect(ids(await exported('', keyOf('one-process')))).toEqual(['1', '2', '3'])
    const foreign = await exported('?process=AnEarlierProcess', keyOf('one-process'))
    expect(foreign.response.status).toBe(403)
  })

  it('an export does not read runs of a process that its key may not use', async () => {
    const processes = new Set<string>()
    onPage = (process) => processes.add(process)
    try {
      await exported('', keyOf('one-process'))
      expect([...processes]).toEqual(['OrderProcess'])
    } finally {
      onPage = () => {}
    }
  })

  it('at most 4 exports run at the same time on a replica, even if six begin in the same instant', async () => {
    const gate = Promise.withResolvers<void>()
    onBegin = () => gate.promise
    const head = () =>
      host.call('/transactions/export', {
        method: 'HEAD',
        headers: { Authorization: `Bearer ${serviceKey}` },
      })
    try {
      let rejected = 0
      const exports = Array.from({ length: 6 }, async () => {
        const { response, lines } = await exported()
        if (response.status === 503) rejected += 1
        return [response.status, lines[0]?.code]
      })
      await eventually(() => expect(rejected).toBe(2))
      gate.resolve()
      const results = await Promise.all(exports)
      expect(results.filter(([status]) => status === 200)).toHaveLength(4)
      expect(results).toContainEqual([503, 'too_many_exports'])
      // The response to a HEAD request has no body, so a HEAD request must not count as a running export.
      for (let n = 0; n < 5; n += 1) expect((await head()).status).toBe(200)
      onBegin = () => Promise.reject(new IntegrationError('store_unavailable', 'away'))
      for (let n = 0; n < 5; n += 1)
        expect((await exported()).lines[0]).toMatchObject({ code: 'store_unavailable' })
      onBegin = async () => {}
      expect((await exported()).response.status).toBe(200)
    } finally {
      gate.resolve()
      onBegin = async () => {}
    }
  })

  it('a key whose share of exports is running gets 503, while another key still gets a place', async () => {
    const gate = Promise.withResolvers<void>()
    let begun = 0
    onBegin = () => {
      begun += 1
      return gate.promise
    }
    try {
      const held = Array.from({ length: EXPORTS.perKey }, () => exported('', keyOf('one-company')))
      await until(() => begun === EXPORTS.perKey)
      const another = exported('', keyOf('one-process'))
      await until(() => begun === EXPORTS.perKey + 1)
      const { response, lines } = await exported('', keyOf('one-company'))
      expect([response.status, response.headers.get('Retry-After')]).toEqual([503, '30'])
      expect(lines[0]).toMatchObject({ code: 'too_many_exports' })
      gate.resolve()
      const results = await Promise.all([...held, another])
      expect(results.map((result) => result.response.status)).toEqual([200, 200, 200])
    } finally {
      gate.resolve()
      onBegin = async () => {}
    }
  })

  it('an export with a cursor continues after the position in the cursor', async () => {
    const [, , { Process, TransactionID, ReplayID, CompletedAt }] = (await exported()).runs
    const end = new Date().toISOString()
    const after = { completedAt: CompletedAt, transactionId: TransactionID, replayId: ReplayID }
    const cursor = createSealedCursors([new Secret(serviceKey)]).seal('export', {
      until: end,
      process: Process,
      after,
    })
    const rest = await exported(`?cursor=${cursor}`)
    expect(ids(rest)).toEqual(['3'])
    expect(rest.lines.at(-1)).toMatchObject({ Until: end })
    expect((await exported(`?process=Other&cursor=${cursor}`)).response.status).toBe(400)
    const own = Buffer.from(
      JSON.stringify([end, Process, [CompletedAt, TransactionID, ReplayID]]),
    ).toString('base64url')
    expect((await exported(`?cursor=${own}`)).response.status).toBe(400)
  })

  it('an export ends without its last line if the store fails after the first page', async () => {
    onPage = (process) => {
      if (process === 'OrderProcess') throw new Error('the store is gone')
    }
    try {
      await expect(exported()).rejects.toThrow(/fetch failed|terminated/)
    } finally {
      onPage = () => {}
    }
  })

  it.each([
    'since=yesterday',
    'since=0001-01-01T00:00:00%2B01:00',
    'until=2026-01-01',
    'cursor=abc',
    'limit=5',
  ])(
    'an export with the invalid query %s is rejected with 400, and the error has the name of the parameter',
    async (query) => {
      const { response, lines } = await exported(`?${query}`)
      expect(response.status).toBe(400)
      expect(JSON.stringify(lines)).toContain(query.split('=')[0])
    },
  )
})
