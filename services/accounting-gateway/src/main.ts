import { setFlagsFromString } from 'node:v8'
import { createHealth, type Health } from '@integration-host/shared/observability/health'
import { runService } from '@integration-host/shared/process/lifecycle'
import { createLogger, type Logger } from '@integration-host/shared/observability/logger'
import type { ProviderLimits } from '@integration-host/shared/provider-profile/provider-profile'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { connectRedis } from '@integration-host/shared/redis/connection'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { createRedisLedger, createRedisPresence } from './adapters/redis/ledger.ts'
import { limitsOf, readConfig } from './config.ts'
import { createGatewayLimits } from './realm/process-ledger.ts'
import {
  batchRates,
  createRealmLimits,
  type GatewayLimits,
  type RealmRates,
} from './realm/throttle.ts'
import { startAccountingGateway } from './service.ts'

const NAME = 'accounting-gateway'

// Its lasting heap is small, some 20 MB, and V8 collects the whole of so small a heap several times a second under
// load, most of all after a rest. Let it grow to four times what lasts in between: a sixth of the processor time.
setFlagsFromString('--heap-growing-percent=300')

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
      prefix: config.AMQP_PREFIX,
    }),
  )
  const { REDIS_URL, REDIS_KEY_PREFIX } = config
  if (REDIS_URL === undefined)
    logger.warn('REDIS_URL is not set: each replica counts its calls alone')
  const limits =
    REDIS_URL === undefined
      ? createGatewayLimits(limitsOf(config))
      : sharedLimits(stack, REDIS_URL, {
          provider: limitsOf(config),
          logger,
          health,
          REDIS_KEY_PREFIX,
        })
  const service = stack.use(await startAccountingGateway(config, { logger, health, bus, limits }))
  const owned = stack.move()
  return { url: service.url, [Symbol.asyncDispose]: () => owned.disposeAsync() }
})

interface SharedLimitsOptions {
  readonly provider: ProviderLimits
  readonly logger: Logger
  readonly health: Health
  readonly REDIS_KEY_PREFIX: string
}

function sharedLimits(
  stack: AsyncDisposableStack,
  url: Secret,
  { provider, logger, health, REDIS_KEY_PREFIX }: SharedLimitsOptions,
): GatewayLimits {
  const { redis } = stack.use(
    connectRedis(url, {
      name: NAME,
      dependency: health.dependency('redis', 'optional'),
      keyPrefix: REDIS_KEY_PREFIX,
      // Every call waits for it, and counting alone for a moment is the lesser harm.
      commandTimeoutMs: 250,
    }),
  )
  const presence = createRedisPresence(logger)
  const limits = (name: string, rates: RealmRates) => {
    const ledger = stack.use(createRedisLedger({ redis, name, rates, presence }))
    return createRealmLimits({ ledger, now: Date.now })
  }
  return {
    calls: limits('throttle', provider.calls),
    batches: limits('batch', batchRates(provider)),
  }
}
