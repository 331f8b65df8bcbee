/**
 * The transitions of a run as pure decisions: what a step came to, and what becomes of its run and item.
 * Times are distances from now; the source adds its own clock.
 */
import type { HeaderStatus, ItemStatus } from '@integration-host/shared/contracts/transaction'
import type { Run } from '../transaction/run.ts'
import { WAITING_RECHECK_MS } from '../transaction/transaction-source.ts'
import { type RetryPolicy, retryDelayMs } from './retry-policy.ts'
import type { Json } from './json-normalization.ts'

/** What a target answered, as it is kept with the item. */
export interface Response {
  readonly status: number
  readonly body: string
}

/**
 * `isInDoubt`: an attempt may have done the step's work, and nobody knows; the next one asks `confirm` first.
 */
export type StepOutcome =
  /** The item is done, on to the next step; `endsRun` completes the run as well (`setStatus('Completed')`). */
  | {
      readonly kind: 'completed'
      readonly response: Response | null
      readonly data: Json
      readonly endsRun: boolean
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
    }
  /** A credential is faulted: nobody's fault here, so no attempt is charged. */
  | {
      readonly kind: 'waiting'
      readonly credential: string
      readonly error: string
      readonly isInDoubt?: boolean
    }
  /**
   * Its credential rests after a 429: no attempt is charged. With the `response` of the call that was told so,
   * null for one that was not sent.
   */
  | {
      readonly kind: 'held'
      readonly errorClass: string
      readonly error: string
      readonly response: Response | null
      readonly delayMs: number
      readonly isInDoubt?: boolean
    }
  /** The step asked to be run anew later; no attempt is charged. */
  | { readonly kind: 'later'; readonly delayMs: number; readonly isInDoubt?: boolean }
  /**
   * The worker had to stop: the attempt is given back. `noAnswer` tells of a call that had left; without it
   * there is no trace.
   */
  | { readonly kind: 'released'; readonly noAnswer?: string; readonly isInDoubt?: boolean }

export interface Transition {
  readonly status: HeaderStatus
  readonly stepName: string
  readonly attempt: number
  /** Until the step is due; 0 is now. */
  readonly delayMs: number
  readonly waitingFor: string | null
  readonly lastError: string | null
  readonly errorClass: string | null
  /** Whether the step that is due may have been done by an earlier attempt. */
  readonly isInDoubt: boolean
  /** The worker keeps the lease and goes on with the step that is due now. */
  readonly continues?: boolean
  /** The item of the step that ran; null leaves no trace. */
  readonly item: {
    readonly status: ItemStatus
    readonly response: Response | null
    readonly data: Json
    readonly error: string | null
  } | null
}

export interface Course {
  readonly steps: readonly string[]
  readonly policy: RetryPolicy
  /** In [0, 1). */
  readonly random: number
  /** Whether the worker goes on with the next step itself. */
  readonly isInline?: boolean
}

/** The error class of a call that left and got no answer. One that never left is `network`. */
export const NO_ANSWER = 'no_answer'

/** Decides what becomes of a claimed run. `run` is as claimed: its `Attempt` counts the one that ended. */
export function advance(run: Run, outcome: StepOutcome, course: Course): Transition {
  const { steps, policy, random, isInline = false } = course
  const { StepName: stepName, Attempt: attempt } = run
  const isInDoubt = outcome.kind !== 'completed' && outcome.isInDoubt === true
  const calm = { waitingFor: null, lastError: null, errorClass: null, isInDoubt }
  switch (outcome.kind) {
    case 'completed': {
      const next = outcome.endsRun ? undefined : steps[steps.indexOf(stepName) + 1]
      const item = {
        status: 'Completed' as const,
        response: outcome.response,
        data: outcome.data,
        error: null,
      }
      return next === undefined
        ? { ...calm, status: 'Completed', stepName, attempt, delayMs: 0, item }
        : {
            ...calm,
            status: 'Running',
            stepName: next,
            attempt: isInline ? 1 : 0,
            delayMs: 0,
            continues: isInline,
            item,
          }
    }
    case 'retry': {
      const isLast = attempt >= policy.maxAttempts
      const { error, errorClass, response, retryAfterMs } = outcome
      const told = { waitingFor: null, lastError: error, errorClass, isInDoubt }
      const item = { response, data: null, error }
      return isLast
        ? failed(run, outcome)
        : {
            ...told,
            status: 'Retrying',
            stepName,
            attempt,
            delayMs: retryDelayMs(attempt, policy, { random, retryAfterMs }),
            item: { ...item, status: 'Retrying' },
          }
    }
    case 'failed':
      return failed(run, outcome)
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
        ...calm,
        status: 'Retrying',
        stepName,
        attempt: attempt - 1,
        delayMs: outcome.delayMs,
        item: null,
      }
    case 'released': {
      const { noAnswer } = outcome
      return {
        waitingFor: null,
        lastError: noAnswer ?? run.LastError,
        errorClass: noAnswer === undefined ? run.ErrorClass : NO_ANSWER,
        isInDoubt,
        status: restingStatus(stepName, attempt - 1, steps),
        stepName,
        attempt: attempt - 1,
        delayMs: 0,
        item:
          noAnswer === undefined
            ? null
            : { status: 'Retrying', response: null, data: null, error: noAnswer },
      }
    }
  }
}

const failed = (
  { StepName: stepName, Attempt: attempt }: Run,
  {
    error,
    errorClass,
    response,
    isInDoubt = false,
  }: Pick<StepOutcome & { kind: 'failed' }, 'error' | 'errorClass' | 'response' | 'isInDoubt'>,
): Transition => ({
  status: 'Failed',
  stepName,
  attempt,
  delayMs: 0,
  waitingFor: null,
  lastError: error,
  errorClass,
  isInDoubt,
  item: { status: 'Failed', response, data: null, error },
})

/** The status of a run that is due and that nobody has in hand. */
function restingStatus(stepName: string, attempt: number, steps: readonly string[]): HeaderStatus {
  if (attempt > 0) return 'Retrying'
  return stepName === steps[0] ? 'Queued' : 'Running'
}
