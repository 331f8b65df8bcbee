/**
 * Runs a coordinator with the charge process, and with a concurrency limit if `CONCURRENCY` is set. A test starts this
 * program and kills it during a call.
 */
import { createHealth } from '@integration-host/shared/observability/health'
import { runService } from '@integration-host/shared/process/lifecycle'
import { createLogger } from '@integration-host/shared/observability/logger'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { connectPostgres } from '../src/adapters/postgres/connection.ts'
import { createPostgresTransactionSource } from '../src/adapters/postgres/transaction-source.ts'
import { readConfig } from '../src/config.ts'
import { startCoordinator } from '../src/service.ts'
import { chargeProcess } from './charge-process.ts'

await runService('coordinator', async () => {
  const config = readConfig(process.env)
  if (config.TRANSACTION_SOURCE === 'memory') throw new Error('this program needs PostgreSQL')
  const leaseMs = Number(process.env['LEASE_MS'])
  const logger = createLogger('coordinator', config.LOG_LEVEL)
  const health = createHealth(logger)
  const source = createPostgresTransactionSource(
    connectPostgres(config.DATABASE_URL, {
      name: 'coordinator',
      dependency: health.dependency('postgres'),
      logger,
    }),
    { leaseMs },
  )
  const bus = connectRabbitMq(config.AMQP_URL, {
    name: `coordinator (${process.pid})`,
    dependency: health.dependency('rabbitmq'),
    logger,
    prefix: config.AMQP_PREFIX,
  })
  const limit = Number(process.env['CONCURRENCY'] ?? 0)
  const concurrency = limit === 0 ? null : { limit, keyOf: null }
  const processes = [{ ...chargeProcess, concurrency }]
  const timing = { renewMs: leaseMs / 3 }
  const openSource = () => source
  return startCoordinator(config, { logger, health, openSource, bus, processes, timing })
})
