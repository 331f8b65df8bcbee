import type { Metrics } from '@integration-host/shared/metrics'

/** The gateway's own figures; none has a realm for a label. */
export interface GatewayMetrics {
  /** One call that has its answer; milliseconds. */
  call(status: number, durationMs: number, waitedMs: number): void
  retry(reason: string): void
  hold(): void
}

export function createGatewayMetrics(metrics: Metrics): GatewayMetrics {
  const calls = metrics.counter('gateway_requests_total', 'Calls answered, by status class', [
    'class',
  ])
  const duration = metrics.histogram(
    'gateway_request_duration_seconds',
    "From a call's arrival to the end of upstream's answer",
  )
  const waits = metrics.histogram(
    'gateway_wait_seconds',
    'What calls that had to wait for their turn, a token or another try waited',
  )
  const retries = metrics.counter('gateway_retries_total', 'Attempts made again, by reason', [
    'reason',
  ])
  const holds = metrics.counter('gateway_holds_total', 'Answers 429 that put a realm on hold')
  return {
    call(status, durationMs, waitedMs) {
      calls.inc({ class: `${Math.floor(status / 100)}xx` })
      duration.observe(durationMs / 1_000)
      if (waitedMs >= 1) waits.observe(waitedMs / 1_000)
    },
    retry: (reason) => retries.inc({ reason }),
    hold: () => holds.inc(),
  }
}
