/**
 * The interface through which every engine is measured: the coordinator, and the engines to which the coordinator is
 * compared. A driver process (`driver.ts`) runs one engine and receives its tasks over IPC.
 */

/** The names of the engines, each of which is a module in `engines/`. */
export type EngineName =
  | 'behind-http'
  | 'bullmq'
  | 'commits'
  | 'coordinator'
  | 'dbos'
  | 'graphile-worker'
  | 'messages'
  | 'none'
  | 'pg-boss'
  | 'restate'
  | 'same-rows'

/** The addresses and folders that an engine may need. Each engine uses only some of them. */
export interface EngineSettings {
  /** Maximum number of transactions in flight. */
  readonly concurrency: number
  /** The variant to measure, for an engine that is measured in several variants. */
  readonly variant: string
  /** Whether the client of a coordinator waits for events instead of the response (`Prefer: wait`). */
  readonly byEvents: boolean
  readonly stubUrl: string
  /** An existing folder. The CSV files are written to its subfolder `OrderCSV/`. */
  readonly dataDir: string
  readonly databaseUrl: string
  readonly redisUrl: string
  readonly amqp: { readonly url: string; readonly prefix: string }
  readonly coordinator: { readonly url: string; readonly key: string }
  readonly restate: {
    readonly ingressUrl: string
    readonly adminUrl: string
    readonly endpointPort: number
  }
}

export interface Engine extends AsyncDisposable {
  /**
   * Queues all transactions through the engine's bulk API and resolves when every transaction is completed. For an
   * engine without a bulk API, at most `concurrency` transactions run at a time, and `queuedMs` is absent.
   */
  runAll(ids: readonly string[]): Promise<{ readonly queuedMs?: number }>
  /** Runs one transaction and resolves when the transaction is completed. */
  runOne(id: string): Promise<void>
}

/** The function `start` that each module in `engines/` exports. */
export type StartEngine = (settings: EngineSettings) => Promise<Engine>

/**
 * Lets callers wait until a transaction has completed. Used for engines whose enqueue call returns before the
 * transaction has completed. The last step of each transaction calls `completed`.
 */
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

/** Builds an engine from a function that queues transactions and returns before these transactions have completed. */
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

/** Builds an engine from a function that runs a transaction and returns when the transaction has completed. */
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

/** Calls `run` for each id, with at most `concurrency` calls in flight. */
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
