/**
 * Runs a coordinator that reloads changed process files, as `dev` does. Its backends are the
 * embedded ones.
 */
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { runService } from '@integration-host/shared/process/lifecycle'
import { createMemoryTransactionSource } from '../src/adapters/memory/transaction-source.ts'
import { readEmbeddedConfig } from '../src/config.ts'
import { configure } from '../src/load-processes.ts'
import { startCoordinator } from '../src/service.ts'

await runService('coordinator', async () => {
  const { config, ...processes } = await configure(process.env, readEmbeddedConfig)
  const logger = createLogger('coordinator', config.LOG_LEVEL)
  return startCoordinator(config, {
    logger,
    health: createHealth(logger),
    openSource: () => createMemoryTransactionSource(config.DATA_DIR),
    bus: createInProcessBus(logger),
    ...processes,
  })
})
