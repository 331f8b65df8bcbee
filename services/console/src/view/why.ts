/**
 * Says in a sentence why a run is in its state, and what a person can do about a failure. The list of runs and the page
 * of a run use the same sentences.
 */
import {
  providerErrorOf,
  providerRemedy,
} from '@integration-host/shared/provider-profile/provider-fault'
import { readWaitingFor, type RunResponse } from '@integration-host/shared/contracts/run'
import type { RunAction } from '../contracts/runs.ts'
import { asksAgain } from '../isomorphic/texts.ts'
import { failureRemedy, meaningOf } from './error-class.ts'

export type ExplainedRun = Pick<
  RunResponse,
  | 'Status'
  | 'StepName'
  | 'Attempt'
  | 'ErrorClass'
  | 'LastError'
  | 'WaitingFor'
  | 'InDoubt'
  | 'NextAttemptAt'
>

export interface RunContext {
  /** The name of the company that the run waits for; absent if it has no name. */
  readonly company?: string | undefined
  /** Whether this company must be reconnected, so that the run does not continue before. */
  readonly mustReconnect?: boolean
  /** Whether the process of the run is paused. */
  readonly isPaused?: boolean
}

/** What runs wait for at a place, by the kind of the place. */
const PLACES: Readonly<Record<string, string>> = {
  event: 'event',
  change: 'change in the books',
  children: 'children of its place',
  turn: 'turn of the children at',
}

/** Returns one or two sentences about the state of a run; an empty text for a completed run. */
export function whyOf(run: ExplainedRun, context: RunContext = {}): string {
  const sentence =
    context.isPaused === true && isDue(run)
      ? `Waits at ${run.StepName}, because its process is paused. It continues when the process is resumed.`
      : stateSentence(run, context)
  return run.InDoubt && run.Status !== 'Completed'
    ? `${sentence} The last call may have done its work: look into the target first.`
    : sentence
}

/** Whether the step of a run is due now or soon, and no worker has claimed it. */
const isDue = ({ Status, Attempt }: ExplainedRun): boolean =>
  Status === 'Queued' || Status === 'Retrying' || (Status === 'Running' && Attempt === 0)

/**
 * Returns the cause of the state of a run in a few words, for a row that already shows the status and the step; an empty
 * text if the status says everything.
 */
export function causeOf(run: ExplainedRun, context: RunContext = {}): string {
  const { Status } = run
  if (['Completed', 'Cancelled', 'Undone'].includes(Status)) return ''
  if (Status === 'Failed' || Status === 'UndoFailed')
    return capitalized(providerErrorOf(run) ?? becauseOf(run))
  const sentence = whyOf({ ...run, InDoubt: false }, context)
  const at = sentence.indexOf(BECAUSE)
  const [cause = ''] = at === -1 ? [sentence] : sentence.slice(at + BECAUSE.length).split('. ', 1)
  return capitalized(
    cause
      .replace('the provider responded with ', '')
      .split(/, (?:which|whose) /, 1)
      .join('')
      .replace(/\.$/, ''),
  )
}

const BECAUSE = ', because '
const capitalized = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1)

/** Returns why the last attempt of a run has failed; an empty text if none has. */
function becauseOf(run: ExplainedRun): string {
  const providerError = providerErrorOf(run)
  if (providerError !== null) return `the provider responded with ${providerError}`
  return run.ErrorClass === null ? '' : meaningOf(run.ErrorClass).cause
}

function stateSentence(run: ExplainedRun, { company, mustReconnect = false }: RunContext): string {
  const { Status, StepName, Attempt, ErrorClass, WaitingFor, NextAttemptAt } = run
  const waiting = readWaitingFor(WaitingFor)
  const providerError = providerErrorOf(run)
  const because = becauseOf(run)
  switch (Status) {
    case 'Queued':
      return `Waits for its turn at ${StepName}.`
    case 'Running':
      // A step that repeats has chosen when its next round begins.
      if (Attempt === 0 && NextAttemptAt !== null)
        return `Waits for the next round of ${StepName}, which begins by itself.`
      // The step is due, but no worker has claimed it.
      if (Attempt === 0) return `Waits for its turn at ${StepName}.`
      // A claim does not remove the error class of the attempt before it.
      if (because !== '') return `Runs ${StepName}: attempt ${Attempt}, after ${because}.`
      return Attempt > 1 ? `Runs ${StepName}: attempt ${Attempt}.` : `Runs ${StepName}.`
    case 'Retrying':
      if (asksAgain({ Status, ErrorClass }))
        return `Waits at ${StepName}, which asks again by itself.`
      return because === ''
        ? `Runs ${StepName} again soon.`
        : `Waits for the next attempt of ${StepName}, because ${because}. It is made by itself.`
    case 'Waiting':
      if (waiting?.kind === 'paused')
        return `Waits before ${StepName}, because ${company ?? `the company ${waiting.name}`} is paused. It continues when the company is resumed.`
      if (waiting?.kind === 'books')
        return `Waits at ${StepName}, because ${because}. ${providerRemedy(providerError) ?? failureRemedy(ErrorClass)}`
      return PLACES[waiting?.kind ?? ''] !== undefined
        ? `Waits for the ${PLACES[waiting?.kind ?? '']} ${waiting?.name}.`
        : WaitingFor === 'concurrency'
          ? 'Waits for a slot: the process limits how many runs are in progress.'
          : WaitingFor === null
            ? `Waits at ${StepName}.`
            : mustReconnect
              ? `Waits for ${company ?? WaitingFor}, which must be reconnected. Then the run continues by itself, at once.`
              : `Waits for ${company ?? WaitingFor}, whose access token cannot be obtained now. The page of the company says what helps; then the run continues by itself.`
    case 'Completed':
      return ''
    case 'Failed':
      return because === ''
        ? `Failed at ${StepName}. ${failureRemedy(null)}`
        : `Failed at ${StepName}: ${because}. ${providerRemedy(providerError) ?? failureRemedy(ErrorClass)}`
    case 'Cancelled':
      return `Cancelled at ${StepName}.`
    case 'Undoing':
      return WaitingFor === null
        ? `Takes back what its completed steps have done: now ${StepName}.`
        : waiting?.kind === 'paused'
          ? `Takes back what its completed steps have done. The undo of ${StepName} waits, because ${company ?? `the company ${waiting.name}`} is paused.`
          : waiting?.kind === 'children'
            ? `Takes back what its completed steps have done. First the children of ${StepName} are undone.`
            : waiting?.kind === 'books'
              ? `Takes back what its completed steps have done. The undo of ${StepName} waits, because ${because}. Have the period opened, then retry it.`
              : `Takes back what its completed steps have done. The undo of ${StepName} waits for ${company ?? WaitingFor}.`
    case 'Undone':
      return 'What its completed steps have done was taken back.'
    case 'UndoFailed':
      return because === ''
        ? `Its steps could not all be undone: stopped at ${StepName}. ${UNDO_GOES_ON}`
        : `Its steps could not all be undone: stopped at ${StepName}, because ${because}. ${UNDO_GOES_ON}`
    default: // a status of a later release
      return ''
  }
}

const UNDO_GOES_ON = 'Resume it, and the undo goes on.'

export type ActionableRun = Pick<
  RunResponse,
  'Status' | 'InDoubt' | 'NotBefore' | 'PurgedAt' | 'ErasedAt' | 'ReplayID' | 'WaitingFor'
>

/** Returns the actions that are not possible for a run, each with the reason. `latest` is the latest run of its transaction. */
export function blockedActions(
  run: ActionableRun,
  latest: number,
): Readonly<Partial<Record<RunAction, string>>> {
  const { Status, InDoubt } = run
  const isActive = ['Queued', 'Running', 'Retrying', 'Waiting', 'Undoing'].includes(Status)
  const isGone = run.PurgedAt !== null || run.ErasedAt !== null
  const gone = 'The data of this run has been removed.'
  const ended = 'The run has ended.'
  const outdated = `Run ${latest} is newer.`
  const blocked: Partial<Record<RunAction, string>> = {}
  if (isGone) blocked.resume = gone
  else if (run.ReplayID !== latest) blocked.resume = outdated
  else if (isActive) blocked.resume = 'The run has not ended.'
  else if (Status === 'Completed') blocked.resume = 'The run is completed. Replay it instead.'
  else if (Status === 'Undone') blocked.resume = 'The run is undone. Replay it instead.'
  if (isGone) blocked.undo = gone
  else if (run.ReplayID !== latest) blocked.undo = outdated
  else if (isActive) blocked.undo = 'The run has not ended. Cancel it first.'
  else if (Status === 'Undone') blocked.undo = 'The run is undone.'
  else if (Status === 'UndoFailed') blocked.undo = 'The undo has begun. Resume it instead.'
  if (isGone) blocked.replay = gone
  else if (run.ReplayID !== latest) blocked.replay = outdated
  else if (isActive) blocked.replay = 'The run has not ended. Cancel it first.'
  if (!isActive) blocked.cancel = ended
  if (!isActive) blocked.retry = ended
  else if (!['Retrying', 'Waiting', 'Undoing'].includes(Status) && run.NotBefore === null)
    blocked.retry = 'The run waits for no attempt.'
  else if (PLACES[readWaitingFor(run.WaitingFor)?.kind ?? ''] !== undefined)
    blocked.retry = 'The run waits for an event, a change, its children or its turn.'
  if (!InDoubt) blocked.settle = 'Nothing is in doubt.'
  return blocked
}
