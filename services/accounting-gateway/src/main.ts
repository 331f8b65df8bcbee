import { createHealth, type Health } from '@integration-host/shared/observability/health'
import { runService, collectRarely } from '@integration-host/shared/process/lifecycle'
import { createLogger, type Logger } from '@integration-host/shared/observability/logger'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { connectRedis } from '@integration-host/shared/redis/connection'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { tlsFiles } from '@integration-host/shared/tls/tls-files'
import { createRedisRateLimiter } from './adapters/redis/rate-limiter.ts'
import { createRedisAvailability } from './adapters/redis/redis-availability.ts'
import { createRedisUsageStore } from './adapters/redis/usage-store.ts'
import { limitsOf, readConfig } from './config.ts'
import { batchRates, createRealmLimits, type RealmRates } from './realm/throttle.ts'
import { startAccountingGateway } from './service.ts'

const NAME = 'accounting-gateway'

collectRarely()

await runService(NAME, async () => {
  const config = readConfig(process.env)
  const logger = createLogger(NAME, config.LOG_LEVEL)
  const health = createHealth(logger)
  await using stack = new AsyncDisposableStack()
  const bus = stack.use(
    connectRabbitMq(config.AMQP_URL, {
      name: NAME,
      dependency: health.dependency('rabbitmq'),
      logger,
      tls: tlsFiles('AMQP', config),
      prefix: config.AMQP_PREFIX,
    }),
  )
  const { REDIS_URL } = config
  if (REDIS_URL === undefined)
    logger.warn('REDIS_URL is not set: each gateway replica limits only its own calls')
  const shared =
    REDIS_URL === undefined ? {} : sharedThroughRedis(stack, REDIS_URL, config, { logger, health })
  const service = stack.use(
    await startAccountingGateway(config, { logger, health, bus, ...shared }),
  )
  const owned = stack.move()
  return { url: service.url, [Symbol.asyncDispose]: () => owned.disposeAsync() }
})

/** Returns the rate limits and the usage that all gateway replicas share. */
function sharedThroughRedis(
  stack: AsyncDisposableStack,
  url: Secret,
  config: ReturnType<typeof readConfig>,
  { logger, health }: { readonly logger: Logger; readonly health: Health },
) {
  const { redis } = stack.use(
    connectRedis(url, {
      name: NAME,
      dependency: health.dependency('redis', 'optional'),
      tls: tlsFiles('REDIS', config),
      keyPrefix: config.REDIS_KEY_PREFIX,
      // Timeout of a Redis command. The timeout is short, because calls wait for the reply. After a timeout, this
      // process can still count its own calls without Redis.
      commandTimeoutMs: 250,
    }),
  )
  const availability = createRedisAvailability(logger)
  const limits = (name: string, rates: RealmRates) => {
    const limiter = stack.use(createRedisRateLimiter({ redis, name, rates, availability }))
    return createRealmLimits({ limiter, now: Date.now })
  }
  const provider = limitsOf(config)
  return {
    limits: {
      calls: limits('throttle', provider.calls),
      batches: limits('batch', batchRates(provider)),
    },
    usage: createRedisUsageStore(redis),
  }
}
