/** The runs of a process: queue, wait, act. */
import type { ReplayTransaction, RunResponse } from '@integration-host/shared/contracts/run'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { hasProblem, ProblemError, type RunDetail } from './problem.ts'
import type { RunEvents } from './run-events.ts'

/** A run without its items and attempts. */
export type Run = RunResponse
export type JsonValue = QueueTransaction['InitialData']

/** Options of every request. */
export interface RequestOptions {
  /** Aborts the request. The promise is rejected with the reason of the signal. */
  readonly signal?: AbortSignal
}
export interface ActOptions extends RequestOptions {
  /** The reason that is written to the action log. */
  readonly reason?: ReplayTransaction['Reason']
}
export interface QueueOptions extends ActOptions {
  /** The company of the transaction. */
  readonly realm?: QueueTransaction['Realm']
  readonly tags?: QueueTransaction['Tags']
}
export interface ReplayOptions<Input> extends ActOptions {
  /** The first step that runs again; the results of earlier steps are copied. Default: the first step. */
  readonly fromStep?: ReplayTransaction['fromStep']
  /** Default: the initial data of the run before. */
  readonly initialData?: Input
}

/** The transactions of one process. */
export interface ProcessClient<Input> {
  /**
   * Queues a transaction, and resolves when it is durable. The same id, data, realm and tags again are not an error, so this is
   * sent again after a lost response.
   *
   * @throws {ProblemError} `transaction_conflict` if the id is used for other data, `input_invalid`, `process_not_found`, …
   */
  queue(id: string, data: Input, options?: QueueOptions): Promise<Run>
  /** Returns the run with this number of a transaction; without `replay` its latest run. Sends nothing. */
  run(id: string, options?: { readonly replay?: number }): RunClient<Input>
}

/** One run. The actions are sent once, because a repetition could act on a changed run. */
export interface RunClient<Input> {
  /** Reads the run with its items and newest attempts. */
  get(options?: RequestOptions): Promise<RunDetail>
  /**
   * Resolves with the run when it is `Completed`. It waits as long as it takes, also while the coordinator is unavailable: limit it
   * with `AbortSignal.timeout()`.
   *
   * @throws {ProblemError} `run_failed` or `run_cancelled`, with the run; `transaction_not_found`, `unauthorized`, …
   */
  completed(options?: RequestOptions): Promise<RunDetail>
  /** Runs the transaction again, as a new run with new idempotency keys. */
  replay(options?: ReplayOptions<Input>): Promise<Run>
  /** Resumes the run, which is `Failed` or `Cancelled`, with the same idempotency keys. */
  resume(options?: ActOptions): Promise<Run>
  /** Cancels the run, whose call in flight is aborted. */
  cancel(options?: ActOptions): Promise<Run>
}

export interface RunDeps {
  /** Sends a request to the coordinator, and returns the body of the response. */
  readonly request: (request: ApiRequest) => Promise<unknown>
  readonly events: RunEvents
  /** The time between two reads while no event arrives, in milliseconds. */
  readonly rereadMs: number
  /** The time between two reads while the coordinator is unavailable, in milliseconds. */
  readonly pollMs: number
}

export interface ApiRequest extends RequestOptions {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly body?: unknown
  readonly isRepeatable: boolean
}

export function createProcessClient<Input>(process: string, deps: RunDeps): ProcessClient<Input> {
  const base = `/processes/${segment(process)}/transactions`
  return {
    async queue(id, data, { realm, tags, reason, signal } = {}) {
      const body: QueueTransaction = {
        TransactionID: id,
        InitialData: data as JsonValue,
        ...(realm !== undefined && { Realm: realm }),
        ...(tags !== undefined && { Tags: tags }),
        ...(reason !== undefined && { Reason: reason }),
      }
      const request = { method: 'POST', path: base, body, isRepeatable: true } as const
      return (await deps.request({ ...request, ...(signal && { signal }) })) as Run
    },
    run: (id, { replay } = {}) =>
      createRunClient(id, `${base}/${segment(id)}`, replay ?? null, deps),
  }
}

function createRunClient<Input>(
  id: string,
  path: string,
  replay: number | null,
  { request, events, rereadMs, pollMs }: RunDeps,
): RunClient<Input> {
  const query = replay === null ? '' : `?replay=${replay}`

  const get = async ({ signal }: RequestOptions = {}): Promise<RunDetail> =>
    (await request({
      method: 'GET',
      path: path + query,
      isRepeatable: true,
      ...(signal && { signal }),
    })) as RunDetail

  const act = async (
    action: 'replays' | 'resume' | 'cancel',
    body: ReplayTransaction,
    signal: AbortSignal | undefined,
  ): Promise<Run> =>
    (await request({
      method: 'POST',
      path: `${path}/${action}${query}`,
      body,
      isRepeatable: false,
      ...(signal && { signal }),
    })) as Run

  /** Returns the run; `null` if it cannot be read now. */
  async function read(signal: AbortSignal | undefined): Promise<RunDetail | null> {
    try {
      return await get(signal && { signal })
    } catch (error) {
      if (error instanceof ProblemError && isTemporary(error)) return null
      throw error
    }
  }

  return {
    get,
    async completed({ signal } = {}) {
      const alarm = createAlarm(signal)
      const unwatch = events.watch(id, alarm.ring)
      try {
        for (;;) {
          // Before the read, so that an event during the read is not lost.
          alarm.set()
          const run = await read(signal)
          if (run?.Status === 'Completed') return run
          if (run?.Status === 'Failed' || run?.Status === 'Cancelled') throw endedOtherwise(run)
          await alarm.rung(run === null ? pollMs : rereadMs)
        }
      } finally {
        unwatch()
      }
    },
    replay: ({ fromStep, initialData, reason, signal } = {}) =>
      act(
        'replays',
        {
          ...(fromStep !== undefined && { fromStep }),
          ...(initialData !== undefined && { InitialData: initialData as JsonValue }),
          ...reasonMember(reason),
        },
        signal,
      ),
    resume: ({ reason, signal } = {}) => act('resume', reasonMember(reason), signal),
    cancel: ({ reason, signal } = {}) => act('cancel', reasonMember(reason), signal),
  }
}

const reasonMember = (reason: string | undefined) =>
  reason === undefined ? {} : { Reason: reason }

const isTemporary = (error: ProblemError): boolean =>
  hasProblem(error, 'connection_failed') ||
  ('status' in error.problem && (error.problem.status >= 500 || error.problem.status === 429))

function endedOtherwise(run: RunDetail): ProblemError {
  const isFailed = run.Status === 'Failed'
  const name = `${run.Process}/${run.TransactionID}/${run.ReplayID}`
  return new ProblemError({
    code: isFailed ? 'run_failed' : 'run_cancelled',
    title: isFailed ? `Run ${name} failed at step ${run.StepName}` : `Run ${name} was cancelled`,
    run,
  })
}

/** A wait that others end. After `set`, `rung` resolves at the next `ring`, which may come first, or after the time. */
function createAlarm(signal: AbortSignal | undefined) {
  let { promise, resolve } = Promise.withResolvers<void>()
  return {
    ring: (): void => resolve(),
    set: (): void => void ({ promise, resolve } = Promise.withResolvers<void>()),
    async rung(ms: number): Promise<void> {
      const end = (): void => resolve()
      const late = setTimeout(end, ms)
      signal?.addEventListener('abort', end)
      if (signal?.aborted === true) end()
      await promise
      clearTimeout(late)
      signal?.removeEventListener('abort', end)
      signal?.throwIfAborted()
    },
  }
}

/**
 * Returns a text as one segment of a path.
 *
 * @throws {TypeError} for `.` and `..`, which a URL would resolve to another resource.
 */
function segment(text: string): string {
  if (['', '.', '..'].includes(text))
    throw new TypeError('an id or name must not be empty, . or ..')
  return encodeURIComponent(text)
}
