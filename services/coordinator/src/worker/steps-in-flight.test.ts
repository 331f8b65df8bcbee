import { describe, expect, it } from 'vitest'
import { StepAbort } from '../step/step-abort.ts'
import type { Claim, Lease } from '../run/transaction-source.ts'
import { createStepsInFlight, type StepInFlight } from './steps-in-flight.ts'

const stepOf = (TransactionID: string, version: number): StepInFlight => {
  const lease = { Process: 'p', TransactionID, ReplayID: 0, version } as Lease
  return { claim: { lease } as Claim, needsInternet: false, abort: new StepAbort() }
}
const reasonsOf = (steps: readonly StepInFlight[]) => steps.map(({ abort }) => abort.reason)

describe('the steps in flight', () => {
  it('aborts only the step that lost its lease if this replica has claimed the run again', () => {
    const inFlight = createStepsInFlight()
    const steps = [stepOf('a', 5), stepOf('a', 6), stepOf('b', 5)]
    for (const step of steps) inFlight.add(step)
    inFlight.abortLost(stepOf('a', 5).claim.lease)
    expect(reasonsOf(steps)).toEqual(['lease_lost', null, null])
  })

  it('aborts the steps of a cancelled run that were claimed before the cancellation', () => {
    const inFlight = createStepsInFlight()
    const steps = [stepOf('a', 5), stepOf('a', 8), stepOf('b', 5)]
    for (const step of steps) inFlight.add(step)
    inFlight.abortCancelled({ Process: 'p', TransactionID: 'a', ReplayID: 0, Version: 7 })
    expect(reasonsOf(steps)).toEqual(['lease_lost', null, null])
  })

  it('lists each lease with the progress that its step has reported last', () => {
    const inFlight = createStepsInFlight()
    const step = stepOf('a', 1)
    inFlight.add(step)
    expect(inFlight.leases).toEqual([step.claim.lease])
    for (const done of [1, 2]) step.report = { Done: done }
    expect(inFlight.leases).toEqual([{ ...step.claim.lease, report: { Done: 2 } }])
  })

  it('lists the leases of all steps that are still in flight', () => {
    const inFlight = createStepsInFlight()
    const remove = inFlight.add(stepOf('a', 1))
    inFlight.add(stepOf('b', 1))
    remove()
    remove()
    expect(inFlight.leases.map(({ TransactionID }) => TransactionID)).toEqual(['b'])
  })
})
