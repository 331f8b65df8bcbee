import { LinkedList } from '@integration-host/shared/process/linked-list'
import type { AbortReason, StepAbort } from '../step/step-abort.ts'
import { isSameRun, type Run, type RunKey } from '../run/run.ts'
import type { Json } from '../run/json-normalization.ts'
import type { Claim, Lease, LeaseRenewal } from '../run/transaction-source.ts'

export interface StepInFlight {
  readonly claim: Claim
  readonly needsInternet: boolean
  readonly abort: StepAbort
  /** The progress that the step has reported last. */
  report?: Json
}

/**
 * The steps that this replica runs. A run has one, or two if a step that lost its lease is still running when this replica
 * claims the run again.
 */
export interface StepsInFlight {
  readonly leases: readonly LeaseRenewal[]
  /** Adds a step. Returns a function that removes the step. */
  add(step: StepInFlight): () => void
  /** Aborts the step that has lost this lease. A step for which this replica has claimed the run again continues. */
  abortLost(lease: Lease): void
  /**
   * Aborts the steps of a cancelled run that this replica runs. `Version` is the version of the run after the
   * cancellation.
   */
  abortCancelled(run: RunKey & Pick<Run, 'Version'>): void
  /** Blocks the calls that were not sent yet, either of all steps or only of the steps that need the internet. */
  blockNewCalls(which: 'all' | 'internet'): void
  abortAll(reason: AbortReason): void
}

export function createStepsInFlight(): StepsInFlight {
  const steps = new LinkedList<StepInFlight>()
  const abortIf = (isMeant: (lease: Lease) => boolean): void => {
    for (const { value } of steps) if (isMeant(value.claim.lease)) value.abort.abort('lease_lost')
  }
  return {
    get leases() {
      return Array.from(steps, ({ value: { claim, report } }) =>
        report === undefined ? claim.lease : { ...claim.lease, report },
      )
    },
    add(step) {
      const link = steps.add(step)
      return () => void link.remove()
    },
    abortLost(lease) {
      abortIf((other) => other.version === lease.version && isSameRun(other, lease))
    },
    abortCancelled(run) {
      // The event of a cancellation may arrive late: the run may have been resumed, and this replica may have claimed
      // it again.
      abortIf((lease) => lease.version < run.Version && isSameRun(lease, run))
    },
    blockNewCalls(which) {
      for (const { value } of steps)
        if (which === 'all' || value.needsInternet) value.abort.blockNewCalls()
    },
    abortAll(reason) {
      for (const { value } of steps) value.abort.abort(reason)
    },
  }
}
