import type { CallOutcome, HttpCall } from '@integration-host/coordinator/http-call'
import type { Clock } from '@integration-host/shared/process/clock'
import type { ServedTarget } from './fake-target.ts'
import type { WorkInFlight } from './work-in-flight.ts'

export interface CallTargetsDeps {
  /** Returns the target that serves a URL. */
  readonly targetOf: (url: URL) => ServedTarget | undefined
  readonly clock: Clock
  readonly work: WorkInFlight
  /** Called for a call to an address that no target serves. */
  readonly onUnknownAddress: (method: string, url: URL) => void
}

/**
 * Returns the function with which steps call the fake targets. Time limits and late responses follow the virtual clock.
 */
export const createTargetCaller =
  ({ targetOf, clock, work, onUnknownAddress }: CallTargetsDeps): HttpCall =>
  async (request, { abort, timeoutMs }) => {
    if (abort.areNewCallsBlocked) return { kind: 'aborted', isSent: false }
    const target = targetOf(request.url)
    if (target === undefined) {
      onUnknownAddress(request.method, request.url)
      return { kind: 'failed', reason: 'ENOTFOUND', isSent: false }
    }
    const { outcome, afterMs } = await target.serve(request)
    if (afterMs === 0) return outcome
    const isInTime = afterMs !== null && afterMs < timeoutMs
    const { promise, resolve } = Promise.withResolvers<CallOutcome>()
    const onAbort = (): void => {
      if (abort.reason !== null) resolve({ kind: 'aborted', isSent: true })
    }
    const timer = clock.setTimeout(
      () => resolve(isInTime ? outcome : { kind: 'failed', reason: 'ETIMEDOUT', isSent: true }),
      isInTime ? afterMs : timeoutMs,
    )
    abort.watch(onAbort)
    try {
      return await work.waitForClock(promise)
    } finally {
      abort.unwatch(onAbort)
      timer[Symbol.dispose]()
    }
  }
