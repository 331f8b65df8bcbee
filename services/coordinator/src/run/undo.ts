/**
 * The undo of a run: its finished steps are taken back, the last one first.
 *
 * U1  A run that is undone has the status `Undoing` until it ends, also while an attempt is in flight or waits. So a
 *     replica of the release before, which does not know the status, leaves it alone.
 * U2  Nothing else is stored about the progress: what is left to undo are the items that are still `Completed` or `Copied`.
 * U3  The run begins at the step at which it has ended. A step in doubt is decided first. Its item shows which call is in
 *     doubt: without a finished item it is the call of the step, otherwise the call of its undo. So a lost worker leaves a
 *     step without a finished item no more in doubt than it was, because it can only have called `confirm`.
 * U4  A step without `undo` is left. The run names such steps when it ends.
 */
import { type FinishedItem, hasEffect } from './item.ts'
import { advance, type StepOutcome, type Transition, type TransitionOptions } from './progress.ts'
import type { ClaimedRun } from './run.ts'
import { WORKER_LOST } from './transitions.ts'

/** The error class of a run whose step is in doubt and has no `confirm`. */
export const STEP_IN_DOUBT = 'step_in_doubt'
export const STEP_IN_DOUBT_TEXT =
  'the step may have taken effect and has no confirm: settle it, then the undo goes on'

export interface UndoOptions extends TransitionOptions {
  /** The finished items of the run. */
  readonly items: readonly FinishedItem[]
  /** The steps that have an `undo`. */
  readonly undoable: readonly string[]
  /** The places at which a run waits for an event. They have no effect, so they are not named. */
  readonly events: readonly string[]
}

/** Returns the transition of a claimed run that is being undone. */
export function advanceUndo(
  run: ClaimedRun,
  outcome: StepOutcome,
  options: UndoOptions,
): Transition {
  const { mayContinue = true } = options
  if (outcome.kind === 'undone' || outcome.kind === 'left') return afterStep(run, outcome, options)
  // `confirm` has shown that the step in doubt was done, so the step is undone next.
  if (outcome.kind === 'completed')
    return {
      ...dueAt(run, run.StepName, mayContinue),
      item: { status: 'Completed', response: outcome.response, data: outcome.data, error: null },
    }
  const forward = advance(run, withoutUndo(outcome), options)
  return {
    ...forward,
    // Nothing was attempted.
    ...((forward.errorClass === STEP_IN_DOUBT || outcome.kind === 'joining') && { item: null }),
    status: forward.status === 'Failed' ? 'UndoFailed' : 'Undoing',
    isUndo: true,
  }
}

/** An undo that fails must end the run, also if it calls `fail` with `undo`. */
function withoutUndo(outcome: StepOutcome): StepOutcome {
  if (outcome.kind !== 'failed') return outcome
  const { undo: _undo, ...failure } = outcome
  return failure
}

/** Returns the transition to the step that is undone next, or to the end. */
function afterStep(
  run: ClaimedRun,
  outcome: StepOutcome & { readonly kind: 'undone' | 'left' },
  { steps, items, undoable, events, isInline = false, mayContinue = true }: UndoOptions,
): Transition {
  const isUndone = outcome.kind === 'undone'
  const names = items
    .filter((item) => hasEffect(item) && !(isUndone && item.StepName === run.StepName))
    .map(({ StepName }) => StepName)
  const next = steps.findLast((step) => names.includes(step) && undoable.includes(step))
  const due = dueAt(run, next ?? run.StepName, isUndone ? isInline : mayContinue)
  const left = names.filter((name) => !events.includes(name))
  const moved = next === undefined ? { ...due, ...endedUndo(run, left) } : due
  return isUndone
    ? {
        ...moved,
        isUndo: true,
        item: { status: 'Undone', response: outcome.response, data: null, error: null },
      }
    : { ...moved, item: null }
}

/** Why the run is undone: the error with which it has failed, as long as no undo has had an error of its own. */
const reasonOf = ({ LastError, ErrorClass, Attempt }: ClaimedRun) =>
  Attempt > 1 || ErrorClass === WORKER_LOST
    ? { lastError: null, errorClass: null }
    : { lastError: LastError, errorClass: ErrorClass }

const dueAt = (
  run: ClaimedRun,
  stepName: string,
  continues: boolean,
): Omit<Transition, 'item'> => ({
  ...reasonOf(run),
  status: 'Undoing',
  stepName,
  attempt: continues ? 1 : 0,
  delayMs: 0,
  waitingFor: null,
  isInDoubt: false,
  continues,
})

function endedUndo(
  run: ClaimedRun,
  left: readonly string[],
): Pick<Transition, 'status' | 'attempt' | 'lastError' | 'continues'> {
  const named =
    left.length === 0 ? null : `not undone, because they have no undo: ${left.join(', ')}`
  const texts = [reasonOf(run).lastError, named].filter((text) => text !== null)
  return {
    status: 'Undone',
    attempt: run.Attempt,
    continues: false,
    lastError: texts.length === 0 ? null : texts.join('; '),
  }
}
