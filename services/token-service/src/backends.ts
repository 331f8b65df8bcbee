import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { createHealth, type Health } from '@integration-host/shared/observability/health'
import { createLogger, type Logger } from '@integration-host/shared/observability/logger'
import { createMetrics } from '@integration-host/shared/observability/metrics'
import { tracedStore } from '@integration-host/shared/observability/telemetry'
import { connectRedis } from '@integration-host/shared/redis/connection'
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import { tlsFiles } from '@integration-host/shared/tls/tls-files'
import { openRescueFolder } from './adapters/file/rescue-folder.ts'
import { createRedisAuthorizationStore } from './adapters/redis/authorization-store.ts'
import { createRedisConnectLinkStore } from './adapters/redis/connect-link-store.ts'
import { createRedisCredentialStore } from './adapters/redis/credential-store.ts'
import { watchKeys } from './adapters/redis/key-check-value.ts'
import { createReplicatedWrites } from './adapters/redis/replicated-writes.ts'
import { watchServer, watchWrites } from './adapters/redis/server-watch.ts'
import type { Config } from './config.ts'
import { countDecryptionFailures } from './metrics.ts'
import type { TokenServiceAdapters } from './service.ts'

/** The store operations that are recorded as spans: the operations of token issuance, refresh and code exchange. */
const TRACED = ['get', 'put', 'acquire', 'recordIntent', 'commit', 'settle', 'release'] as const

/**
 * Connects to Redis and RabbitMQ in the background. Resolves at once, even if they are unavailable.
 *
 * @throws {StartupError} if `RESCUE_DIR` cannot be written.
 */
export async function openBackends(
  config: Config,
): Promise<TokenServiceAdapters & AsyncDisposable> {
  const logger = createLogger('token-service', config.LOG_LEVEL)
  const health = createHealth(logger)
  await using opened = new AsyncDisposableStack()
  const metrics = createMetrics('token-service')
  const keys = countDecryptionFailures(config.CREDENTIAL_KEYS, metrics)
  const { store, connection, authorizations, links } = opened.use(
    openRedisStores(config, { keys, health, logger }),
  )
  const bus = opened.use(
    connectRabbitMq(config.AMQP_URL, {
      name: 'token-service',
      dependency: health.dependency('rabbitmq'),
      logger,
      tls: tlsFiles('AMQP', config),
      prefix: config.AMQP_PREFIX,
    }),
  )
  const rescue =
    config.RESCUE_DIR === undefined
      ? null
      : await openRescueFolder(config.RESCUE_DIR, { keys, logger })
  const open = opened.move()
  return {
    logger,
    health,
    bus,
    metrics,
    store: tracedStore('redis', store, TRACED),
    connection,
    rescue,
    authorizations,
    links,
    [Symbol.asyncDispose]: () => open.disposeAsync(),
  }
}

/** The settings of the stores in Redis. */
export type RedisStoresConfig = Pick<
  Config,
  | 'REDIS_URL'
  | 'REDIS_KEY_PREFIX'
  | 'REDIS_REPLICAS'
  | 'REDIS_CA_FILE'
  | 'REDIS_CERT_FILE'
  | 'REDIS_KEY_FILE'
  | 'AUDIT_ENTRIES'
>

/** Connects to Redis in the background, and returns the stores in it at once. */
export function openRedisStores(
  config: RedisStoresConfig,
  deps: { readonly keys: KeyRing; readonly health: Health; readonly logger: Logger },
) {
  const { keys, health, logger } = deps
  const opened = new AsyncDisposableStack()
  const connect = (name: string, dependency: string) =>
    connectRedis(config.REDIS_URL, {
      name,
      dependency: health.dependency(dependency),
      tls: tlsFiles('REDIS', config),
      keyPrefix: config.REDIS_KEY_PREFIX,
    })
  const { redis } = opened.use(connect('token-service', 'redis'))
  const writes = opened.use(
    createReplicatedWrites({
      redis,
      setting: config.REDIS_REPLICAS,
      connect: () => connect('token-service-replicated', 'redis-replicated'),
    }),
  )
  const { ensureUsable } = opened.use(
    watchKeys({ redis, keys, dependency: health.dependency('credential-keys'), logger }),
  )
  opened.use(watchWrites(redis, writes, health.dependency('redis-writes')))
  const connection = opened.use(watchServer({ redis, writes, logger }))
  return {
    redis,
    store: createRedisCredentialStore({
      redis,
      writes,
      keys,
      ensureUsable,
      auditEntries: config.AUDIT_ENTRIES,
    }),
    connection,
    authorizations: createRedisAuthorizationStore({ redis, ensureUsable }),
    links: createRedisConnectLinkStore({ redis, ensureUsable }),
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  }
}
