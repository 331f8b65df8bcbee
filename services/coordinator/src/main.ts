import { createHealth } from '@integration-host/shared/observability/health'
import { runService } from '@integration-host/shared/process/lifecycle'
import { createLogger } from '@integration-host/shared/observability/logger'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { tlsFiles } from '@integration-host/shared/tls/tls-files'
import { tracedStore } from '@integration-host/shared/observability/telemetry'
import { readConfig } from './config.ts'
import { configure } from './load-processes.ts'
import { startCoordinator } from './service.ts'
import type { TransactionSource, WebhooksOf } from './run/transaction-source.ts'

/**
 * The methods of the source that get a trace span for each call. A span per SQL statement would not suffice, because
 * one SQL statement can serve many calls of these methods.
 */
const TRACED = ['queue', 'claim', 'record', 'replay', 'operate'] as const

await runService('coordinator', async () => {
  const { config, processes } = await configure(process.env, readConfig)
  const logger = createLogger('coordinator', config.LOG_LEVEL)
  const health = createHealth(logger)
  await using stack = new AsyncDisposableStack()
  const bus = stack.use(
    connectRabbitMq(config.AMQP_URL, {
      name: `coordinator (${process.pid})`,
      dependency: health.dependency('rabbitmq'),
      logger,
      tls: tlsFiles('AMQP', config),
      prefix: config.AMQP_PREFIX,
    }),
  )
  const service = stack.use(
    await startCoordinator(config, { logger, health, openSource, bus, processes }),
  )
  const owned = stack.move()
  return { url: service.url, [Symbol.asyncDispose]: () => owned.disposeAsync() }

  // The imports are dynamic, so that only the modules of the configured transaction source are loaded.
  async function openSource(webhooksOf?: WebhooksOf): Promise<TransactionSource> {
    // The time after which an unclaimed run is overdue. It equals the interval of the sweeper.
    const sweepMs = config.LOCAL_PULL_SECONDS * 1_000
    if (config.TRANSACTION_SOURCE === 'memory') {
      const { createMemoryTransactionSource } =
        await import('./adapters/memory/transaction-source.ts')
      return createMemoryTransactionSource(config.DATA_DIR, { sweepMs, webhooksOf })
    }
    const { connectPostgres } = await import('./adapters/postgres/connection.ts')
    const { createPostgresTransactionSource } =
      await import('./adapters/postgres/transaction-source.ts')
    const dependency = health.dependency('postgres')
    const postgres = createPostgresTransactionSource(
      connectPostgres(config.DATABASE_URL, {
        name: 'coordinator',
        dependency,
        logger,
        listenUrl: config.DATABASE_LISTEN_URL,
        tls: config,
      }),
      { sweepMs, webhooksOf },
    )
    return tracedStore('postgresql', postgres, TRACED)
  }
})
