/**
 * Says in a sentence why a run is in its state, and what a person can do about a failure. The list of runs and the page
 * of a run use the same sentences.
 */
import type { RunResponse } from '@integration-host/shared/contracts/run'
import type { RunAction } from '../contracts/runs.ts'

export type ExplainedRun = Pick<
  RunResponse,
  'Status' | 'StepName' | 'ErrorClass' | 'WaitingFor' | 'InDoubt' | 'LastError'
>

/** The meanings of the coordinator's error classes. The classes `http_…` have a separate function. */
const CLASSES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    network: 'the target could not be reached',
    no_answer: 'the target gave no response',
    step_timeout: 'the step took too long',
    status_not_set: 'the code of the step ended without an outcome',
    step_threw: 'the code of the step threw an error',
    step_failed: 'the code of the step reported a failure',
    response_invalid: 'the code of the step did not accept the response',
    response_too_large: 'the response is too large to be stored',
    realm_missing: 'the run has no company, but the step calls one',
    change_feed_rejected: 'the provider rejects the request for changes',
    step_unknown: 'the process has no such step any more',
    step_before_missing: 'a step before it was never completed',
    transaction_id_invalid: 'the id cannot be used for a call',
    credential_faulted: 'the company cannot be used now',
    credential_held: 'the provider asked the company to slow down',
    provider_fault: 'the provider reported a fault',
    deadline_exceeded: 'the time limit of the run is over',
    step_waits: 'the step asked to be run again later',
  }),
)

function causeOf(errorClass: string): string {
  const status = /^http_(\d{3})$/.exec(errorClass)?.[1]
  return status === undefined
    ? (CLASSES.get(errorClass) ?? errorClass.replaceAll('_', ' '))
    : `the target responded with ${status}`
}

/**
 * The error classes that say that the data of a run cannot be used, each with its remedy. The classes `http_4…`, except
 * `http_429`, say the same, but are not in this map.
 */
const DATA_REJECTED: ReadonlyMap<string, string> = new Map(
  Object.entries({
    input_invalid: 'Queue a copy with corrected data.',
    provider_fault: 'Queue a copy with changed data, or fix the data at the provider and resume.',
    realm_foreign: 'Queue a copy for the other company, or correct the step and resume.',
    realm_missing: 'Queue a copy with its company.',
    transaction_id_invalid: 'Queue a copy under another id.',
  }),
)

/**
 * Whether the target or the coordinator rejected the data of the run. Another attempt sends the same data, so a copy
 * with changed data is the first thing to try.
 */
export const isDataRejected = (errorClass: string | null): boolean =>
  errorClass !== null && (/^http_4(?!29)/.test(errorClass) || DATA_REJECTED.has(errorClass))

/** Returns a sentence that says what a person should do about a run that failed with this error class. */
export function failureRemedy(errorClass: string | null): string {
  if (errorClass === null) return 'Look at the error, then resume.'
  const dataRemedy = DATA_REJECTED.get(errorClass)
  if (dataRemedy !== undefined) return dataRemedy
  if (isDataRejected(errorClass))
    return 'The same data is rejected again. Queue a copy with changes, or fix the target and resume.'
  if (
    /^http_(5|429)/.test(errorClass) ||
    ['network', 'no_answer', 'step_timeout'].includes(errorClass)
  )
    return 'Fix the target, then resume: the same idempotency keys are sent again.'
  if (errorClass.startsWith('http_3'))
    return 'Another attempt will not help, because redirects are not followed. Fix the call, then resume.'
  if (errorClass === 'change_feed_rejected')
    return 'Look at the error. The next sweep reads the same changes.'
  if (errorClass === 'step_unknown') return 'Deploy the process with this step, then resume.'
  if (errorClass === 'deadline_exceeded') return 'Replay it if it must still be done.'
  if (errorClass.startsWith('provider_')) return 'Fix the data at the provider, then resume.'
  return 'Fix the code of the step, deploy it, then resume.'
}

/**
 * Returns one or two sentences about the state of a run; an empty text for a completed run. `company` is the name of the
 * company that the run waits for, if it has a name.
 */
export function whyOf(run: ExplainedRun, company?: string): string {
  const sentence = stateSentence(run, company)
  return run.InDoubt && run.Status !== 'Completed'
    ? `${sentence} The last call may have done its work: look into the target first.`
    : sentence
}

function stateSentence(
  { Status, StepName, ErrorClass, WaitingFor }: ExplainedRun,
  company: string | undefined,
): string {
  const because = ErrorClass === null ? '' : causeOf(ErrorClass)
  switch (Status) {
    case 'Queued':
      return `Waits for its turn at ${StepName}.`
    case 'Running':
      return `Runs ${StepName}.`
    case 'Retrying':
      return because === ''
        ? `Runs ${StepName} again soon.`
        : `Waits for the next attempt of ${StepName}, because ${because}. It is made by itself.`
    case 'Waiting':
      return WaitingFor === 'concurrency'
        ? 'Waits for a slot: the process limits how many runs are in progress.'
        : WaitingFor === null
          ? `Waits at ${StepName}.`
          : `Waits for ${company ?? WaitingFor}, whose access token cannot be obtained now. The page of the company says what helps; then the run continues by itself.`
    case 'Completed':
      return ''
    case 'Failed':
      return because === ''
        ? `Failed at ${StepName}. ${failureRemedy(null)}`
        : `Failed at ${StepName}: ${because}. ${failureRemedy(ErrorClass)}`
    case 'Cancelled':
      return `Cancelled at ${StepName}.`
  }
}

export type ActionableRun = Pick<
  RunResponse,
  'Status' | 'InDoubt' | 'NotBefore' | 'PurgedAt' | 'ErasedAt' | 'ReplayID'
>

/** Returns the actions that are not possible for a run, each with the reason. `latest` is the latest run of its transaction. */
export function blockedActions(
  run: ActionableRun,
  latest: number,
): Readonly<Partial<Record<RunAction, string>>> {
  const { Status, InDoubt } = run
  const isActive = ['Queued', 'Running', 'Retrying', 'Waiting'].includes(Status)
  const isGone = run.PurgedAt !== null || run.ErasedAt !== null
  const gone = 'The data of this run has been removed.'
  const ended = 'The run has ended.'
  const outdated = `Run ${latest} is newer.`
  const blocked: Partial<Record<RunAction, string>> = {}
  if (isGone) blocked.resume = gone
  else if (run.ReplayID !== latest) blocked.resume = outdated
  else if (isActive) blocked.resume = 'The run has not ended.'
  else if (Status === 'Completed') blocked.resume = 'The run is completed. Replay it instead.'
  if (isGone) blocked.replay = gone
  else if (run.ReplayID !== latest) blocked.replay = outdated
  else if (isActive) blocked.replay = 'The run has not ended. Cancel it first.'
  if (!isActive) blocked.cancel = ended
  if (!isActive) blocked.retry = ended
  else if (Status !== 'Retrying' && Status !== 'Waiting' && run.NotBefore === null)
    blocked.retry = 'The run waits for no attempt.'
  if (!InDoubt) blocked.settle = 'Nothing is in doubt.'
  return blocked
}
