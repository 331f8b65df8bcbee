import { LinkedList } from '@integration-host/shared/process/pending-work'
import type { AbortReason, StepAbort } from '../step/step-abort.ts'
import { isSameRun, type Run, type RunKey } from '../run/run.ts'
import type { Json } from '../run/json-normalization.ts'
import type { Claim, Lease, LeaseRenewal } from '../run/transaction-source.ts'
import { CODE_ERRORS } from '../step/perform-step.ts'
import type { StepOutcome } from '../run/progress.ts'

export interface StepInFlight {
  readonly claim: Claim
  readonly needsInternet: boolean
  readonly abort: StepAbort
  /** The progress that the step has reported last. */
  report?: Json
}

export type StepsInFlight = ReturnType<typeof createStepsInFlight>

/**
 * The steps that this replica runs. A run has one, or two if a step that lost its lease is still running when this replica
 * claims the run again.
 */
export function createStepsInFlight() {
  const steps = new LinkedList<StepInFlight>()
  const abortIf = (isMeant: (lease: Lease) => boolean): void => {
    for (const { value } of steps) if (isMeant(value.claim.lease)) value.abort.abort('lease_lost')
  }
  return {
    get leases(): readonly LeaseRenewal[] {
      return Array.from(steps, ({ value: { claim, report } }) =>
        report === undefined ? claim.lease : { ...claim.lease, report },
      )
    },
    /** Adds a step. Returns a function that removes the step. */
    add(step: StepInFlight): () => void {
      const link = steps.add(step)
      return () => void link.remove()
    },
    /** Aborts the step that has lost this lease. A step for which this replica has claimed the run again continues. */
    abortLost(lease: Lease): void {
      abortIf((other) => other.version === lease.version && isSameRun(other, lease))
    },
    /**
     * Aborts the steps of a cancelled run that this replica runs. `Version` is the version of the run after the
     * cancellation.
     */
    abortCancelled(run: RunKey & Pick<Run, 'Version'>): void {
      // The event of a cancellation may arrive late: the run may have been resumed, and this replica may have claimed
      // it again.
      abortIf((lease) => lease.version < run.Version && isSameRun(lease, run))
    },
    /** Blocks the calls that were not sent yet, either of all steps or only of the steps that need the internet. */
    blockNewCalls(which: 'all' | 'internet'): void {
      for (const { value } of steps)
        if (which === 'all' || value.needsInternet) value.abort.blockNewCalls()
    },
    abortAll(reason: AbortReason): void {
      for (const { value } of steps) value.abort.abort(reason)
    },
  }
}

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
