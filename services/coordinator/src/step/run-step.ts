/**
 * Runs a step function and derives the outcome of the step from what the function does.
 *
 * O1  The first call that ends the step (a failed `execute`, `fail`, `waitFor`) decides the outcome. Code that the step
 *     runs afterwards can neither change the outcome nor send a call.
 * O2  A step is retried if its function throws an error, and fails if its function returns without a status.
 * O3  A step is in doubt from the moment at which a call is sent until the effect of the call is known. The effect is
 *     known when the target has rejected the call, when the response shows the effect, or when `confirm` reports that
 *     the call had no effect.
 * O4  An error that the code of the step does not handle (a promise that nothing awaits, the callback of a timer) fails
 *     its own attempt, at the latest one turn of the event loop after the function has returned. A later error changes
 *     nothing and is logged.
 */
import type { Claim } from '../run/transaction-source.ts'
import { enterChange } from './change-place.ts'
import { enterForEach } from './children-place.ts'
import { enterEvent } from './event.ts'
import { checkedInput } from '../run/input-check.ts'
import { type EnteredStep, finishedItem, outcomeOfWhen, type StepProcess } from './entered.ts'
import { perform, type StepDeps, type StepInput } from './perform-step.ts'
import type { StepOutcome } from '../run/progress.ts'
import { shortRedacted } from './redacted-step.ts'
import { readState } from './rounds.ts'
import { hasEffect } from '../run/item.ts'
import { STEP_IN_DOUBT, STEP_IN_DOUBT_TEXT } from '../run/undo.ts'
import type { AnyStep } from './step.ts'

/** Runs the step of a claimed run and returns its outcome. Never rejects. */
export async function runStep(
  handler: AnyStep,
  claim: Claim,
  process: StepProcess,
  deps: StepDeps,
): Promise<StepOutcome> {
  try {
    if (claim.run.Status === 'Undoing') return await undoStep(handler, claim, process, deps)
    const entered = enter(claim, process)
    if ('kind' in entered) return entered
    const { confirm, when } = handler
    // The worker may have been lost before it recorded the skipped step, so the condition is evaluated in each attempt, even
    // in doubt. It depends only on recorded data, so its result is the same unless the definition was changed.
    if (when !== undefined && claim.round === undefined) {
      const outcome = outcomeOfWhen(when, entered, deps.settings)
      if (outcome !== null) return outcome
    }
    if (handler.forEach !== undefined) return enterForEach(handler.forEach, entered, deps.settings)
    if (handler.event?.change !== undefined)
      return enterChange(handler.event, handler.event.change, entered, deps.settings)
    if (handler.event !== undefined) return enterEvent(handler.event, entered, deps.settings)
    const input = withState(entered, handler)
    if ('kind' in input) return input
    const confirmed = await confirmDoubt(confirm, input, handler, deps)
    if (confirmed !== null) return confirmed
    const { outcome } = await perform(handler, input, handler, deps)
    return outcome ?? statusNotSet('the step ended without a call and without a status')
  } catch {
    return {
      kind: 'retry',
      errorClass: 'step_threw',
      // The text is constant, because the error may come from reading the members of the thrown value.
      error: 'what the step threw or returned cannot be read',
      response: null,
      retryAfterMs: null,
      // The step is in doubt, because it may have sent its call before this error.
      isInDoubt: true,
    }
  }
}

/**
 * Undoes the step of a run that is being undone, or decides first whether the step was done (rule U3 in run/undo.ts).
 * The outcome is `left` if there is nothing to undo.
 */
async function undoStep(
  handler: AnyStep,
  claim: Claim,
  process: StepProcess,
  deps: StepDeps,
): Promise<StepOutcome> {
  const { StepName, InDoubt } = claim.run
  const item = finishedItem(claim, StepName)
  // The children of a run that has failed here were started, although the place is not finished.
  if (handler.forEach !== undefined) return { kind: 'undo_children' }
  if (item === undefined) {
    if (!InDoubt || handler.event !== undefined) return { kind: 'left' }
    if (handler.confirm === undefined)
      return {
        kind: 'failed',
        errorClass: STEP_IN_DOUBT,
        error: STEP_IN_DOUBT_TEXT,
        response: null,
        isInDoubt: true,
      }
  } else if (!hasEffect(item) || handler.undo === undefined) return { kind: 'left' }
  const entered = enter(claim, process)
  if ('kind' in entered) return entered
  if (item === undefined || handler.undo === undefined) {
    const input = withState(entered, handler)
    if ('kind' in input) return input
    return (await confirmDoubt(handler.confirm, input, handler, deps)) ?? { kind: 'left' }
  }
  const undo = typeof handler.undo === 'function' ? { run: handler.undo } : handler.undo
  const input: StepInput = { ...entered, state: undefined, isInDoubt: InDoubt, isUndo: true }
  const outcome =
    (await confirmDoubt(undo.confirm, input, {}, deps)) ??
    (await perform(undo.run, input, {}, deps)).outcome ??
    statusNotSet('the undo ended without a call and without a status')
  return outcome.kind === 'completed' ? { kind: 'undone', response: outcome.response } : outcome
}

/** Returns the argument of a step, with the state of its round. If the state is not valid, returns the outcome. */
function withState(entered: EnteredStep, { state }: AnyStep): StepInput | StepOutcome {
  const { process, claim } = entered
  const isInDoubt = claim.run.InDoubt
  if (claim.round === undefined) return { ...entered, state: undefined, isInDoubt }
  const read = readState(claim.round, state)
  if (!('error' in read)) return { ...entered, ...read, isInDoubt }
  const error = shortRedacted(process, read.error)
  return { kind: 'failed', ...read, error, response: null, isInDoubt }
}

/**
 * Calls `confirm` if the call is in doubt. Returns `null` if it has to be made (again), which is also the case without
 * `confirm`.
 */
async function confirmDoubt(
  confirm: AnyStep['confirm'],
  input: StepInput,
  rounds: Pick<AnyStep, 'state' | 'maxRounds'>,
  deps: StepDeps,
): Promise<StepOutcome | null> {
  if (!input.isInDoubt || confirm === undefined) return null
  deps.log().info('step is in doubt: calling its confirm function')
  const { outcome, returned } = await perform(confirm, input, rounds, deps)
  if (outcome !== null) return outcome
  if (returned !== 'not_done')
    return {
      ...statusNotSet('confirm ended without complete() and without not_done'),
      isInDoubt: true,
    }
  input.isInDoubt = false
  return null
}

/** Returns what is known of the run when it enters its step. If the step cannot start, returns the outcome of the step. */
function enter(claim: Claim, process: StepProcess): EnteredStep | StepOutcome {
  const { stepNames } = process
  const { run } = claim
  const before = stepNames[stepNames.indexOf(run.StepName) - 1]
  // The item of the preceding step is missing if another program has inserted the row of this run and has set a later
  // step in it.
  if (before !== undefined && finishedItem(claim, before) === undefined)
    return {
      kind: 'failed',
      errorClass: 'step_before_missing',
      error: `the step ${before} before this one was never finished`,
      response: null,
      isInDoubt: run.InDoubt,
    }
  const checked =
    process.input === null
      ? { input: run.InitialData }
      : checkedInput(process.input, run.InitialData)
  if ('problems' in checked)
    return {
      kind: 'failed',
      errorClass: 'input_invalid',
      error: shortRedacted(
        process,
        `the initial data is not valid: ${checked.problems.join('; ')}`,
      ),
      response: null,
      isInDoubt: run.InDoubt,
    }
  return { process, claim, before, initialData: checked.input }
}

const WHAT_ENDS =
  'return the result of execute, complete, setStatus, waitFor or repeat in each branch, or call fail'

const statusNotSet = (error: string) =>
  ({
    kind: 'failed',
    errorClass: 'status_not_set',
    error: `${error}: ${WHAT_ENDS}`,
    response: null,
  }) as const
