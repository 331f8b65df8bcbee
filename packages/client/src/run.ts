/** Queues the transactions of a process, waits for their runs, and acts on the runs. */
import type {
  ChildPage,
  ReplayTransaction,
  RunResponse,
  SignalResponse,
  SignalTransaction,
} from '@integration-host/shared/contracts/run'
import type {
  CreateDecisionLink,
  DecisionLink as CreatedLink,
} from '@integration-host/shared/contracts/decision'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { hasProblem, ProblemError, type RunDetail } from './problem.ts'
import { ENDED, type RunEvents } from './run-events.ts'

/** A run without its items and attempts. */
export interface Run extends RunResponse {}

/** Any value that JSON can express. */
export type JsonValue = QueueTransaction['InitialData']

/** The options of every request. */
export interface RequestOptions {
  /** Aborts the request. The promise is rejected with the reason of the signal. */
  readonly signal?: AbortSignal
}
/** The options of an action on a run. */
export interface ActOptions extends RequestOptions {
  /** The reason of the action, which is stored in the action log. */
  readonly reason?: ReplayTransaction['Reason']
}
/** The options of `queue`. */
export interface QueueOptions extends ActOptions {
  /** The company of the transaction. */
  readonly realm?: QueueTransaction['Realm']
  /** At most ten pairs of name and value, by which runs can be found. */
  readonly tags?: QueueTransaction['Tags']
  /** `high`: the run gets its turns before the others. `normal` by default. */
  readonly priority?: QueueTransaction['Priority']
  /**
   * The time before which the run does not start, at most a year ahead: a string in RFC 3339 format, or a number of
   * seconds from now.
   */
  readonly notBefore?: QueueTransaction['NotBefore']
  /**
   * Requests with the same key, process and realm start one run, with the data of the last request. The run starts
   * `Seconds` after the last request, and at most `MaxSeconds` (10 times `Seconds` by default) after the first request.
   * The promise resolves with that run.
   */
  readonly debounce?: QueueTransaction['Debounce']
  /**
   * The number of seconds for which the request waits for the end of the run, rounded up; at most 50 are used. The
   * promise resolves with the run when it has ended, also if it has failed or was cancelled; otherwise with its current
   * `Status`. `run(id).completed()` has no such limit.
   */
  readonly waitSeconds?: number
}
/** The options of `replay`. */
export interface ReplayOptions<Input> extends ActOptions {
  /** The first step that runs again. The results of earlier steps are copied. By default, all steps run again. */
  readonly fromStep?: ReplayTransaction['fromStep']
  /** The initial data of the new run; by default the initial data of the previous run. */
  readonly initialData?: Input
}

/** The options of `link`. */
export interface LinkOptions extends ActOptions {
  /** Who decides with the address: a name or an e-mail address. */
  readonly for: CreateDecisionLink['For']
  /** How long the address can be used. Default: 7 days; at most the timeout of the event. */
  readonly expiresInSeconds?: CreateDecisionLink['ExpiresInSeconds']
}
/** An address with which a person decides. */
export interface DecisionLink extends CreatedLink {}

/** The options of `signal`. */
export interface SignalOptions extends ActOptions {
  /** The id of the event. A second request with the same id gets the first event, whatever its data is. */
  readonly eventId?: SignalTransaction['EventID']
}

/** The run, and the event that its place keeps: the first one. */
export interface Signal extends SignalResponse {}

/** A child of a run. */
export interface Child extends Readonly<ChildPage['items'][number]> {}

/** Which children are read. */
export interface ChildrenOptions extends RequestOptions {
  /** The place that has started the children. Required if the run has several places with children. */
  readonly place?: string
  /** Only children with this status, or with one of these. */
  readonly status?: Child['Status'] | readonly Child['Status'][]
}

/** The transactions of one process. */
export interface ProcessClient<Input> {
  /**
   * Queues a transaction, and resolves when the transaction is stored durably; with `waitSeconds`, when its run has ended
   * or the time has elapsed. The request is repeated after a lost response, because queuing the same id, data, realm and
   * tags a second time is not an error.
   *
   * @throws {ProblemError} `transaction_conflict` if the id is used for other data, `input_invalid`,
   *   `process_not_found`, …
   */
  queue(id: string, data: Input, options?: QueueOptions): Promise<Run>
  /** Returns a client for the run with the number `replay`, or for the latest run, without sending a request. */
  run(id: string, options?: { readonly replay?: number }): RunClient<Input>
}

/**
 * A client for one run. Each action but `signal` is sent only once, because the run may have changed before a repeated
 * action arrives.
 */
export interface RunClient<Input> {
  /**
   * Reads the run with its items and newest attempts. `Children` counts its children by place, and `Parent` names the run
   * that has started it as a child.
   */
  get(options?: RequestOptions): Promise<RunDetail>
  /**
   * Waits until the run has ended, and resolves with the run if it is `Completed`. It also waits while the coordinator
   * is unavailable. `AbortSignal.timeout()` as `signal` limits the wait.
   *
   * @throws {ProblemError} `run_failed` (also if the run was undone) or `run_cancelled`, with the run; `transaction_not_found`, `unauthorized`, …
   */
  completed(options?: RequestOptions): Promise<RunDetail>
  /**
   * Yields the children that a place of the run has started, in the order of its list. Pages are read as they are needed.
   * `process(child.Process).run(child.TransactionID)` is the client of a child.
   *
   * @throws {ProblemError} `transaction_not_found`, …
   */
  children(options?: ChildrenOptions): AsyncGenerator<Child>
  /** Runs the transaction again, as a new run with new idempotency keys. */
  replay(options?: ReplayOptions<Input>): Promise<Run>
  /** Resumes a run that is `Failed` or `Cancelled`, or an undo that has failed, with the same idempotency keys. */
  resume(options?: ActOptions): Promise<Run>
  /** Undoes the finished steps of a run that is `Failed`, `Cancelled` or `Completed`, the last one first. */
  undo(options?: ActOptions): Promise<Run>
  /** Cancels the run, and aborts its call in flight. */
  cancel(options?: ActOptions): Promise<Run>
  /**
   * Sends an event to the run, such as an approval. Resolves with the event that the run keeps, which is the first one.
   * The request is repeated after a lost response, because the same event a second time is not an error.
   *
   * @throws {ProblemError} `event_already_received` with the first event, `event_not_found`, `transaction_not_active`,
   *   `input_invalid`, …
   */
  signal(name: string, data?: JsonValue, options?: SignalOptions): Promise<Signal>
  /**
   * Creates the address of the page on which a person decides about an event that has `ask`. Who has the address decides
   * as this person.
   *
   * @throws {ProblemError} `event_not_found`, `transaction_not_active`, …
   */
  link(name: string, options: LinkOptions): Promise<DecisionLink>
}

/** The number of children that are read at once. */
const CHILDREN_PER_PAGE = 200
/** The longest wait of the coordinator. */
const MAX_WAIT_SECONDS = 50

export interface RunDeps {
  /** Sends a request to the coordinator, and returns the body of the response. */
  readonly request: (request: ApiRequest) => Promise<unknown>
  readonly events: RunEvents
  /** The time between two reads of a run while no event arrives, in milliseconds. */
  readonly rereadMs: number
  /** The time between two reads of a run while the coordinator is unavailable, in milliseconds. */
  readonly pollMs: number
}

export interface ApiRequest extends RequestOptions {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly body?: unknown
  /** The number of seconds for which the service may wait before it responds (`Prefer: wait`). */
  readonly waitSeconds?: number
  readonly isRepeatable: boolean
}

export function createProcessClient<Input>(process: string, deps: RunDeps): ProcessClient<Input> {
  const base = `/processes/${segment(process)}/transactions`
  return {
    async queue(id, data, options = {}) {
      const {
        realm,
        tags,
        priority,
        notBefore,
        debounce,
        reason,
        waitSeconds = 0,
        signal,
      } = options
      const body: QueueTransaction = {
        TransactionID: id,
        InitialData: data as JsonValue,
        ...(realm !== undefined && { Realm: realm }),
        ...(tags !== undefined && { Tags: tags }),
        ...(priority !== undefined && { Priority: priority }),
        ...(notBefore !== undefined && { NotBefore: notBefore }),
        ...(debounce !== undefined && { Debounce: debounce }),
        ...(reason !== undefined && { Reason: reason }),
      }
      return (await deps.request({
        method: 'POST',
        path: base,
        body,
        waitSeconds: Math.min(Math.ceil(waitSeconds), MAX_WAIT_SECONDS),
        isRepeatable: true,
        ...(signal && { signal }),
      })) as Run
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
    action: 'replays' | 'resume' | 'undo' | 'cancel',
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

  /** Returns the run; `null` after a temporary failure. */
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
          // The alarm is armed before the run is read, so that an event that arrives during the read ends the following
          // wait immediately.
          alarm.set()
          const run = await read(signal)
          if (run?.Status === 'Completed') return run
          if (run !== null && ENDED.includes(run.Status)) throw endedOtherwise(run)
          await alarm.rung(run === null ? pollMs : rereadMs)
        }
      } finally {
        unwatch()
      }
    },
    async *children({ place, status = [], signal } = {}) {
      const parameters = new URLSearchParams(query)
      parameters.set('limit', `${CHILDREN_PER_PAGE}`)
      if (place !== undefined) parameters.set('place', place)
      for (const one of [status].flat()) parameters.append('status', one)
      for (;;) {
        const page = (await request({
          method: 'GET',
          path: `${path}/children?${parameters.toString()}`,
          isRepeatable: true,
          ...(signal && { signal }),
        })) as ChildPage
        yield* page.items
        if (page.next_after === null) return
        parameters.set('after', `${page.next_after}`)
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
    undo: ({ reason, signal } = {}) => act('undo', reasonMember(reason), signal),
    cancel: ({ reason, signal } = {}) => act('cancel', reasonMember(reason), signal),
    signal: async (name, data, { eventId, reason, signal } = {}) =>
      (await request({
        method: 'POST',
        path: `${path}/events/${segment(name)}${query}`,
        body: {
          ...(eventId !== undefined && { EventID: eventId }),
          ...(data !== undefined && { Data: data }),
          ...reasonMember(reason),
        } satisfies SignalTransaction,
        isRepeatable: true,
        ...(signal && { signal }),
      })) as Signal,
    link: async (name, { for: person, expiresInSeconds, reason, signal }) =>
      (await request({
        method: 'POST',
        path: `${path}/events/${segment(name)}/links${query}`,
        body: {
          For: person,
          ...(expiresInSeconds !== undefined && { ExpiresInSeconds: expiresInSeconds }),
          ...reasonMember(reason),
        } satisfies CreateDecisionLink,
        isRepeatable: true,
        ...(signal && { signal }),
      })) as DecisionLink,
  }
}

export const reasonMember = (reason: string | undefined) =>
  reason === undefined ? {} : { Reason: reason }

const isTemporary = (error: ProblemError): boolean =>
  hasProblem(error, 'connection_failed') ||
  ('status' in error.problem && (error.problem.status >= 500 || error.problem.status === 429))

function endedOtherwise(run: RunDetail): ProblemError {
  const isFailed = run.Status !== 'Cancelled'
  const name = `${run.Process}/${run.TransactionID}/${run.ReplayID}`
  return new ProblemError({
    code: isFailed ? 'run_failed' : 'run_cancelled',
    title: isFailed
      ? `Run ${name} ${run.Status === 'Failed' ? 'failed' : `is ${run.Status}`} at step ${run.StepName}`
      : `Run ${name} was cancelled`,
    run,
  })
}

/**
 * Creates an alarm. `set` arms it. After that, `rung` resolves as soon as `ring` has been called, or after `ms`
 * milliseconds.
 */
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
 * Returns a text as one segment of a URL path.
 *
 * @throws {TypeError} for an empty text, and for `.` and `..`, which a URL would resolve to another resource.
 */
function segment(text: string): string {
  if (['', '.', '..'].includes(text))
    throw new TypeError('an id or name must not be empty, . or ..')
  return encodeURIComponent(text)
}
