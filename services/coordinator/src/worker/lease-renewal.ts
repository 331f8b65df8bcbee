import type { Logger } from '@integration-host/shared/observability/logger'
import type { Clock } from '@integration-host/shared/process/clock'
import type { TransactionSource } from '../transaction/transaction-source.ts'
import type { StepsInFlight } from './steps-in-flight.ts'

export interface LeaseRenewalDeps {
  readonly source: Pick<TransactionSource, 'renew'>
  readonly stepsInFlight: Pick<StepsInFlight, 'leases' | 'abortLost'>
  readonly log: Logger
  readonly clock: Clock
  readonly renewMs: number
}

/** Every `renewMs`, extends the leases of all steps in flight and aborts the steps whose lease was lost. */
export function startLeaseRenewal(deps: LeaseRenewalDeps): Disposable {
  const { source, stepsInFlight, log, clock, renewMs } = deps
  const renew = (): void => {
    const { leases } = stepsInFlight
    if (leases.length === 0) return
    source.renew(leases).then(
      (lost) => {
        for (const lease of lost) stepsInFlight.abortLost(lease)
      },
      () => log.debug('could not renew the leases of the steps in flight'),
    )
  }
  // A renewal starts even if the previous renewal has not ended, because otherwise a lease could expire while the store
  // is slow.
  const repetition = clock.repeat(async () => {
    renew()
    return renewMs
  })
  return { [Symbol.dispose]: () => void repetition[Symbol.asyncDispose]() }
}
