import { createHealth, type Health } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { runService } from '@integration-host/shared/process/lifecycle'
import { connectRedis } from '@integration-host/shared/redis/connection'
import { tlsFiles } from '@integration-host/shared/tls/tls-files'
import { loadApp } from './build-app.ts'
import {
  createRedisActionCounter,
  createRedisRequestStore,
  createRedisSessionStore,
} from './adapters/redis/stores.ts'
import { type Config, readConfig } from './config.ts'
import { type SharedStores, startConsole } from './service.ts'

await runService('console', async () => {
  const config = readConfig()
  const logger = createLogger('console', config.LOG_LEVEL)
  const health = createHealth(logger)
  await using stack = new AsyncDisposableStack()
  const stores = sharedStores(stack, config, health)
  const service = stack.use(
    await startConsole(config, { logger, health, built: await loadApp(), stores }),
  )
  const owned = stack.move()
  return { url: service.url, [Symbol.asyncDispose]: () => owned.disposeAsync() }
})

/** Returns the stores in Redis; `undefined` without REDIS_URL. */
function sharedStores(
  stack: AsyncDisposableStack,
  config: Config,
  health: Health,
): SharedStores | undefined {
  if (config.REDIS_URL === undefined) return undefined
  const { redis } = stack.use(
    connectRedis(config.REDIS_URL, {
      name: 'console',
      dependency: health.dependency('redis'),
      tls: tlsFiles('REDIS', config),
      keyPrefix: config.REDIS_KEY_PREFIX,
    }),
  )
  return {
    sessions: createRedisSessionStore(redis),
    actions: createRedisActionCounter(redis),
    requests: createRedisRequestStore(redis),
  }
}
