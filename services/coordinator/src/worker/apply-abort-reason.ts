import type { StepOutcome } from '../process/progress.ts'
import type { AbortReason } from '../process/step-abort.ts'

/**
 * Returns the outcome to record for a step that may have been aborted. The value `'abandoned'` stands for a
 * step that ignored its abort signal. Returns `null` if the lease was lost, because then no outcome can be
 * recorded.
 */
export function applyAbortReason(
  outcome: StepOutcome | 'abandoned',
  reason: AbortReason | null,
): StepOutcome | null {
  if (reason === null) return outcome === 'abandoned' ? { kind: 'released' } : outcome
  const isDecided = outcome !== 'abandoned' && outcome.kind !== 'released' && !isThrown(outcome)
  // A step that ignored its abort signal may have made its call, or may still make it.
  const isInDoubt =
    outcome === 'abandoned' || (outcome.kind !== 'completed' && outcome.isInDoubt === true)
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

// A step that throws because its signal was aborted has not failed by itself.
const isThrown = (outcome: StepOutcome): boolean =>
  outcome.kind === 'retry' && outcome.errorClass === 'step_threw'
