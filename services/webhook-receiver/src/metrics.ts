import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { Notification } from './delivery/notification.ts'

/**
 * The metrics of the receiver. No label contains text from a client, so each label has few values.
 *
 * @param bytesInFlight - returns the bytes of all bodies in flight
 */
export function createReceiverMetrics(metrics: Metrics, bytesInFlight: () => number) {
  const deliveries = metrics.counter(
    'webhook_deliveries_total',
    'Webhook deliveries of the provider by outcome: accepted, body_incomplete, or the code of the problem',
    ['outcome'],
  )
  const published = metrics.counter(
    'webhook_events_published_total',
    'Events of webhooks that the broker has confirmed',
    ['format', 'entity', 'operation'],
  )
  const ignored = metrics.counter(
    'webhook_events_ignored_total',
    'Changes of accepted webhooks that were not published, by reason',
    ['reason'],
  )
  const bytes = metrics.gauge('webhook_body_bytes', 'Bytes of the webhook bodies in flight')
  const last = metrics.gauge(
    'webhook_last_accepted_timestamp_seconds',
    'Unix time of the last accepted webhook; 0 if there was none',
  )
  last.set(0)
  metrics.beforeEach(() => bytes.set(bytesInFlight()))
  return {
    /** Counts a delivery. `outcome` is `accepted`, `body_incomplete` or a problem code. */
    countDelivery: (outcome: string) => deliveries.inc({ outcome }),
    countChanges({ format, events, ignored: changes }: Notification): void {
      last.set(Date.now() / 1_000)
      for (const { Entity, Operation } of events)
        published.inc({ format, entity: Entity, operation: Operation })
      for (const { reason } of changes) ignored.inc({ reason })
    },
  }
}
