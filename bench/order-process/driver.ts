/** A process of its own for one engine; `driver-process.ts` starts it and sends it tasks over IPC. */
import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { atMost, type EngineName, type EngineSettings, type StartEngine } from './engine.ts'

export type Task =
  /**
   * `all` starts every transaction at once. `one-by-one` uses as many clients as the concurrency allows; each
   * starts its next transaction when the previous one has completed.
   */
  | { readonly kind: 'all' | 'one-by-one'; readonly count: number }
  | { readonly kind: 'paced'; readonly perSecond: number; readonly seconds: number }
  | { readonly kind: 'end' }

export interface TaskResult {
  readonly elapsedMs: number
  readonly queuedMs?: number
  readonly latenciesMs: readonly number[]
}
/** The reply to a task; a first one without a result reports that the engine is ready. */
export type Reply = { readonly result?: TaskResult } | { readonly error: string }

// Imports only the measured engine, so that modules of other engines use no memory and no processor time.
const engines: Record<EngineName, () => Promise<{ start: StartEngine }>> = {
  bullmq: () => import('./engines/bullmq.ts'),
  coordinator: () => import('./engines/coordinator.ts'),
  dbos: () => import('./engines/dbos.ts'),
  'graphile-worker': () => import('./engines/graphile-worker.ts'),
  none: () => import('./engines/none.ts'),
  'pg-boss': () => import('./engines/pg-boss.ts'),
  restate: () => import('./engines/restate.ts'),
}
const [, , name, text = '{}'] = process.argv
const settings = JSON.parse(text) as EngineSettings
// The ids get a random prefix, because another engine may have used the same database before.
const prefix = randomUUID().slice(0, 8)
let next = 0
const ids = (count: number): string[] =>
  Array.from({ length: count }, () => `${prefix}-${(next += 1)}`)

// The IPC channel closes when the benchmark ends for any reason. Exiting then leaves no orphaned driver.
process.on('disconnect', () => process.exit())
process.on('message', (task: Task) => {
  void replyWith(async () => ({ result: await run(task) }))
})
const { start } = await engines[name as EngineName]()
const engine = await start(settings)
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
      await atMost(settings.concurrency, ids(task.count), (id) => engine.runOne(id))
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

/** Latency is measured from a transaction's scheduled start, so a stall counts for every transaction that waited. */
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
