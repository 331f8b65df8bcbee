/**
 * Derives from the outcome of a step how the run and its item change, and returns this change (the transition) as a
 * value. The other transitions of a run are in `transitions.ts`. Times are durations from now; the
 * transaction source adds them to the time of its own clock.
 */
import type { HeaderStatus, ItemStatus } from '@integration-host/shared/contracts/transaction'
import type { NewEntry } from '../entry/book-entry.ts'
import type { Round } from './item.ts'
import type { ClaimedRun } from './run.ts'
import { waitingFor, type WatchedObject } from './events.ts'
import { WAITS_FOR_RESUME } from './status.ts'
import { PAUSE_RECHECK_MS, WAITING_RECHECK_MS } from './transaction-source.ts'
import { type RetryPolicy, retryDelayMs } from './retry-policy.ts'
import type { Json } from './json-normalization.ts'
import { WAITS_FOR_CHILDREN } from './status.ts'

/**
 * What is stored about the last call of an attempt, so that an operator can find the call in the logs of the target.
 */
export interface StepCall {
  readonly method: string
  /** The URL without its user info, query and fragment, because these may contain secrets. */
  readonly url: string
  readonly traceId: string
  /** The id that the target gave to its response; `null` if there was no response, or if the response had no id. */
  readonly responseId: string | null
}

/** The response of the called service, as it is stored with the result of the step. */
export interface Response {
  readonly status: number
  readonly body: string
}

/**
 * How an attempt of a step ended. `isInDoubt` means that the attempt may have taken effect, so the next attempt calls
 * `confirm` first.
 */
export type StepOutcome =
  /**
   * The item is completed, and the next step becomes due. With `endsRun`, which `setStatus('Completed')` sets, the run
   * is completed instead.
   */
  | {
      readonly kind: 'completed'
      readonly response: Response | null
      readonly data: Json
      readonly endsRun: boolean
    }
  /** `when` has returned false. The worker keeps its lease and continues with the next step. */
  | { readonly kind: 'skipped' }
  /** The step has called `repeat`, and starts its next round after `delayMs`. */
  | {
      readonly kind: 'repeated'
      readonly response: Response | null
      readonly round: Round
      readonly delayMs: number
    }
  | {
      readonly kind: 'retry'
      readonly errorClass: string
      readonly error: string
      readonly response: Response | null
      readonly retryAfterMs: number | null
      readonly isInDoubt?: boolean
    }
  | {
      readonly kind: 'failed'
      readonly errorClass: string
      readonly error: string
      readonly response: Response | null
      readonly isInDoubt?: boolean
      /** Whether the finished steps are undone: set by `fail(reason, { undo: true })`. */
      readonly undo?: true
    }
  /** The undo of the step has ended. Its response is stored with the attempt. */
  | { readonly kind: 'undone'; readonly response: Response | null }
  /** There is nothing to undo at the step. */
  | { readonly kind: 'left' }
  /**
   * The credential is faulted (cannot be refreshed). This is not an error of the step, so the attempt is not counted.
   */
  | {
      readonly kind: 'waiting'
      readonly credential: string
      readonly error: string
      readonly isInDoubt?: boolean
    }
  /**
   * The credential is in a cool-down after a 429, so the attempt is not counted. `response` is the 429 response, or
   * `null` if the call was not sent.
   */
  | {
      readonly kind: 'held'
      readonly errorClass: string
      readonly error: string
      readonly response: Response | null
      readonly delayMs: number
      /**
       * Whether other steps already waited for this cool-down, or for the start time that they got after an earlier
       * cool-down.
       */
      readonly isRepeated?: boolean
      readonly isInDoubt?: boolean
    }
  /**
   * The provider has rejected the call for a reason that only a person can remove, such as closed books. The run waits
   * for `waitingFor` until an operator retries it, and the attempt is not counted.
   */
  | {
      readonly kind: 'blocked'
      readonly waitingFor: string
      readonly errorClass: string
      readonly error: string
      readonly response: Response
      readonly isInDoubt?: boolean
    }
  /**
   * The step starts again later, and the attempt is not counted. `error` is the reason why the run has to wait. It is
   * absent if the step has called `waitFor()` without a response to name.
   */
  | {
      readonly kind: 'later'
      readonly delayMs: number
      readonly error?: string
      readonly isInDoubt?: boolean
    }
  /**
   * The worker had to stop before the step ended, so the attempt is not counted. `noResponse` describes a call that was
   * already sent. If no call was sent, neither an item nor an attempt is stored.
   */
  | { readonly kind: 'released'; readonly noResponse?: string; readonly isInDoubt?: boolean }
  /** The company of the run is paused. The step function was not called, so nothing is stored about the attempt. */
  | { readonly kind: 'paused'; readonly realm: string }
  /**
   * The run waits here for an event, or for a change of the object `watched`, at most for `timeoutMs`; `null` means without
   * end.
   */
  | {
      readonly kind: 'parked'
      readonly timeoutMs: number | null
      readonly ask: Json
      readonly watched?: WatchedObject
    }
  /** The run has entered a place whose list has these items. The worker stores them as children, page by page. */
  | { readonly kind: 'children'; readonly list: ChildList }
  /** The run is being undone, and has got to a place that may have started children. The worker has them undone first. */
  | { readonly kind: 'undo_children' }
  /** All children are stored, or all completed ones begin to be undone: the run waits for them. */
  | { readonly kind: 'joining' }

/** The list of a place, as the process has returned it. */
export interface ChildList {
  /** The process of the children. */
  readonly process: string
  readonly items: readonly ChildItem[]
  readonly concurrent: number | null
  /** How many children may fail. */
  readonly tolerated: number
}

export interface ChildItem {
  readonly id: string
  readonly data: Json
  readonly realm: string | null
}

export interface Transition {
  readonly status: HeaderStatus
  readonly stepName: string
  readonly attempt: number
  /** Milliseconds until the step is due, or until a wait ends; `null` if the run waits without end. */
  readonly delayMs: number | null
  readonly waitingFor: string | null
  readonly lastError: string | null
  readonly errorClass: string | null
  /** Whether an earlier attempt of the due step may have taken effect. */
  readonly isInDoubt: boolean
  /**
   * Whether the worker keeps the lease and continues with the next step, instead of publishing a message for the step.
   */
  readonly continues?: boolean
  /** The last call of the attempt; absent if the attempt sent no call. */
  readonly call?: StepCall
  /** What the calls of the attempt have written to the books of a company; absent if nothing. */
  readonly entries?: readonly NewEntry[]
  /** Set if the attempt belongs to the undo of a step. */
  readonly isUndo?: true
  /**
   * The item of the step that ran. If it is `null`, neither an item nor an attempt is stored. For a skipped step, no
   * attempt is stored. For the attempt of an undo, an attempt is stored, and the item changes only its status, to
   * `Undone`.
   */
  readonly item: {
    readonly status: ItemStatus
    readonly response: Response | null
    readonly data: Json
    readonly error: string | null
    /**
     * Set if the run waits for an event: what is shown to the person who decides, or `null`. No attempt is stored then, and
     * an event that was received before is kept.
     */
    readonly ask?: Json
    /** The round that begins. In all other transitions, the item keeps its round. */
    readonly round?: Round
    /** The progress that the step has reported last; absent if it has reported none in this attempt. */
    readonly report?: Json
  } | null
}

export interface TransitionOptions {
  readonly steps: readonly string[]
  /**
   * The steps that the run has finished. If a changed definition has a finished step after the current step, the run
   * skips that step. Default: none.
   */
  readonly finished?: readonly string[]
  readonly policy: RetryPolicy
  /** A random number in [0, 1), for the jitter of retries. */
  readonly random: number
  /** Whether the same worker continues with the next step (`dispatch: 'inline'`). */
  readonly isInline?: boolean
  /** Whether the same worker continues after a skipped step. Default: true. */
  readonly mayContinue?: boolean
  /** Whether the finished steps are undone if the run fails (`onFailure: 'undo'`). */
  readonly undoesFailure?: boolean
}

/**
 * The error class of a call that was sent and got no response. A call that was never sent has the error class
 * `network`.
 */
export const NO_RESPONSE = 'no_answer'

/**
 * The error class of a run whose step has called `waitFor`. It shows that the run waits because of this call, and not
 * because of a failed attempt.
 */
const STEP_WAITS = 'step_waits'
/** The error text of such a run. */
export const WAIT_TEXT = 'the step called waitFor and starts again later'

/** After this time a blocked run starts again by itself: a year, which stands for "when an operator retries it". */
const UNTIL_RETRIED_MS = 31_536_000_000

/**
 * Returns the transition of a claimed run. `run` is the run as claimed, so its `Attempt` is the number of the attempt
 * that has ended.
 */
export function advance(
  run: ClaimedRun,
  outcome: StepOutcome,
  options: TransitionOptions,
): Transition {
  const { steps, finished = [], policy, random, isInline = false, mayContinue = true } = options
  const { undoesFailure = false } = options
  const { StepName: stepName, Attempt: attempt } = run
  const isInDoubt = 'isInDoubt' in outcome && outcome.isInDoubt
  const noError = { waitingFor: null, lastError: null, errorClass: null, isInDoubt }
  switch (outcome.kind) {
    case 'completed':
    case 'skipped': {
      const isSkipped = outcome.kind === 'skipped'
      const endsRun = !isSkipped && outcome.endsRun
      const next = endsRun
        ? undefined
        : steps.slice(steps.indexOf(stepName) + 1).find((step) => !finished.includes(step))
      const continues = isSkipped ? mayContinue : isInline
      const item: Transition['item'] = isSkipped
        ? { status: 'Skipped', response: null, data: null, error: null }
        : { status: 'Completed', response: outcome.response, data: outcome.data, error: null }
      return next === undefined
        ? { ...noError, status: 'Completed', stepName, attempt, delayMs: 0, item }
        : {
            ...noError,
            status: 'Running',
            stepName: next,
            attempt: continues ? 1 : 0,
            delayMs: 0,
            continues,
            item,
          }
    }
    case 'repeated': {
      const { response, round, delayMs } = outcome
      const item = { status: 'Running', response, data: null, error: null, round } as const
      return { ...noError, status: 'Running', stepName, attempt: 0, delayMs, item }
    }
    case 'retry': {
      const isLast = attempt >= policy.maxAttempts
      const { error, errorClass, response, retryAfterMs } = outcome
      const retrying = { waitingFor: null, lastError: error, errorClass, isInDoubt }
      const item = { response, data: null, error }
      return isLast
        ? failed(run, outcome, undoesFailure)
        : {
            ...retrying,
            status: 'Retrying',
            stepName,
            attempt,
            delayMs: retryDelayMs(attempt, policy, { random, retryAfterMs }),
            item: { ...item, status: 'Retrying' },
          }
    }
    case 'failed':
      return failed(run, outcome, undoesFailure || outcome.undo === true)
    case 'undone':
    case 'left':
      throw new Error('only a run that is being undone has this outcome')
    case 'children':
    case 'undo_children':
      throw new Error('the worker replaces this outcome')
    case 'joining':
      return {
        ...noError,
        isInDoubt: false,
        status: 'Waiting',
        stepName,
        attempt: 0,
        delayMs: null,
        waitingFor: WAITS_FOR_CHILDREN + stepName,
        item: { status: 'Waiting', response: null, data: null, error: null, ask: null },
      }
    case 'waiting':
      return {
        status: 'Waiting',
        stepName,
        attempt: attempt - 1,
        delayMs: WAITING_RECHECK_MS,
        waitingFor: outcome.credential,
        lastError: outcome.error,
        errorClass: 'credential_faulted',
        isInDoubt,
        item: { status: 'Waiting', response: null, data: null, error: outcome.error },
      }
    case 'blocked': {
      const { waitingFor: reason, error, errorClass, response } = outcome
      return {
        status: 'Waiting',
        stepName,
        attempt: attempt - 1,
        delayMs: UNTIL_RETRIED_MS,
        waitingFor: reason,
        lastError: error,
        errorClass,
        isInDoubt,
        item: { status: 'Waiting', response, data: null, error },
      }
    }
    case 'paused':
      return {
        status: 'Waiting',
        stepName,
        attempt: attempt - 1,
        delayMs: PAUSE_RECHECK_MS,
        waitingFor: WAITS_FOR_RESUME + outcome.realm,
        lastError: run.LastError,
        errorClass: run.ErrorClass,
        isInDoubt: run.InDoubt,
        item: null,
      }
    case 'held': {
      const { delayMs, error, errorClass, response } = outcome
      return {
        status: 'Retrying',
        stepName,
        attempt: attempt - 1,
        delayMs,
        waitingFor: null,
        lastError: error,
        errorClass,
        isInDoubt,
        item: response === null ? null : { status: 'Retrying', response, data: null, error },
      }
    }
    case 'later':
      return {
        ...noError,
        lastError: outcome.error ?? WAIT_TEXT,
        errorClass: STEP_WAITS,
        status: 'Retrying',
        stepName,
        attempt: attempt - 1,
        delayMs: outcome.delayMs,
        item: null,
      }
    case 'parked':
      return {
        ...noError,
        isInDoubt: false,
        status: 'Waiting',
        stepName,
        attempt: 0,
        delayMs: outcome.timeoutMs,
        waitingFor: waitingFor({
          kind: outcome.watched === undefined ? 'event' : 'change',
          place: stepName,
        }),
        item: { status: 'Waiting', response: null, data: null, error: null, ask: outcome.ask },
      }
    case 'released': {
      const { noResponse } = outcome
      return {
        waitingFor: null,
        lastError: noResponse ?? run.LastError,
        errorClass: noResponse === undefined ? run.ErrorClass : NO_RESPONSE,
        isInDoubt,
        status: dueStatus(stepName, attempt - 1, steps),
        stepName,
        attempt: attempt - 1,
        delayMs: 0,
        item:
          noResponse === undefined
            ? null
            : { status: 'Retrying', response: null, data: null, error: noResponse },
      }
    }
  }
}

const failed = (
  { StepName: stepName, Attempt: attempt }: ClaimedRun,
  {
    error,
    errorClass,
    response,
    isInDoubt = false,
  }: Pick<StepOutcome & { kind: 'failed' }, 'error' | 'errorClass' | 'response' | 'isInDoubt'>,
  isUndone: boolean,
): Transition => ({
  ...(isUndone ? { status: 'Undoing', attempt: 0 } : { status: 'Failed', attempt }),
  stepName,
  delayMs: 0,
  waitingFor: null,
  lastError: error,
  errorClass,
  isInDoubt,
  item: { status: 'Failed', response, data: null, error },
})

/**
 * Returns the status of a run after an attempt that is not counted. The status depends on whether the due step was
 * attempted before.
 */
function dueStatus(stepName: string, attempt: number, steps: readonly string[]): HeaderStatus {
  if (attempt > 0) return 'Retrying'
  return stepName === steps[0] ? 'Queued' : 'Running'
}
