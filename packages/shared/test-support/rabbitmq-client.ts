import type { MessageBus } from '../src/messaging/message-bus.ts'
import { connectRabbitMq } from '../src/messaging/rabbitmq/message-bus.ts'
import { createHealth } from '../src/observability/health.ts'
import { createLogger } from '../src/observability/logger.ts'
import { Secret } from '../src/secrets/secret.ts'
import type { TlsFiles } from '../src/tls/tls-files.ts'

export interface TestBus extends AsyncDisposable {
  readonly bus: MessageBus
  /** Publishes a message to an exclusive queue of this connection. */
  publish(): Promise<void>
  /** Returns the reason for which the dependency is down; empty while it is not down. */
  reason(): string
  /** The log lines that the bus has written so far. */
  readonly lines: readonly Record<string, unknown>[]
}

/**
 * Opens a message bus as a service does. The queue of the bus is exclusive, so that the broker deletes the queue when
 * the connection ends.
 */
export function openBus(url: string, tls?: TlsFiles): TestBus {
  const lines: Record<string, unknown>[] = []
  const write = (line: string): void => void lines.push(JSON.parse(line) as Record<string, unknown>)
  const logger = createLogger('test', 'info', { write })
  const dependency = createHealth(logger).dependency('rabbitmq')
  const bus = connectRabbitMq(new Secret(url), { name: 'test', dependency, logger, tls })
  // The exchange amq.direct exists on every broker.
  const binding = { exchange: 'amq.direct', routingKey: `test-${crypto.randomUUID()}` }
  void bus.declare({
    exchanges: [],
    queues: [{ name: binding.routingKey, exclusive: true, bindings: [binding] }],
  })
  return {
    bus,
    lines,
    publish: () =>
      bus.publish({ ...binding, messageId: '1', type: 'test', body: {}, mandatory: true }),
    reason: () => (dependency.state.status === 'down' ? dependency.state.reason : ''),
    [Symbol.asyncDispose]: () => bus[Symbol.asyncDispose](),
  }
}
