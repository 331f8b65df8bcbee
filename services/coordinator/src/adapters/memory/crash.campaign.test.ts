/**
 * Tests the memory source under process kills and disk failures. After each failure, the files must open again and must
 * contain each transaction in the last acknowledged state or one transition later. The later state is valid because a
 * transition may have been written although its acknowledgement was lost.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFile, mkdir, mkdtemp, open, rename, rm, rmdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import * as fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { aSearch } from '../../../test-support/search.ts'
import { advance } from '../../run/progress.ts'
import { defaultRetryPolicy } from '../../run/retry-policy.ts'
import type { Run } from '../../run/run.ts'
import type { TransactionSource } from '../../run/transaction-source.ts'
import type { JournalFile } from './journal.ts'
import { createMemoryTransactionSource } from './transaction-source.ts'

const IS_FULL = process.env['TEST_FAULTS'] !== undefined
const SEED = Number(process.env['TEST_SEED'] ?? 1)
const KILLS = IS_FULL ? 500 : 48
/** The number of child processes that are killed concurrently. Each of them works in a folder of its own. */
const WORKERS = 4
const DISKS = IS_FULL ? 300 : 50

const outline = { name: 'OrderProcess', steps: ['order', 'report'] } as const
const done = { kind: 'completed', response: null, data: null, endsRun: false } as const

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'coordinator-'))
})
afterEach(() => rm(folder, { recursive: true }))

describe('the in-memory transaction source under kills and disk faults', () => {
  it(
    'the in-memory transaction source loses no acknowledged change if its OS process is killed while it writes',
    async ({ annotate }) => {
      const results = await Promise.all(
        Array.from({ length: WORKERS }, (_, worker) => killRepeatedly(worker, KILLS / WORKERS)),
      )
      const sum = (figure: 'acknowledged' | 'ahead') =>
        results.reduce((total, result) => total + result[figure], 0)
      // At least one kill must occur after the write to disk and before the acknowledgement; otherwise the test would
      // prove nothing.
      expect(sum('ahead')).toBeGreaterThan(0)
      await annotate(
        `${KILLS} kills: opened every time, ${sum('acknowledged')} acknowledged changes, lost 0; ${sum('ahead')} runs were one transition ahead of what was acknowledged`,
        'measurement',
      )
    },
    KILLS * 3_000,
  )

  it('the in-memory transaction source and its files stay consistent if the disk is full or fails at any byte of a write', async ({
    annotate,
  }) => {
    const seen = { refused: 0, acknowledged: 0 }
    await fc.assert(
      fc.asyncProperty(fc.array(fault, { minLength: 1, maxLength: 4 }), async (faults) => {
        const own = await mkdtemp(join(folder, 'disk-'))
        const { refused, acknowledged } = await workOn(own, faults)
        seen.refused += refused
        seen.acknowledged += acknowledged
      }),
      { numRuns: DISKS, seed: SEED },
    )
    expect(seen.refused).toBeGreaterThan(DISKS / 2)
    await annotate(
      `${DISKS} disks that were full or failing: opened every time, ${seen.refused} changes refused, ${seen.acknowledged} acknowledged, lost 0`,
      'measurement',
    )
  }, 120_000)

  it('even if a truncation of the journal could not be flushed, later changes are appended at the right position', async () => {
    const faults: Fault[] = [
      { operation: 'sync', at: 3, bytes: 0 },
      { operation: 'appendFile', at: 10, bytes: 5 },
    ]
    const source = await createMemoryTransactionSource(folder, { openFile: failingFile(faults) })
    const queue = (id: string, bytes: number) =>
      source.queue(outline, [{ TransactionID: id, InitialData: 'x'.repeat(bytes) }])
    // The journal grows beyond the size at which it is compacted. Compaction truncates the journal, and the
    // `sync` that follows fails.
    for (let n = 0; n < 9; n += 1) await queue(`large-${n}`, 1_000_000)
    await expect(queue('refused', 1)).rejects.toMatchObject({ code: 'store_unavailable' })
    // A folder at the path of the snapshot makes later snapshots fail, so later changes are stored only in the
    // journal.
    const snapshot = join(folder, 'ITSourceMemory.json')
    await rename(snapshot, `${snapshot}.kept`)
    await mkdir(snapshot)
    await queue('last', 1)
    await source[Symbol.asyncDispose]()
    await rmdir(snapshot)
    await rename(`${snapshot}.kept`, snapshot)
    await using again = await createMemoryTransactionSource(folder)
    expect((await again.search(aSearch(outline.name))).runs).toHaveLength(10)
  })

  it('if the in-memory transaction source cannot be opened, it closes its files', async () => {
    const faults: Fault[] = [{ operation: 'truncate', at: 1, bytes: 0 }]
    let isClosed = false
    const openFile = async (path: string): Promise<JournalFile> => {
      const file = await failingFile(faults)(path)
      return { ...file, close: async () => ((isClosed = true), file.close()) }
    }
    await expect(createMemoryTransactionSource(folder, { openFile })).rejects.toThrow('EIO')
    expect(isClosed).toBe(true)
  })
})

/** The highest acknowledged version of each transaction, which a kill must not undo. */
type Acknowledged = Map<string, number>

async function killRepeatedly(worker: number, kills: number) {
  const random = randomFrom(SEED * 1_000 + worker)
  let acknowledged = 0
  let ahead = 0
  let versions: Acknowledged = new Map()
  let own = ''
  for (let kill = 0; kill < kills; kill += 1) {
    // Each folder is replaced after 25 kills, because a growing store would only make the test slower.
    if (kill % 25 === 0) {
      own = join(folder, `worker-${worker}-${kill}`)
      await mkdir(own)
      versions = new Map()
    }
    const child = startWorker(own, kill)
    let lines = ''
    child.stdout?.on('data', (data) => (lines += String(data)))
    await Promise.race([once(child.stdout as NodeJS.ReadableStream, 'data'), once(child, 'exit')])
    await sleep(random() * 60)
    child.kill('SIGKILL')
    await once(child, 'close')
    // The last line may be incomplete, because the kill may have interrupted the output of the child process.
    for (const line of lines.split('\n').slice(0, -1)) {
      const [id = '', version] = line.split(' ')
      if (version === undefined) continue
      versions.set(id, Number(version))
      acknowledged += 1
    }
    await using source = await createMemoryTransactionSource(own)
    ahead += await expectKept(source, versions)
  }
  return { acknowledged, ahead }
}

/**
 * Checks that each run is either in its acknowledged state or one transition later. Returns the number of runs
 * that are one transition later.
 */
async function expectKept(source: TransactionSource, versions: Acknowledged): Promise<number> {
  let ahead = 0
  for (const [id, version] of versions) {
    const run = await source.get(outline.name, id, 0)
    expect([version, version + 1], id).toContain(run?.run.Version)
    if (run?.run.Version === version) continue
    ahead += 1
    versions.set(id, version + 1)
  }
  const { violations } = await source.audit([outline.name])
  expect(violations).toMatchObject({ completedWithoutItem: 0, itemAhead: 0, orphanItems: 0 })
  return ahead
}

/**
 * Starts a child process that queues, claims and records runs as fast as possible, sometimes reopens its store,
 * and prints each acknowledged version.
 */
function startWorker(dataDir: string, round: number): ChildProcess {
  const at = (path: string) => JSON.stringify(new URL(path, import.meta.url).href)
  const script = `
    const { writeSync } = await import('node:fs')
    const { createMemoryTransactionSource } = await import(${at('./transaction-source.ts')})
    const { advance } = await import(${at('../../run/progress.ts')})
    const outline = ${JSON.stringify(outline)}, { steps } = outline
    const policy = ${JSON.stringify(defaultRetryPolicy)}
    let n = 0
    async function work(source) {
      const TransactionID = '${round}-' + n++
      const InitialData = 'x'.repeat(n % 7 === 0 ? 20_000 : 20)
      const [{ run: queued }] = await source.queue(outline, [{ TransactionID, InitialData }])
      let run = queued
      const tell = () => writeSync(1, TransactionID + ' ' + run.Version + '\\n')
      tell()
      while (run.Status !== 'Completed') {
        const step = run.StepName
        const message = { Process: outline.name, TransactionID, ReplayID: 0, version: run.Version }
        const { claim } = await source.claim({ ...message, step, isFirst: step === steps[0], owner: 'w' })
        run = claim.run
        tell()
        const outcome = ${JSON.stringify(done)}
        run = await source.record(claim.lease, advance(run, outcome, { steps, policy, random: 0 }))
        tell()
      }
    }
    for (;;) {
      await using source = await createMemoryTransactionSource(${JSON.stringify(dataDir)})
      writeSync(1, 'open\\n')
      const worker = async () => { for (let runs = 0; runs < 4; runs++) await work(source) }
      await Promise.all(Array.from({ length: 5 }, worker))
    }`
  return spawn(process.execPath, ['--input-type=module', '-e', script], {
    // The child processes use Node's compile cache, because otherwise they would spend most of their short lives
    // compiling.
    env: { ...process.env, NODE_COMPILE_CACHE: join(dataDir, '..', 'compiled') },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
}

/** Makes call number `at` of a file operation fail. A failing append still writes the first `bytes` bytes. */
interface Fault {
  readonly operation: 'appendFile' | 'datasync' | 'sync' | 'truncate'
  readonly at: number
  readonly bytes: number
}

const fault: fc.Arbitrary<Fault> = fc.record({
  operation: fc.constantFrom('appendFile', 'appendFile', 'appendFile', 'datasync', 'truncate'),
  // The first file operations happen while the memory source is opened. They must succeed here, because another test
  // covers failures during the opening.
  at: fc.integer({ min: 3, max: 30 }),
  bytes: fc.nat({ max: 3_000 }),
})

const failingFile =
  (faults: readonly Fault[]) =>
  async (path: string): Promise<JournalFile> => {
    const file = await open(path, 'a+', 0o600)
    const calls = new Map<Fault['operation'], number>()
    const due = (operation: Fault['operation']): Fault | undefined => {
      const call = (calls.get(operation) ?? 0) + 1
      calls.set(operation, call)
      return faults.find((one) => one.operation === operation && one.at === call)
    }
    const fail = (code: string) => Object.assign(new Error(code), { code })
    return {
      async appendFile(lines) {
        const full = due('appendFile')
        if (full === undefined) return file.appendFile(lines)
        const bytes = Buffer.from(lines)
        await file.appendFile(bytes.subarray(0, Math.min(full.bytes, bytes.length - 1)))
        throw fail('ENOSPC')
      },
      async datasync() {
        await file.datasync()
        // The fault is raised after the bytes were written. The caller must treat bytes as not durable although they
        // are on the disk.
        if (due('datasync') !== undefined) throw fail('EIO')
      },
      async sync() {
        await file.sync()
        if (due('sync') !== undefined) throw fail('EIO')
      },
      async truncate(length) {
        if (due('truncate') !== undefined) throw fail('EIO')
        await file.truncate(length)
      },
      close: () => file.close(),
    }
  }

/**
 * Runs four rounds of transactions on a disk with these faults. After each round, opens a copy of the files as a
 * restarted coordinator would.
 */
async function workOn(own: string, faults: readonly Fault[]) {
  const source = await createMemoryTransactionSource(own, { openFile: failingFile(faults) })
  const versions: Acknowledged = new Map()
  let refused = 0
  let acknowledged = 0
  const attempt = async <Result>(change: () => Promise<Result>): Promise<Result | null> => {
    try {
      const result = await change()
      acknowledged += 1
      return result
    } catch (error) {
      expect(error).toMatchObject({ code: 'store_unavailable' })
      refused += 1
      return null
    }
  }
  const run = async (id: string): Promise<void> => {
    const queued = await attempt(() =>
      source.queue(outline, [{ TransactionID: id, InitialData: 'x'.repeat(id.length * 50) }]),
    )
    if (queued === null) return
    versions.set(id, 0)
    for (let tries = 0; tries < 6; tries += 1) {
      const stored = (await source.get(outline.name, id, 0))?.run as Run
      // A rejected change must also be undone in memory.
      expect(stored.Version).toBe(versions.get(id))
      if (stored.Status === 'Completed') return
      const { TransactionID, ReplayID, Process, Version: version, StepName: step } = stored
      const message = { Process, TransactionID, ReplayID, version, step, owner: 'w' }
      const claimed = await attempt(() => source.claim({ ...message, isFirst: step === 'order' }))
      if (claimed?.kind !== 'claimed') continue
      versions.set(id, claimed.claim.run.Version)
      const course = { steps: outline.steps, policy: defaultRetryPolicy, random: 0 }
      const recorded = await attempt(() =>
        source.record(claimed.claim.lease, advance(claimed.claim.run, done, course)),
      )
      if (recorded === null) return
      versions.set(id, recorded.Version)
    }
  }
  for (let round = 0; round < 4; round += 1) {
    await Promise.all(Array.from({ length: 5 }, (_, n) => run(`${'long-'.repeat(n)}${round}-${n}`)))
    await using cut = await createMemoryTransactionSource(await powerCut(own))
    await expectKept(cut, new Map(versions))
  }
  await source[Symbol.asyncDispose]()
  const again = await createMemoryTransactionSource(own)
  for (const [id, version] of versions)
    expect((await again.get(outline.name, id, 0))?.run.Version).toBe(version)
  await again[Symbol.asyncDispose]()
  return { refused, acknowledged }
}

/** Copies the current files to another folder, in the state that a power failure would leave. */
async function powerCut(own: string): Promise<string> {
  const cut = await mkdtemp(`${own}-cut-`)
  for (const file of ['ITSourceMemory.json', 'ITSourceMemory.journal'])
    await copyFile(join(own, file), join(cut, file))
  return cut
}

/** Mulberry32: a pseudo-random generator that returns the same sequence for the same seed. */
function randomFrom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
