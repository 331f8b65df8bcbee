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
import { enterEvent } from './event.ts'
import { checkedInput } from '../run/input-check.ts'
import { type EnteredStep, finishedItem, outcomeOfWhen, type StepProcess } from './entered.ts'
import { perform, type StepDeps, type StepInput } from './perform-step.ts'
import type { StepOutcome } from '../run/progress.ts'
import { shortRedacted } from './redacted-step.ts'
import { readState } from './rounds.ts'
import type { AnyStep } from './step.ts'

/** Runs the step of a claimed run and returns its outcome. Never rejects. */
export async function runStep(
  handler: AnyStep,
  claim: Claim,
  process: StepProcess,
  deps: StepDeps,
): Promise<StepOutcome> {
  try {
    const entered = enter(claim, process)
    if ('kind' in entered) return entered
    const { confirm, when } = handler
    // The worker may have been lost before it recorded the skipped step, so the condition is evaluated in each attempt, even
    // in doubt. It depends only on recorded data, so its result is the same unless the definition was changed.
    if (when !== undefined && claim.round === undefined) {
      const outcome = outcomeOfWhen(when, entered, deps.settings)
      if (outcome !== null) return outcome
    }
    if (handler.event !== undefined) return enterEvent(handler.event, entered, deps.settings)
    const read = readState(claim.round, handler.state)
    if ('error' in read) {
      const error = shortRedacted(process, read.error)
      return { kind: 'failed', ...read, error, response: null, isInDoubt: claim.run.InDoubt }
    }
    const input: StepInput = { ...entered, ...read, isInDoubt: claim.run.InDoubt }
    if (claim.run.InDoubt && confirm !== undefined) {
      deps.log().info('step is in doubt: calling its confirm function')
      const { outcome, returned } = await perform(confirm, input, handler, deps)
      if (outcome !== null) return outcome
      if (returned !== 'not_done')
        return {
          ...statusNotSet('confirm ended without complete() and without not_done'),
          isInDoubt: true,
        }
      input.isInDoubt = false
    }
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
    }
  const checked = checkedInput(process.input, run.InitialData)
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

const statusNotSet = (error: string) =>
  ({ kind: 'failed', errorClass: 'status_not_set', error, response: null }) as const
