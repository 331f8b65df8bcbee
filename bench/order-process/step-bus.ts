import { ladder, processTopology } from '@integration-host/shared/contracts/topology'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import type { EngineSettings } from './engine.ts'

/** Connects a bare program to RabbitMQ and declares the queues of a process, as the coordinator does. */
export async function openStepBus(
  { amqp }: EngineSettings,
  process: string,
  steps: readonly string[],
): Promise<MessageBus> {
  const logger = createLogger('bench', 'error')
  const bus = connectRabbitMq(new Secret(amqp.url), {
    name: 'bench',
    prefix: amqp.prefix,
    logger,
    dependency: createHealth(logger).dependency('rabbitmq'),
  })
  await bus.declare(ladder)
  await bus.declare(processTopology(process, steps))
  await bus.ready()
  return bus
}
