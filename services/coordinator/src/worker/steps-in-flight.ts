import type { AbortReason, StepAbort } from '../process/step-abort.ts'
import { keyText, type Run, type RunKey } from '../transaction/run.ts'
import type { Claim, Lease } from '../transaction/transaction-source.ts'

export interface StepInFlight {
  readonly claim: Claim
  readonly needsInternet: boolean
  readonly abort: StepAbort
}

/** The steps that this replica currently runs, at most one per run. */
export interface StepsInFlight {
  readonly leases: readonly Lease[]
  /** Adds a step. Returns a function that removes the step. */
  add(step: StepInFlight): () => void
  /** Aborts a step whose lease was lost, unless this replica has claimed the run again in the meantime. */
  abortLost(lease: Lease): void
  /**
   * Aborts the step of a cancelled run if this replica runs it. `Version` is the version of the run after the
   * cancellation.
   */
  abortCancelled(run: RunKey & Pick<Run, 'Version'>): void
  /** Blocks the calls that were not sent yet, either of all steps or only of the steps that need the internet. */
  blockNewCalls(which: 'all' | 'internet'): void
  abortAll(reason: AbortReason): void
}

export function createStepsInFlight(): StepsInFlight {
  const steps = new Map<string, StepInFlight>()
  return {
    get leases() {
      return [...steps.values()].map(({ claim }) => claim.lease)
    },
    add(step) {
      const key = keyText(step.claim.run)
      steps.set(key, step)
      return () => {
        if (steps.get(key) === step) steps.delete(key)
      }
    },
    abortLost(lease) {
      const step = steps.get(keyText(lease))
      if (step?.claim.lease.version === lease.version) step.abort.abort('lease_lost')
    },
    abortCancelled(run) {
      const step = steps.get(keyText(run))
      // The event of a cancellation may arrive late: the run may have been resumed, and this replica may have claimed
      // it again.
      if (step !== undefined && step.claim.lease.version < run.Version)
        step.abort.abort('lease_lost')
    },
    blockNewCalls(which) {
      for (const { abort, needsInternet } of steps.values())
        if (which === 'all' || needsInternet) abort.blockNewCalls()
    },
    abortAll(reason) {
      for (const { abort } of steps.values()) abort.abort(reason)
    },
  }
}
