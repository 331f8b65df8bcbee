/** The process in which one engine runs. `driver-process.ts` starts this process and sends tasks to it over IPC. */
import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { atMost, type EngineName, type EngineSettings } from './engine.ts'
import { startEngine } from './start-engine.ts'

export type Task =
  /**
   * `all` starts all transactions at the same time. `one-by-one` uses as many clients as the concurrency allows, but at
   * most `MAX_CLIENTS`. Each of these clients starts its next transaction when its previous one has completed.
   */
  | { readonly kind: 'all' | 'one-by-one'; readonly count: number }
  | { readonly kind: 'paced'; readonly perSecond: number; readonly seconds: number }
  | { readonly kind: 'end' }

export interface TaskResult {
  readonly elapsedMs: number
  readonly queuedMs?: number
  readonly latenciesMs: readonly number[]
}
/** The reply to a task. A reply without a result is sent once before the first task, when the engine is ready. */
export type Reply = { readonly result?: TaskResult } | { readonly error: string }

/** A coordinator lets at most 200 requests wait for the end of their runs. */
const MAX_CLIENTS = 200

const [, , name, text = '{}'] = process.argv
const settings = JSON.parse(text) as EngineSettings
// The transaction ids get a random prefix, because a previous run may have stored transactions in the same
// database.
const prefix = randomUUID().slice(0, 8)
let next = 0
const ids = (count: number): string[] =>
  Array.from({ length: count }, () => `${prefix}-${(next += 1)}`)

// When the benchmark ends for any reason, the IPC channel closes. The driver then exits, so that no orphaned
// process remains.
process.on('disconnect', () => process.exit())
process.on('message', (task: Task) => {
  void replyWith(async () => ({ result: await run(task) }))
})
const engine = await startEngine(name as EngineName, settings)
process.send?.({} satisfies Reply)

async function replyWith(work: () => Promise<Reply>): Promise<void> {
  try {
    process.send?.(await work())
  } catch (error) {
    const { stack = String(error) } = error as Error
    process.send?.({ error: stack } satisfies Reply)
  }
}

async function run(task: Task): Promise<TaskResult> {
  const startedAt = performance.now()
  switch (task.kind) {
    case 'all': {
      const totals = await engine.runAll(ids(task.count))
      return { elapsedMs: performance.now() - startedAt, ...totals, latenciesMs: [] }
    }
    case 'one-by-one':
      await atMost(Math.min(settings.concurrency, MAX_CLIENTS), ids(task.count), (id) =>
        engine.runOne(id),
      )
      return { elapsedMs: performance.now() - startedAt, latenciesMs: [] }
    case 'paced': {
      const latenciesMs = await paced(task.perSecond, task.seconds)
      return { elapsedMs: performance.now() - startedAt, latenciesMs }
    }
    case 'end':
      await engine[Symbol.asyncDispose]()
      return process.exit()
  }
}

/**
 * Starts transactions at a fixed rate and returns their latencies in milliseconds. Each latency is measured from
 * the scheduled start of its transaction, so a stall counts for every transaction that waited.
 */
async function paced(perSecond: number, seconds: number): Promise<readonly number[]> {
  const startedAt = performance.now()
  return Promise.all(
    ids(perSecond * seconds).map(async (id, n) => {
      const dueAt = startedAt + (n * 1_000) / perSecond
      await delay(Math.max(0, dueAt - performance.now()))
      await engine.runOne(id)
      return performance.now() - dueAt
    }),
  )
}
