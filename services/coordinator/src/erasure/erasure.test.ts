import { createLogger } from '@integration-host/shared/observability/logger'
import { describe, expect, it } from 'vitest'
import { notActive } from '../run/errors.ts'
import { createErasure, type ErasureDeps } from './erasure.ts'
import type { RemoveFilesOfRuns } from '../worker/run-files.ts'
import { ENTRIES } from '../entry/book-entry.ts'
import type { RecordKind, Records } from '../records/records.ts'

const scope = { Realm: 'r1', Process: null }
const act = { by: { keyId: 'console', person: null }, reason: null }
const later = new AbortController().signal

/** A fake store of runs with the numbers 0, 1, 2, … and a page size of 2. `ended` and `erased` list numbers of runs. */
function storeOf(count: number, ended: Set<number>) {
  const erased = new Set<number>()
  const keyOf = (n: number) => ({ Process: 'P', TransactionID: String(n), ReplayID: 0 })
  const store = {
    ended,
    erased,
    /** Called after the erasure has read a page. */
    onPage: (_numbers: readonly number[]): void => {},
    reads: 0,
    endings: 0,
    /** The companies whose entries were erased. */
    entriesOf: [] as string[],
  }
  const source: ErasureDeps['source'] = {
    records: <Row extends object>({ table }: RecordKind<Row>) =>
      ({
        async remove({ where }: { readonly where: { readonly Realm: string } }) {
          if (table === ENTRIES.table) store.entriesOf.push(where.Realm)
          return 0
        },
      }) as unknown as Records<Row>,
    async erasable(_scope, { after }) {
      store.reads += 1
      const first = after === null ? 0 : Number(after.TransactionID) + 1
      const page = Array.from({ length: count }, (_, n) => n)
        .filter((n) => n >= first && !erased.has(n))
        .slice(0, 2)
      const last = page.at(-1)
      const runs = page.filter((n) => ended.has(n)).map((n) => ({ ...keyOf(n), Version: 1 }))
      store.onPage(page)
      return {
        runs,
        notEnded: page.length - runs.length,
        next: page.length < 2 || last === undefined ? null : { ...keyOf(last), CreatedAt: '' },
      }
    },
    async erase(runs) {
      for (const { TransactionID } of runs) erased.add(Number(TransactionID))
      return runs.length
    },
    async compact() {
      store.endings += 1
    },
    runsOf: async () => [],
    operate: () => Promise.reject(new Error('no run to cancel')),
    search: async () => ({ runs: [], next: null }),
  }
  return { store, source }
}

const erasureOf = (
  source: ErasureDeps['source'],
  removeFiles: RemoveFilesOfRuns = async () => ({ count: 0, failures: [] }),
  dropWebhooks: ErasureDeps['dropWebhooks'] = async () => [],
) =>
  createErasure({
    endPause: async () => {},
    isLoaded: () => true,
    source,
    cancel: () => Promise.reject(new Error('no run to cancel')),
    removeFiles,
    dropWebhooks,
    log: createLogger('test', 'silent'),
  })

describe('the erasure of the runs of a company', () => {
  it('an erasure cancels the webhooks of the company that have not ended, also if one ends meanwhile', async () => {
    const { source } = storeOf(0, new Set())
    const cancelled: unknown[] = []
    const operate: ErasureDeps['source']['operate'] = (action, { name }, id) => {
      cancelled.push([action, name, id])
      return Promise.reject(notActive())
    }
    await erasureOf({ ...source, operate }, undefined, async (realm) => [
      `ended ${realm}`,
      `waiting ${realm}`,
    ])(scope, act, later)
    expect(cancelled).toEqual([
      ['cancel', 'Webhook', 'ended r1'],
      ['cancel', 'Webhook', 'waiting r1'],
    ])
  })

  it('an erasure of a whole company deletes its entries of the book, and one of a process does not', async () => {
    const { store, source } = storeOf(0, new Set())
    await erasureOf(source)({ Realm: 'r1', Process: 'Order' }, act, later)
    expect(store.entriesOf).toEqual([])
    await erasureOf(source)({ Realm: 'r1', Process: null }, act, later)
    expect(store.entriesOf).toEqual(['r1'])
  })

  it('an erasure also erases a run that ends after the erasure has read the page with the run', async () => {
    const { store, source } = storeOf(5, new Set([1, 2, 3, 4]))
    store.onPage = (page) => void (page.includes(4) && store.ended.add(0))
    const result = await erasureOf(source)(scope, act, later)
    expect(result).toMatchObject({ erased: 5, more: false, notEnded: 0 })
    expect(store.endings).toBe(1)
  })

  it('a run that ends after the last pass of an erasure is counted as unfinished', async () => {
    const { store, source } = storeOf(3, new Set([1, 2]))
    store.onPage = () => void (store.erased.size === 2 && store.ended.add(0))
    const first = await erasureOf(source)(scope, act, later)
    expect(first).toMatchObject({ erased: 2, more: false, notEnded: 1 })
    expect(await erasureOf(source)(scope, act, later)).toMatchObject({ erased: 1, notEnded: 0 })
  })

  it('an erasure makes progress with each request, however short the time limit of the request is', async () => {
    const { store, source } = storeOf(7, new Set([0, 1, 2, 3, 4, 5, 6]))
    const results = []
    do results.push(await erasureOf(source)(scope, act, AbortSignal.abort()))
    while (results.at(-1)?.more === true)
    expect(results.map(({ erased }) => erased)).toEqual([2, 2, 2, 1, 0])
    expect(store.reads).toBe(5)
  })

  it('an erasure removes the files of a run before its data, and keeps the data if a file cannot be removed', async () => {
    const { store, source } = storeOf(5, new Set([0, 1, 2, 3, 4]))
    let isWritable = false
    const erase = erasureOf(source, async (runs) => {
      for (const { TransactionID } of runs)
        expect(store.erased).not.toContain(Number(TransactionID))
      const failed = runs.filter(({ TransactionID }) => TransactionID < '2' && !isWritable)
      return {
        count: runs.length - failed.length,
        failures: failed.map((run) => ({ run, error: new Error('EROFS') })),
      }
    })
    expect(await erase(scope, act, later)).toMatchObject({
      erased: 3,
      files: 3,
      filesLeft: 2,
      more: false,
    })
    expect([...store.erased]).toEqual([2, 3, 4])
    isWritable = true
    expect(await erase(scope, act, later)).toMatchObject({ erased: 2, files: 2, filesLeft: 0 })
  })

  it('an erasure ends with `more` if further runs end while it is in progress', async () => {
    const { store, source } = storeOf(100, new Set([0]))
    store.onPage = () => void store.ended.add(store.erased.size)
    const result = await erasureOf(source)(scope, act, later)
    expect(result.more).toBe(true)
    expect(result.erased).toBeLessThan(100)
  })
})
