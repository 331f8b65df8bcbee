import { hasCode } from '@integration-host/shared/errors'
import { honoListener, listen } from '@integration-host/shared/http/http-server'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { createEventPublisher } from '@integration-host/shared/messaging/provider-events'
import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import { createMetrics, type Metrics } from '@integration-host/shared/observability/metrics'
import type { RunningService } from '@integration-host/shared/process/lifecycle'
import { createRateLimit } from '@integration-host/shared/process/limits'
import { createApp } from './app.ts'
import type { ReceiverConfig } from './config.ts'
import { createAcceptDelivery, type Failpoint } from './delivery/accept-delivery.ts'
import { createBodyMemory } from './delivery/body-memory.ts'
import { isUnknownEntity } from './delivery/reported-change.ts'
import type { Notification } from './delivery/notification.ts'
import { createReceiverMetrics } from './metrics.ts'

export interface ReceiverAdapters {
  readonly logger: Logger
  readonly health: Health
  readonly bus: MessageBus
  readonly metrics?: Metrics
  /** How long a delivery may take; 2.5 s by default. Only tests set it. */
  readonly deadlineMs?: number
  /** Awaited at each failpoint of a delivery. Only tests set this function. */
  readonly failpoint?: (point: Failpoint) => Promise<void> | void
}

/**
 * The maximum memory of all bodies in flight: enough for 16 bodies of maximum size, or for thousands of bodies of usual
 * size.
 */
const MAX_BYTES_IN_FLIGHT = 16 * 1_048_576
/** The maximum number of ignored changes that are logged for one delivery. The metrics count all ignored changes. */
const LOGGED_IGNORED_CHANGES = 10
const REJECTION_LOG_INTERVAL_MS = 60_000

/** Builds the receiver from its settings and adapters, and serves until disposed. The caller disposes the adapters. */
export async function startWebhookReceiver(
  config: ReceiverConfig,
  adapters: ReceiverAdapters,
): Promise<RunningService> {
  const { logger, health, bus, deadlineMs, failpoint } = adapters
  const metrics = adapters.metrics ?? createMetrics('webhook-receiver')
  const memory = createBodyMemory(MAX_BYTES_IN_FLIGHT)
  const counted = createReceiverMetrics(metrics, () => memory.bytes)
  const rejectionLog = createRateLimit({
    count: 1,
    intervalMs: REJECTION_LOG_INTERVAL_MS,
    now: () => performance.now(),
  })
  const accept = createAcceptDelivery({
    tokens: config.WEBHOOK_VERIFIER_TOKENS,
    publish: createEventPublisher(bus),
    onAccepted(notification) {
      counted.countChanges(notification)
      logUnusual(logger, notification)
    },
    ...(failpoint !== undefined && { failpoint }),
  })
  const app = createApp({
    logger,
    health,
    metrics,
    memory,
    count: (outcome) => counted.countDelivery(outcome),
    ...(deadlineMs !== undefined && { deadlineMs }),
    async accept(delivery) {
      try {
        return await accept(delivery)
      } catch (error) {
        // Any client can send bodies with a wrong signature. The number of warnings is limited, so that such a client
        // cannot fill the log.
        if (hasCode(error, 'signature_invalid') && rejectionLog.take())
          logger.warn(
            {
              remedy:
                'compare WEBHOOK_VERIFIER_TOKENS with the token on the webhooks page of the app',
            },
            'signature of a webhook matches no verifier token',
          )
        throw error
      }
    },
  })
  return listen(honoListener(app), { host: config.HOST, port: config.PORT, metrics })
}

/** Logs ignored changes, and published changes of unknown entities, with their ids and the checked name of the entity. */
function logUnusual(logger: Logger, { format, events, ignored }: Notification): void {
  for (const change of ignored.slice(0, LOGGED_IGNORED_CHANGES))
    logger.warn({ format, ...change }, 'a change that a webhook reported was not published')
  const unknown = events.filter(({ Entity }) => isUnknownEntity(Entity))
  for (const { Entity: entity, EntityId: entityId, Realm: realm } of unknown.slice(
    0,
    LOGGED_IGNORED_CHANGES,
  ))
    logger.info({ format, entity, realm, entityId }, 'a change of an unknown entity was published')
}
