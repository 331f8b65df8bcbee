/**
 * What every engine is measured through, ours and its peers. A driver process (`driver.ts`) holds one engine
 * and is told over IPC what to run.
 */

/** One file of `engines/`. */
export type EngineName =
  | 'bullmq'
  | 'coordinator'
  | 'dbos'
  | 'graphile-worker'
  | 'none'
  | 'pg-boss'
  | 'restate'

/** Where everything is; each engine takes what it needs. */
export interface EngineSettings {
  /** At most so many transactions in work. */
  readonly concurrency: number
  /** Of an engine that is driven in more than one way. */
  readonly variant: string
  readonly stubUrl: string
  /** Exists; the files come to be in its `OrderCSV/`. */
  readonly dataDir: string
  readonly databaseUrl: string
  readonly redisUrl: string
  readonly coordinator: { readonly url: string; readonly key: string }
  readonly restate: {
    readonly ingressUrl: string
    readonly adminUrl: string
    readonly endpointPort: number
  }
}

export interface Engine extends AsyncDisposable {
  /**
   * Hands over all of them at once in the way in which the engine takes many, and resolves when every one is
   * completed. Engines without such a way are given `concurrency` at a time, and tell no `queuedMs`.
   */
  runAll(ids: readonly string[]): Promise<{ readonly queuedMs?: number }>
  /** One transaction, from handing it over until it is completed. */
  runOne(id: string): Promise<void>
}

/** The export `start` of each file of `engines/`. */
export type StartEngine = (settings: EngineSettings) => Promise<Engine>

/** Told by the steps of an engine whose queueing call does not wait for the end. */
export class Completions {
  readonly #waiting = new Map<string, () => void>()

  until(id: string): Promise<void> {
    return new Promise((resolve) => this.#waiting.set(id, resolve))
  }

  completed(id: string): void {
    this.#waiting.get(id)?.()
    this.#waiting.delete(id)
  }
}

/** An engine whose transactions are queued, one or many, and completed elsewhere. */
export function engineOfQueue(deps: {
  readonly queue: (ids: readonly string[]) => Promise<unknown>
  readonly completions: Completions
  readonly close: () => Promise<unknown>
}): Engine {
  const { queue, completions, close } = deps
  const runAll = async (ids: readonly string[]): Promise<{ readonly queuedMs: number }> => {
    const completed = Promise.all(ids.map((id) => completions.until(id)))
    const startedAt = performance.now()
    await queue(ids)
    const queuedMs = performance.now() - startedAt
    await completed
    return { queuedMs }
  }
  return {
    runAll,
    runOne: async (id) => void (await runAll([id])),
    [Symbol.asyncDispose]: async () => void (await close()),
  }
}

/** An engine that is called and answers when the transaction is completed. */
export function engineOfCalls(deps: {
  readonly run: (id: string) => Promise<unknown>
  readonly concurrency: number
  readonly close: () => Promise<unknown>
}): Engine {
  const { run, concurrency, close } = deps
  return {
    async runAll(ids) {
      await atMost(concurrency, ids, run)
      return {}
    },
    runOne: async (id) => void (await run(id)),
    [Symbol.asyncDispose]: async () => void (await close()),
  }
}

/** Calls `run` with each, `concurrency` of them at a time. */
export async function atMost(
  concurrency: number,
  ids: readonly string[],
  run: (id: string) => Promise<unknown>,
): Promise<void> {
  const remaining = ids.values()
  await Promise.all(
    Array.from({ length: concurrency }, async () => {
      for (const id of remaining) await run(id)
    }),
  )
}
