import { CODE_ERRORS } from '../step/perform-step.ts'
import type { StepOutcome } from '../run/progress.ts'
import type { AbortReason } from '../step/step-abort.ts'

/**
 * Returns the outcome to record for a step that may have been aborted. `'abandoned'` means that the step ignored its
 * abort signal. Returns `null` if the lease was lost, because then no outcome can be recorded.
 */
export function applyAbortReason(
  outcome: StepOutcome | 'abandoned',
  reason: AbortReason | null,
): StepOutcome | null {
  if (reason === null) return outcome === 'abandoned' ? { kind: 'released' } : outcome
  const isDecided = outcome !== 'abandoned' && outcome.kind !== 'released' && !isThrown(outcome)
  // A step that ignored its abort signal counts as in doubt, because its call may have been sent or may still be sent.
  const isInDoubt = outcome === 'abandoned' || ('isInDoubt' in outcome && outcome.isInDoubt)
  switch (reason) {
    case 'lease_lost':
      return null
    case 'shutdown':
      if (isDecided) return outcome
      return outcome !== 'abandoned' && outcome.kind === 'released'
        ? outcome
        : { kind: 'released', isInDoubt }
    case 'timeout':
      return isDecided
        ? outcome
        : {
            kind: 'retry',
            errorClass: 'step_timeout',
            error: 'the step took longer than it may',
            response: null,
            retryAfterMs: null,
            isInDoubt,
          }
  }
}

// Whether the code of the step has failed. After an abort, such an error is not a failure of the step, because a step also
// throws when its abort signal ends an operation of the step.
const isThrown = (outcome: StepOutcome): boolean =>
  outcome.kind === 'retry' && CODE_ERRORS.has(outcome.errorClass)
