import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createLogger } from '@integration-host/shared/observability/logger'
import { systemClock } from '@integration-host/shared/process/clock'
import { until } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { createMemoryTransactionSource } from '../adapters/memory/transaction-source.ts'
import { processOf } from '../../test-support/process-of.ts'
import { outlineOf } from '../step/definition.ts'
import type { ProcessOptions } from '../step/process-options.ts'
import { createOperationStore } from '../bulk/bulk-operation-store.ts'
import { createPurgePasses } from './purge-passes.ts'
import { FILES_LEFT, FIRST_END } from '../run/retention.ts'
import { ENTRIES } from '../entry/book-entry.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import {
  firstPace,
  MAX_SIZE,
  nextPace,
  type PurgePace,
  type RetentionAges,
  type RetentionDeps,
  startRetention,
} from './purge.ts'
import { readActions } from '../run/action.ts'

const DAY_MS = 86_400_000
const define = (name: string, options: ProcessOptions = {}) =>
  processOf(name, { steps: { only: () => {} }, ...options })

let folder: string
let source: TransactionSource
let nowMs: number
let removed: string[]
let lines: { msg: string; [key: string]: unknown }[]
let ages: RetentionAges[]
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'retention-'))
  nowMs = Date.parse('2026-01-01T00:00:00Z')
  removed = []
  lines = []
  ages = []
  source = await createMemoryTransactionSource(folder, { now: () => nowMs })
})
afterEach(async () => {
  await source[Symbol.asyncDispose]()
  await rm(folder, { recursive: true })
})

const log = createLogger('test', 'info', { write: (line) => void lines.push(JSON.parse(line)) })
const logged = (msg: string) => lines.filter((line) => line.msg === msg)

/** Runs one retention pass over these processes. */
async function pass(
  definitions: readonly ReturnType<typeof define>[],
  overrides: Partial<RetentionDeps> = {},
): Promise<void> {
  const passes = overrides.passes ?? createPurgePasses(source)
  let polls = 0
  const retention = startRetention({
    processes: new Map(definitions.map((definition) => [definition.name, definition])),
    retention: { completedDays: undefined, failedDays: undefined, dedupeDays: 365, entryDays: 400 },
    async removeFiles(runs) {
      removed.push(...runs.map(({ TransactionID }) => TransactionID))
      return { count: runs.length, failures: [] }
    },
    removeLeftovers: async () => {},
    owner: 'this replica',
    log,
    random: () => 0.5,
    clock: { ...systemClock, now: () => nowMs },
    intervalMs: 20,
    onPurged: () => {},
    onForgotten: () => {},
    onAges(each) {
      if (polls === 1) ages.push(each)
    },
    source,
    bulkOperations: createOperationStore(source),
    ...overrides,
    passes: {
      ...passes,
      // The first poll makes the pass. The second poll begins only after the first poll has ended. When the second poll
      // begins, the pass has therefore ended.
      async begin(...turn) {
        polls += 1
        return polls === 1 ? passes.begin(...turn) : { kind: 'waiting', lastPassMs: null }
      },
    },
  })
  await until(() => polls > 1)
  await retention[Symbol.asyncDispose]()
  nowMs += 60 * 20 // the next pass is then due
}

/** Queues a run and cancels it, because the test needs a finished run. */
async function cancelled(definition: ReturnType<typeof define>, id: string): Promise<void> {
  await source.queue(outlineOf(definition), [{ TransactionID: id, InitialData: id }])
  await source.operate('cancel', definition, id, null, anAct)
}
const isPurged = async ({ name }: { name: string }, id: string) =>
  (await source.get(name, id, null))?.run.PurgedAt !== null

describe('the retention of finished runs', () => {
  it('a new installation keeps failed and cancelled runs for 365 days, and logs this once', async () => {
    const order = define('Order')
    await cancelled(order, '1')
    nowMs += 365 * DAY_MS
    await pass([order])
    expect(await isPurged(order, '1')).toBe(false)
    nowMs += 1
    await pass([order])
    expect(await isPurged(order, '1')).toBe(true)
    expect(logged('retention of finished runs')[0]).toMatchObject({
      keptDays: { Order: { completed: 90, failed: 365 }, Webhook: { completed: 90, failed: 365 } },
      dedupeDays: 365,
      entryDays: 400,
      default: 'new installation',
    })
  })

  it('a bulk operation is deleted 90 days after its end, and no file contains it any longer', async () => {
    const request = { Filter: { tag: ['order:a value'] }, PerSecond: 1 }
    const by = { keyId: 'console', person: null }
    const store = createOperationStore(source)
    await store.startOperation(
      'old',
      { Action: 'cancel', Process: 'Order', DryRun: false, Request: { ...request, Realms: ['*'] } },
      { by, reason: null },
    )
    await store.stopOperation('old', { by, reason: null })
    nowMs += 90 * DAY_MS
    await pass([])
    expect(await store.operation('old')).not.toBeNull()
    nowMs += 1
    await pass([])
    expect(await store.operation('old')).toBeNull()
    for (const name of ['ITSourceMemory.json', 'ITSourceMemory.journal'])
      expect(await readFile(join(folder, name), 'utf8')).not.toContain('a value')
  })

  it('an installation that had runs before the retention was introduced keeps runs for ever unless a setting overrides this', async () => {
    const order = define('Order')
    await cancelled(order, '1')
    nowMs += 10_000 * DAY_MS
    const passes = { ...createPurgePasses(source), keepsByDefault: async () => true }
    await pass([order], { passes })
    expect(await isPurged(order, '1')).toBe(false)
    const retention = { completedDays: undefined, failedDays: 0.5, dedupeDays: 0, entryDays: 0 }
    await pass([order], { passes, retention })
    expect(await isPurged(order, '1')).toBe(true)
    expect(logged('retention of finished runs').at(-1)).toMatchObject({
      keptDays: { Order: { completed: 'for ever', failed: 0.5 } },
      dedupeDays: 'for ever',
      entryDays: 'for ever',
    })
  })

  it('the retention of a process overrides the settings, and a retention of 0 keeps its runs for ever', async () => {
    const [short, keeping] = [
      define('Short', { retention: { failedDays: 1 } }),
      define('Keeping', { retention: { completedDays: 0, failedDays: 0 } }),
    ]
    await cancelled(short, '1')
    await cancelled(keeping, '1')
    nowMs += 2_000 * DAY_MS
    await pass([short, keeping])
    expect([await isPurged(short, '1'), await isPurged(keeping, '1')]).toEqual([true, false])
  })

  it('runs of a process that is not loaded are kept, because its retention is unknown', async () => {
    const gone = define('Gone')
    await cancelled(gone, '1')
    nowMs += 2_000 * DAY_MS
    await pass([define('Other')])
    expect(await isPurged(gone, '1')).toBe(false)
  })

  it('while the files of a purged run cannot be removed, only runs of other processes are purged', async () => {
    const files = define('Files')
    const order = define('Order')
    await cancelled(files, '1')
    await cancelled(order, '1')
    nowMs += 366 * DAY_MS
    const removeFiles: RetentionDeps['removeFiles'] = async (runs) => ({
      count: 0,
      failures: runs
        .filter(({ Process }) => Process === 'Files')
        .map((run) => ({ run, error: new Error('EIO') })),
    })
    await pass([files, order], { removeFiles })
    expect([await isPurged(files, '1'), await isPurged(order, '1')]).toEqual([true, true])
    expect(logged('purging old runs of a process failed')).toMatchObject([
      { process: 'Files', err: { message: 'EIO' } },
    ])
    await cancelled(files, '2')
    nowMs += 366 * DAY_MS
    await pass([files, order], { removeFiles })
    expect(await isPurged(files, '2')).toBe(false)
    await pass([files, order])
    expect(removed).toEqual(['1', '2'])
    expect(await isPurged(files, '2')).toBe(true)
  })

  it('the files of a run that cannot be removed keep no other run from being forgotten', async () => {
    const files = define('Files')
    for (const id of ['1', '2', '3']) await cancelled(files, id)
    nowMs += 366 * DAY_MS
    const removeFiles: RetentionDeps['removeFiles'] = async (runs) => {
      const failures = runs
        .filter(({ TransactionID }) => TransactionID === '2')
        .map((run) => ({ run, error: new Error('EIO') }))
      return { count: runs.length - failures.length, failures }
    }
    const left = async () =>
      (await source.records(FILES_LEFT).rows()).flatMap(({ Value }) =>
        Value.map(({ TransactionID }) => TransactionID),
      )
    await pass([files], { removeFiles })
    await pass([files], { removeFiles })
    expect(await left()).toEqual(['2'])
    await pass([files])
    expect(await left()).toEqual([])
  })

  it('if a replica dies between the purge of a run and the removal of its files, the files are removed after the restart', async () => {
    const order = define('Order')
    await cancelled(order, '1')
    nowMs += 366 * DAY_MS
    const policy = { process: 'Order', completedMs: 0, failedMs: 0 }
    const { runs } = await source.purgeable(policy, FIRST_END, 10)
    expect(await source.purge(policy, runs)).toBe(1)
    await source[Symbol.asyncDispose]()
    source = await createMemoryTransactionSource(folder, { now: () => nowMs })
    await pass([order])
    await pass([order])
    expect(removed).toEqual(['1'])
  })

  it('a run keeps its files if it is resumed after a retention pass has read it', async () => {
    const order = define('Order')
    await cancelled(order, '1')
    await cancelled(order, '2')
    nowMs += 366 * DAY_MS
    const purgeable: TransactionSource['purgeable'] = async (policy, after, limit) => {
      const page = await source.purgeable(policy, after, limit)
      const isOfPass = limit > 1 // the metric reads only the oldest run
      if (isOfPass && page.runs.length > 0)
        await source.operate('resume', outlineOf(order), '1', null, anAct)
      return page
    }
    await pass([order], { source: { ...source, purgeable } })
    expect(removed).toEqual(['2'])
    expect(await isPurged(order, '1')).toBe(false)
  })

  it('a retention pass renews its lease even if it purges no run, and ends when another replica has the lease', async () => {
    let pages = 0
    let extensions = 0
    const kept: Partial<TransactionSource> = {
      async purgeable() {
        pages += 1
        nowMs += 3_000
        return { runs: [], next: pages < 100 ? FIRST_END : null, oldestMs: null }
      },
    }
    const passes = {
      ...createPurgePasses(source),
      async renew() {
        extensions += 1
        return extensions < 2
      },
    }
    const retention = { completedDays: 1, failedDays: 1, dedupeDays: 0, entryDays: 0 }
    await pass([define('Order')], { source: { ...source, ...kept }, passes, retention })
    expect(extensions).toBeGreaterThanOrEqual(2)
    expect(pages).toBeLessThan(100)
  })

  it('the batch size of a retention pass depends only on earlier batches of the same kind of work', async () => {
    const sizes: Record<'purge' | 'forget' | 'forgetOperations', number[]> = {
      purge: [],
      forget: [],
      forgetOperations: [],
    }
    const run = { Process: 'Order', TransactionID: '1', ReplayID: 0 }
    const fast: Partial<TransactionSource> = {
      async purgeable() {
        const isEnough = sizes.purge.length > 20
        const runs = isEnough ? [] : Array.from({ length: 1_000 }, () => run)
        return { runs, next: isEnough ? null : FIRST_END, oldestMs: null }
      },
      async purge(_policy, runs) {
        sizes.purge.push(runs.length)
        return runs.length
      },
      async forget(_ms, size) {
        return sizes.forget.push(size) > 20 ? 0 : size
      },
    }
    const bulkOperations = {
      async forgetOperations(_ms: number, size: number) {
        sizes.forgetOperations.push(size)
        return 0
      },
    }
    await pass([define('Order')], { source: { ...source, ...fast }, bulkOperations })
    for (const kind of ['purge', 'forget', 'forgetOperations'] as const)
      expect(sizes[kind][0], kind).toBe(100)
    expect(Math.max(...sizes.purge)).toBeGreaterThan(100)
    expect(Math.max(...sizes.forget)).toBeGreaterThan(100)
  })

  it('the id of a purged transaction is deleted after DEDUPE_DAYS', async () => {
    const order = define('Order')
    await cancelled(order, '1')
    nowMs += 366 * DAY_MS
    await pass([order])
    nowMs += 364 * DAY_MS
    await pass([order])
    expect(await source.get('Order', '1', null)).not.toBeNull()
    nowMs += 2 * DAY_MS
    await pass([order])
    expect(await source.get('Order', '1', null)).toBeNull()
    const actions = await readActions(source, { process: 'Order', limit: 10 })
    expect(actions.map(({ Action, Reason }) => `${Action}: ${Reason}`)).toEqual([
      'forget: 1 runs',
      'purge: 1 runs',
      'cancel: null',
    ])
  })

  it('entries of the book are deleted after ENTRY_DAYS, in many small statements', async () => {
    const asked: [number, number][] = []
    const entries = [100, 100, 5]
    const counting: TransactionSource = {
      ...source,
      records(kind) {
        const records = source.records(kind)
        if (kind.table !== ENTRIES.table) return records
        return {
          ...records,
          async remove({ where, limit }) {
            const { RecordedAt } = where as { readonly RecordedAt?: { readonly until: string } }
            asked.push([nowMs - Date.parse(RecordedAt?.until ?? ''), limit ?? NaN])
            return entries.shift() ?? 0
          },
        }
      },
    }
    const retention = { completedDays: undefined, failedDays: undefined, dedupeDays: 0 }
    await pass([define('Order')], { source: counting, retention: { ...retention, entryDays: 400 } })
    expect(asked.map(([olderThanMs]) => olderThanMs / DAY_MS)).toEqual([400, 400, 400, 400])
    expect(asked[0]?.[1]).toBe(100)
    await pass([define('Other')], { source: counting, retention: { ...retention, entryDays: 0 } })
    expect(asked).toHaveLength(4)
  })

  it('the metrics of the retention contain the age of the oldest finished run and the time since the last pass', async () => {
    const order = define('Order')
    await cancelled(order, '1')
    nowMs += DAY_MS
    await pass([order])
    await pass([order])
    expect(ages[0]?.oldestMs.get('Order')).toBe(DAY_MS)
    expect(ages[0]?.lastPassMs).toBe(0)
    expect(ages[1]?.lastPassMs).toBe(60 * 20)
  })
})

/** Returns the pace (batch size and pause) of a purge after `times` full batches in which each run takes `perRunMs`. */
function paceAfter(from: PurgePace, times: number, perRunMs: number): PurgePace {
  let pace = from
  for (let n = 0; n < times; n += 1) pace = nextPace(pace, pace.size, pace.size * perRunMs)
  return pace
}

describe('the pace of the purge', () => {
  it('the purge makes its batch larger if a batch takes less than 40 ms, up to 1,000 runs', () => {
    expect(paceAfter(firstPace, 1, 0.01).size).toBe(200)
    expect(paceAfter(firstPace, 20, 0.01).size).toBe(MAX_SIZE)
    expect(paceAfter(firstPace, 20, 0.1).size).toBe(400)
  })

  it('the purge makes its batch smaller at once when a run takes longer, but not smaller than 100 runs', () => {
    const fast = paceAfter(firstPace, 20, 0.1)
    expect(nextPace(fast, 400, 80).size).toBe(200)
    expect(nextPace(fast, 400, 4_000).size).toBe(100)
  })

  it('the pause after a batch of the purge grows with the square of the slowdown, up to four times the batch duration', () => {
    const fast = paceAfter(firstPace, 20, 0.1)
    expect(fast.pauseMs).toBeCloseTo(10, 1)
    expect(nextPace(fast, 400, 80).pauseMs).toBeCloseTo(80, 0)
    expect(nextPace(fast, 400, 160).pauseMs).toBeCloseTo(640, -1)
    expect(nextPace(fast, 400, 400).pauseMs).toBeCloseTo(1_600, -1)
  })

  it('after 600 equally slow batches, the purge treats their duration as normal, and its pauses are short again', () => {
    const fast = paceAfter(firstPace, 20, 0.1)
    expect(paceAfter(fast, 1, 0.3).pauseMs).toBeGreaterThan(80)
    expect(paceAfter(fast, 600, 0.3).pauseMs).toBeCloseTo(10, 1)
  })

  it('the purge does not treat a small last batch as a slowdown, although each run in it takes longer', () => {
    const fast = paceAfter(firstPace, 20, 0.1)
    const last = nextPace(fast, 1, 4)
    expect(last).toMatchObject({ size: fast.size, bestMs: fast.bestMs, pauseMs: 1 })
  })
})
