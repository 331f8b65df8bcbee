import { createHealth } from '@integration-host/shared/observability/health'
import { runService } from '@integration-host/shared/process/lifecycle'
import { createLogger } from '@integration-host/shared/observability/logger'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { tlsFiles } from '@integration-host/shared/tls/tls-files'
import { tracedStore } from '@integration-host/shared/observability/telemetry'
import { type Config, readConfig } from './config.ts'
import { configure } from './load-processes.ts'
import { startCoordinator } from './service.ts'
import type { TransactionSource } from './run/transaction-source.ts'

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
  const source = stack.use(await openSource(config))
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
    await startCoordinator(config, { logger, health, source, bus, processes }),
  )
  const owned = stack.move()
  return { url: service.url, [Symbol.asyncDispose]: () => owned.disposeAsync() }

  // The imports are dynamic, so that only the modules of the configured transaction source are loaded.
  async function openSource(settings: Config): Promise<TransactionSource> {
    // The time after which an unclaimed run is overdue. It equals the interval of the sweeper.
    const sweepMs = settings.LOCAL_PULL_SECONDS * 1_000
    if (settings.TRANSACTION_SOURCE === 'memory') {
      const { createMemoryTransactionSource } =
        await import('./adapters/memory/transaction-source.ts')
      return createMemoryTransactionSource(settings.DATA_DIR, { sweepMs })
    }
    const { connectPostgres } = await import('./adapters/postgres/connection.ts')
    const { createPostgresTransactionSource } =
      await import('./adapters/postgres/transaction-source.ts')
    const dependency = health.dependency('postgres')
    const postgres = createPostgresTransactionSource(
      connectPostgres(settings.DATABASE_URL, {
        name: 'coordinator',
        dependency,
        logger,
        listenUrl: settings.DATABASE_LISTEN_URL,
        tls: settings,
      }),
      { sweepMs },
    )
    return tracedStore('postgresql', postgres, TRACED)
  }
})
