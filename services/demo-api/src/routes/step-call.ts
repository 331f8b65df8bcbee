import type { Metrics } from '@integration-host/shared/observability/metrics'

/**
 * Returns the metric that counts calls by steps of the business process `OrderProcess`. Calls with a repeated
 * idempotency key are counted separately, because such a call is a retry and has no second effect.
 */
export const stepCalls = (metrics: Metrics) =>
  metrics.counter(
    'demo_api_step_calls_total',
    'Calls of /order and /report: effect "new" once per idempotency key, then "repeated"',
    ['route', 'effect'],
  )

export type StepCalls = ReturnType<typeof stepCalls>

export const ORDER_PARAMETER = {
  name: 'order',
  in: 'query' as const,
  required: true,
  description: '1 to 1024 characters, no control characters',
  schema: { type: 'string' as const, minLength: 1, maxLength: 1_024 },
}

export const IDEMPOTENCY_KEY_PARAMETER = {
  name: 'Idempotency-Key',
  in: 'header' as const,
  required: false,
  description: 'a call with the same key gets the same response',
  schema: { type: 'string' as const, maxLength: 2_048 },
}
