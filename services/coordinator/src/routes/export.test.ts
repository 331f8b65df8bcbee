import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { digestOf } from '@integration-host/shared/access/access-keys'
import { Secret } from '@integration-host/shared/secrets/secret'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import {
  type Backends,
  type Fixture,
  openBackends,
  serviceKey,
  startFixture,
} from '../../test-support/fixture.ts'
import type { TransactionSource } from '../transaction/transaction-source.ts'
import { createSealedCursors } from './sealed-cursors.ts'

const read = { scopes: ['transactions:read'] }
const entries = [
  { id: 'one-company', ...read, realms: ['42'], processes: ['*'] },
  { id: 'one-process', ...read, realms: ['*'], processes: ['OrderProcess'] },
] as const
const keyOf = (id: (typeof entries)[number]['id']): string => `${id}-`.padEnd(40, 'x')
const other = { name: 'AnEarlierProcess', steps: ['only'] as [string] }

let backends: Backends
let source: TransactionSource
let host: Fixture
/** Called for each page of an export. */
let onPage = (_process: string): void => {}
beforeAll(async () => {
  backends = await openBackends('embedded')
  const file = join(backends.dataDir, 'keys.json')
  const list = entries.map((entry) => ({ ...entry, sha256: digestOf(keyOf(entry.id)) }))
  await writeFile(file, JSON.stringify(list))
  source = await backends.openSource({ exportLagMs: 0 })
  host = await startFixture(backends, {
    source,
    wrapSource: (real) => ({
      ...real,
      // One run on each page, so that a small export has several.
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
    env: { SERVICE_KEYS_FILE: file },
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
  await source.cancel(other.name, 'old', null, anAct)
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
  it('streams the finished runs of every stored process with items and attempts, and a last line', async () => {
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

  it('`process`, `since` and `until` select runs by the time of their end', async () => {
    const { runs } = await exported('?process=OrderProcess')
    const [one, two] = runs.map(({ CompletedAt }) => CompletedAt)
    expect(ids(await exported(`?process=OrderProcess&since=${two}`))).toEqual(['2', '3'])
    expect(ids(await exported(`?process=OrderProcess&until=${two}`))).toEqual(['1'])
    expect(ids(await exported(`?process=OrderProcess&since=${one}&until=${one}`))).toEqual([])
  })

  it('a key sees only the runs of its realms and processes', async () => {
    expect(ids(await exported('', keyOf('one-company')))).toEqual(['old', '1', '3'])
    expect(ids(await exported('', keyOf('one-process')))).toEqual(['1', '2', '3'])
    const foreign = await exported('?process=AnEarlierProcess', keyOf('one-process'))
    expect(foreign.response.status).toBe(403)
  })

  it('a cursor continues the export behind it', async () => {
    const [, , { Process, TransactionID, ReplayID, CompletedAt }] = (await exported()).runs
    const until = new Date().toISOString()
    const after = { completedAt: CompletedAt, transactionId: TransactionID, replayId: ReplayID }
    const cursor = createSealedCursors([new Secret(serviceKey)]).seal('export', {
      until,
      process: Process,
      after,
    })
    const rest = await exported(`?cursor=${cursor}`)
    expect(ids(rest)).toEqual(['3'])
    expect(rest.lines.at(-1)).toMatchObject({ Until: until })
    expect((await exported(`?process=Other&cursor=${cursor}`)).response.status).toBe(400)
    const own = Buffer.from(
      JSON.stringify([until, Process, [CompletedAt, TransactionID, ReplayID]]),
    ).toString('base64url')
    expect((await exported(`?cursor=${own}`)).response.status).toBe(400)
  })

  it('an export whose store fails later ends without its last line', async () => {
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
  ])('the invalid query %s gets 400 that names the parameter', async (query) => {
    const { response, lines } = await exported(`?${query}`)
    expect(response.status).toBe(400)
    expect(JSON.stringify(lines)).toContain(query.split('=')[0])
  })
})
