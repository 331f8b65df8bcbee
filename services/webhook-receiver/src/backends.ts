import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { tlsFiles } from '@integration-host/shared/tls/tls-files'
import type { Config } from './config.ts'
import { RESPONSE_DEADLINE_MS } from './routes/intuit-webhook.ts'
import type { ReceiverAdapters } from './service.ts'

/** Connects to RabbitMQ in the background. Returns immediately, even if RabbitMQ is unavailable. */
export function openBackends(config: Config): ReceiverAdapters & AsyncDisposable {
  const logger = createLogger('webhook-receiver', config.LOG_LEVEL)
  const health = createHealth(logger)
  const bus = connectRabbitMq(config.AMQP_URL, {
    name: 'webhook-receiver',
    dependency: health.dependency('rabbitmq'),
    logger,
    tls: tlsFiles('AMQP', config),
    prefix: config.AMQP_PREFIX,
    // The receiver stops waiting for a confirm at the deadline of its own response. A longer wait would keep the body
    // of the event in memory for a confirm that is no longer needed.
    confirmDeadlineMs: RESPONSE_DEADLINE_MS,
  })
  return { logger, health, bus, [Symbol.asyncDispose]: () => bus[Symbol.asyncDispose]() }
}
